"""Listeners of streams: the argument `to_user` (G1), and thoughts apart from speech (R2)."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from duologue.graphs.log.heard_text import HeardText, join_texts, split_texts
from duologue.graphs.speakers.speaker import TO_USER
from duologue.nodes.models.listeners import Argument, Tokens
from duologue.nodes.testing import ScriptedChatModel
from support.cases import drawn_cases
from support.tables import each_row, read_rows

TEXTS: dict[str, str] = read_rows(__file__, "texts")
BESIDE: dict[str, dict[str, Any]] = {
    "alone": {},
    "text": {"path": "a.txt"},
    "nested": {"inner": {TO_USER: "no", "list": [{TO_USER: "no"}, ["to_user"]]}},
    "quoted": {"text": '"to_user": "no"', '"to_user': "\\"},
    "others": {"n": -1.5e10, "yes": True, "none": None, "empty": {}, "": [[], {}]},
}
PLACES = ("first", "middle", "last")
WRITTEN: dict[str, Callable[[dict[str, Any]], str]] = {
    "ascii": json.dumps,
    "unicode": lambda args: json.dumps(args, ensure_ascii=False),
    "spaced": lambda args: json.dumps(args, indent=2, separators=(" ,\t", " :\r\n ")),
    "all-escaped": lambda args: escaped(json.dumps(args)),
}
CUTS = (1, 2, 3, 5, 11, 10**6)


def escaped(written: str) -> str:
    r"""Return the same JSON with each plain letter of its strings as ``\uXXXX``."""
    made, inside, place = [], False, 0
    while place < len(written):
        sign = written[place]
        if inside and sign == "\\":
            size = 6 if written[place + 1] == "u" else 2
            made.append(written[place : place + size])
            place += size
            continue
        inside ^= sign == '"'
        made.append(f"\\u{ord(sign):04X}" if inside and sign.isalpha() else sign)
        place += 1
    return "".join(made)


def placed(text: object, beside: dict[str, Any], place: str) -> dict[str, Any]:
    items = [*beside.items()]
    at = {"first": 0, "middle": len(items) // 2, "last": len(items)}[place]
    return dict([*items[:at], (TO_USER, text), *items[at:]])


def pieces(written: str, cut: int) -> tuple[str, ...]:
    return tuple(written[at : at + cut] for at in range(0, len(written), cut))


def read(parts: Sequence[str]) -> list[str]:
    argument = Argument()
    return [argument.read(part) for part in parts]


PLACED = [(name, place) for name in BESIDE for place in (PLACES if BESIDE[name] else PLACES[:1])]
"""Pairs of the call's other arguments and the text's place among them."""


@pytest.mark.part(3)
@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("name", TEXTS)
def test_the_argument_is_read_exactly(name: str, way: str) -> None:
    """G1: the streamed text is always exactly the argument's text.

    Agere's decoder returned the right text in 220 of 300 such combinations of text, place and
    chunking. The test compares the joined stream with the text that Python's JSON reads from the
    complete arguments, and each piece with the text's position at that moment.
    """
    assert len(TEXTS) * len(PLACED) * len(WRITTEN) * len(CUTS) >= 1000
    text = TEXTS[name]
    for beside, place in PLACED:
        written = WRITTEN[way](placed(text, BESIDE[beside], place))
        assert json.loads(written)[TO_USER] == text
        for cut in CUTS:
            told = ""
            for piece in read(pieces(written, cut)):
                told += piece
                assert text.startswith(told), (beside, place, cut)
            assert told == text, (beside, place, cut)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=6) | st.just(TO_USER),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.just(TO_USER), inner, max_size=3)
    ),
    max_leaves=8,
)
others = st.dictionaries(st.text(max_size=8).filter(lambda key: key != TO_USER), json_values)


@drawn_cases(40, 400, data=st.data(), text=st.text() | st.none() | json_values, beside=others)
def test_any_argument_is_read_exactly(
    data: st.DataObject,
    text: Any,  # noqa: ANN401
    beside: dict[str, Any],
) -> None:
    """G1: any value is read exactly, text or not, at any place and in any pieces."""
    args = placed(text, beside, data.draw(st.sampled_from(PLACES)))
    written = data.draw(st.sampled_from([*WRITTEN.values()]))(args)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(written) - 1)), max_size=20)))
    parts = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert "".join(read(parts)) == (text if isinstance(text, str) else "")


@each_row("of_what_is_no_json_nothing_is_told_behind_the_fault", "written", "told")
def test_of_what_is_no_json_nothing_is_told_behind_the_fault(written: str, told: str) -> None:
    """G1: no text after the JSON fault is streamed."""
    assert "".join(read(pieces(written, 1))) == told


def test_a_call_without_the_argument_ends_with_its_object() -> None:
    """G1: the text of the next call is not held back by a call that has none."""
    argument = Argument()
    assert [argument.read(part) for part in ('{"path": "a', '.txt"', "}")] == ["", "", ""]
    assert argument.is_over


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_end_of_a_very_long_call_may_wait_for_the_whole_call(place: str) -> None:
    """G1: long arguments are not parsed with each piece."""
    beside = {"content": "line of code\n" * 20_000}
    written = json.dumps(placed("Here it is.", beside, place))
    told = "".join(read(pieces(written, 4)))
    assert told == ("Here it is." if place == "first" else "")


@given(st.text(), st.lists(st.text().filter(str.strip), min_size=1, max_size=3))
def test_what_is_said_beside_calls_can_be_taken_apart_again(content: str, texts: list[str]) -> None:
    """G1: content and `to_user` texts can be separated again for the model that wrote them."""
    assert split_texts(join_texts(content, texts), texts) == (
        content.rstrip() if content.strip() else ""
    )


# Thoughts


HM = "Hm, let me see."


async def listened(chunks: list[AIMessageChunk], **options: Any) -> tuple[str, str]:
    """Return the thought and the text that are streamed for a message in these pieces."""
    told: dict[str, dict[str, str]] = {}

    def tell(what: str, text: str, answer: str) -> None:
        told.setdefault(answer, {}).setdefault(what, "")
        told[answer][what] += text

    tokens = Tokens(tell, lambda: HeardText(None, "Ann"), **options)

    class Chunks(ScriptedChatModel):
        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            for one in chunks:
                yield ChatGenerationChunk(message=one)

    await Chunks(script=[]).ainvoke("Hi.", config={"callbacks": [tokens]})
    last = list(told.values())[-1] if told else {}
    return last.get("thought", ""), last.get("token", "")


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from(
        [
            f"<think>{HM}</think>Yes, `<think>` it is.",
            f"{HM}</think>\n\nYes, `<think>` it is.",
            f" <thinking>{HM}</thinking> Yes, `<think>` it is.",
            f"<reasoning>{HM}</reasoning>Yes, `<think>` it is.",
            f"<seed:think>{HM}</seed:think>Yes, `<think>` it is.</s>",
            f"◁think▷{HM}◁/think▷Yes, `<think>` it is.<|im_end|>\n",
            f"<think>{HM}</think>Yes, `<think>` it is.<|eot_id|><|eot_id|>",
            f"<|channel|>analysis<|message|>{HM}<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Yes, `<think>` it is.<|return|>",
            f"{HM}<|end|><|start|>assistant<|channel|>final<|message|>Yes, `<think>` it is.",
        ]
    ),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    is_unopened=st.booleans(),
)
async def test_r2_any_chunking_tells_the_same(
    text: str, sizes: list[int], is_unopened: bool
) -> None:
    chunks: list[AIMessageChunk] = []
    rest = text
    while rest:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(AIMessageChunk(content=rest[:size]))
        rest = rest[size:]
    assert await listened(chunks, is_unopened=is_unopened) == (HM, "Yes, `<think>` it is.")


async def test_r2_a_field_is_told_before_the_tokens() -> None:
    words = [
        AIMessageChunk(content="", additional_kwargs={"reasoning": one}) for one in ("Hm, ", HM)
    ]
    assert await listened([*words, AIMessageChunk(content="Yes.")]) == (f"Hm, {HM}", "Yes.")


async def test_r2_blocks_are_told_before_the_tokens() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm, ", "index": 0},
        {"type": "thinking", "thinking": "let me see.", "index": 0},
        {"type": "thinking", "signature": "s", "index": 0},
        {"type": "text", "text": "Yes", "index": 1},
        {"type": "text", "text": ".", "index": 1},
    ]
    assert await listened([AIMessageChunk(content=[block]) for block in blocks]) == (HM, "Yes.")
