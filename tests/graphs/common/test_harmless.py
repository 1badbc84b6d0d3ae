"""Foreign text for a terminal: control characters, and errors of any length."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from duologue.graphs import (
    AnswerError,
    ContextTooLongError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
    converse,
    load_conversation,
)
from duologue.graphs.common.sanitize import (
    LONGEST,
    clean,
    dump_exact_json,
    escape_invisible,
    escape_json,
)
from duologue.graphs.session.dump import DUMP_VERSION, read_dump
from duologue.nodes.testing import ScriptedChatModel

CONTROLS = {
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    *"\u061c\u200e\u200f\u2028\u2029",
}

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a\x9b\x7f"), inner),
    max_leaves=5,
)


@given(value=JSON)
def test_escaped_json_is_read_back_the_same_and_holds_no_control_character(value: object) -> None:
    text = escape_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert {*CONTROLS, "\u2028", "\u2029"}.isdisjoint(text)


@given(value=JSON)
def test_exact_json_is_read_back_the_same_and_has_nothing_invisible(value: object) -> None:
    for indent in (None, 2):
        text = dump_exact_json(value, indent)
        assert json.loads(text) == value
        assert escape_invisible(text, keep="\n") == text
        assert CONTROLS.isdisjoint({*text} - {"\n"})


@given(text=st.text())
def test_what_is_escaped_is_visible_and_is_not_escaped_once_more(text: str) -> None:
    exact = escape_invisible(text)
    assert exact.isprintable()
    assert escape_invisible(exact) == exact
    assert clean(clean(text)) == clean(text)
    assert (CONTROLS - {"\n", "\t"}).isdisjoint(clean(text))


def test_every_character_that_nobody_sees_is_escaped_and_no_other() -> None:
    unseen = "\n\t\r\x1b\x9b\xa0\xad\u034f\u115f\u180e\u200b\u200d\u2028\u202e\u2066\u2800\u3000"
    for one in f"{unseen}\u3164\ufe0f\ufeff\uffa0\ue000\uffff\ud800\U000e0041\U000e0100":
        assert escape_invisible(one) in (
            *(f"\\{sign}" for sign in "ntr"),
            *(f"\\{form % ord(one)}" for form in ("x%02x", "u%04x", "U%08x")),
        )
    seen = "plain 'text' \\x1b é e\u0301 שלום سلام नमस्ते 漢字 ไทย 👩🏽 €"
    assert escape_invisible(seen) == seen


def test_what_is_read_keeps_the_joiners_of_languages_and_emoji() -> None:
    text = "می\u200cخواهم 👩\u200d💻 ❤\ufe0f नमस्\u200dते ไทย\u200bไทย"  # noqa: RUF001
    assert clean(text) == text


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "kind",
    [DuologueError, SpecError, ModelError, AnswerError, StoreError, SessionError],
)
@given(quoted=st.text(max_size=30), times=st.integers(0, 9000))
def test_an_error_is_short_and_harmless_whatever_it_quotes(
    kind: type[DuologueError], quoted: str, times: int
) -> None:
    text = f"The field {quoted * times}: mend it."
    said = str(kind(text))
    assert len(said) <= LONGEST
    assert (CONTROLS - {"\t"}).isdisjoint(said)
    assert said.startswith("The field ")
    assert said.endswith(": mend it.")
    is_long = len(text) > LONGEST or len(clean(text)) > LONGEST
    assert (" characters left out] " in said) == is_long


def test_an_error_keeps_what_it_knows_beside_its_text() -> None:
    error = ContextTooLongError("too long\x9b", prompt_tokens=9, limit=8)
    assert (str(error), error.prompt_tokens, error.limit) == ("too long\\x9b", 9, 8)


def test_a_field_of_any_length_is_cut_in_its_error() -> None:
    given = {"task": "x", "speakers": PEOPLE, "end_chat": {"mode": "b" * 70_000}}
    with pytest.raises(SpecError, match=r"end_chat.mode: .* characters left out") as caught:
        load_conversation(given)
    assert len(str(caught.value)) <= LONGEST


def nested(levels: int) -> Any:  # noqa: ANN401
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def ends(levels: int) -> dict[str, Any]:
    """Return an end nested so many levels deep."""
    found: dict[str, Any] = {"kind": "done_token", "token": "X"}
    for _ in range(levels // 2):
        found = {"kind": "any", "of": [found, {"kind": "done_token", "token": "Y"}]}
    return found


PEOPLE = [{"name": "Ann"}, {"name": "Bob"}]
DEEP = [
    lambda levels: {"task": nested(levels), "speakers": PEOPLE},
    lambda levels: {"kind": nested(levels), "task": "x"},
    lambda levels: {"version": nested(levels), "task": "x"},
    lambda levels: {"kind": "role_play", "task": nested(levels)},
    lambda levels: {"mood": nested(levels)},
    lambda levels: {"task": "x", "speakers": PEOPLE, "end_chat": {"when": ends(levels)}},
]


@pytest.mark.parametrize("levels", [199, 250, 600, 950, 3000])
@pytest.mark.parametrize("make", DEEP)
def test_a_conversation_that_is_nested_too_deep_is_one_sentence(
    make: Any,  # noqa: ANN401
    levels: int,
    tmp_path: Path,
) -> None:
    conversation = make(levels)
    text = (
        json.dumps(make(0))
        .replace("[]", "[" * levels + "]" * levels)
        .replace(
            json.dumps(ends(0)),
            '{"kind": "any", "of": [' * (levels // 2) + json.dumps(ends(0)) + "]}" * (levels // 2),
        )
    )
    file, dump = tmp_path / "deep.json", tmp_path / "dump.json"
    file.write_text(text)
    dump.write_text(f'{{"format": "duologue.session", "version": {DUMP_VERSION}, "spec": {text}}}')
    for read, given_ in (
        (load_conversation, conversation),
        (load_conversation, file),
        (converse, conversation),
        (read_dump, dump),
        (read_dump, {"format": "duologue.session", "version": DUMP_VERSION, "spec": conversation}),
        (read_dump, {"format": conversation}),
    ):
        with pytest.raises(SpecError) as caught:
            read(given_)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= LONGEST


@pytest.mark.parametrize("levels", [250, 600, 3000])
def test_a_toml_file_that_is_nested_too_deep_is_one_sentence(levels: int, tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(f'task = "x"\nspeakers = {"[" * levels}{"]" * levels}')
    with pytest.raises(SpecError, match=r"deep\.toml: is nested too deeply; use"):
        load_conversation(file)


def test_the_deepest_ends_there_can_be_are_run(tmp_path: Path) -> None:
    talk = {"task": "x", "speakers": PEOPLE, "end_chat": {"when": ends(190)}}
    store = f"sqlite:///{tmp_path / 's.db'}"
    ended = converse(talk, session="one", model=ScriptedChatModel(script=["X", "X"]), store=store)
    assert ended.outcome is not None
    assert ended.outcome.reason.value == "done_token"
