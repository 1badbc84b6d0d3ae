"""R2: a model's thoughts inside its text are separated from its message, even in pieces."""

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings, strategies as st

from duologue.graphs.text.done_words import Match, settled, without
from duologue.graphs.text.spellings import unify
from duologue.graphs.text.thoughts import ThoughtReader, split, thoughts
from support.cases import drawn_cases
from support.tables import each_row, read_rows

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"


@each_row("split")
def test_r2_thought_is_told_from_speech(text: str, speech: str, thought: str | None) -> None:
    read = split(text)
    assert read.speech == speech
    if thought is not None:
        assert read.thought == thought


@pytest.mark.part(40)
@pytest.mark.parametrize("text", [row["text"] for row in read_rows(__file__, "split")])
def test_r2_the_same_is_told_piece_by_piece(text: str) -> None:
    for size in range(1, len(text) + 1):
        assert_same(text, [text[at : at + size] for at in range(0, len(text), size)])


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "</thinking>", "<", "think>"),
        *("<reasoning>", "</reasoning>", "◁think▷", "◁/think▷", "<seed:think>", "◁", "reasoning>"),
        *(ANALYSIS, FINAL, CALL, "<|channel|>", "<|message|>", "<|start|>", "final", "|>"),
        *("<|end|>", "<|return|>", "<|im_end|>", "</s>", "<s>", "<|eot_id|>"),
        *("`", "``", "```", "```\n", "~~~\n", "\n", " ", "a", "b c", "- ", "###", "STOP", "!"),
    ]
)


@drawn_cases(40, 6000, text=st.lists(PIECES, max_size=16).map("".join), data=st.data())
def test_r2_any_cut_of_any_text_is_told_alike(text: str, data: st.DataObject) -> None:
    places = st.integers(0, len(text))
    cuts = [0, *sorted(data.draw(st.lists(places, max_size=8))), len(text)]
    assert_same(text, [text[a:b] for a, b in pairwise(cuts)])


def assert_same(text: str, pieces: list[str]) -> None:
    whole, reader, told = split(text), ThoughtReader(), ""
    found = [reader.take(piece) for piece in pieces]
    for one in [*found, reader.take("", is_over=True)]:
        told = one.speech if one.anew else told + one.speech
    assert told == reader.speech == whole.speech
    assert reader.thought == whole.thought


def test_r2_what_may_be_a_tag_is_held_back() -> None:
    reader = ThoughtReader()
    assert reader.take("So <").speech == "So "
    assert reader.take("thin").speech == ""
    assert reader.take("gs>").speech == "<things>"
    assert reader.take(" <think>").speech == " "
    assert reader.take("My secret is 42.").speech == ""
    assert reader.take("</think").speech == ""
    assert reader.take(">Yes").speech == "Yes"


def test_r2_what_an_unopened_thought_has_told_is_taken_back() -> None:
    reader = ThoughtReader()
    assert reader.take("My secret").speech == "My secret"
    found = reader.take("</think>Yes")
    assert (found.speech, found.anew, reader.is_unopened) == ("Yes", True, True)


@pytest.mark.parametrize("text", ["My secret is 42.</think>Yes", "<think>Hm.</think>Yes", "Yes"])
def test_r2_where_an_unopened_thought_is_expected_nothing_is_told_before_it_is_closed(
    text: str,
) -> None:
    reader = ThoughtReader(is_unopened=True)
    told = [reader.take(letter) for letter in text]
    told.append(reader.take("", is_over=True))
    assert "".join(one.speech for one in told) == "Yes"
    assert not any(one.anew for one in told)


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "piece",
    [
        *("<think>", "</think>", "<", "`<think>` ", "`<think>`</think>", "```\n<think>\n"),
        *("```\n```\n<think>a</think>\n", "<think>a</think> b ", "a\n`<think>\n"),
        *("<|end|>", "<|start|>", "<|start|>a", "<|channel|>a", "</s>", "</s> a", ANALYSIS, FINAL),
        *(f"{ANALYSIS}a<|end|>{FINAL}b<|end|>", "a <think> b ", "◁think▷", "◁", "<s></s>"),
    ],
)
def test_r2_a_huge_text_is_split_in_linear_time(piece: str) -> None:
    huge = piece * (50_000 // len(piece))
    assert len(split(huge).speech) + sum(end - start for start, end in thoughts(huge)) == len(huge)


def test_r2_what_is_not_thought_keeps_its_place() -> None:
    text = "<think>Hm.</think>\nSo. <think>Yes.</think> Ready."
    assert [text[start:end] for start, end in thoughts(text)] == [
        "<think>Hm.</think>\n",
        "<think>Yes.</think> ",
    ]


TOKENS: list[tuple[str, Match]] = [
    ("###STOP###", "last"),
    ("###STOP###", "alone"),
    ("STOP", "alone"),
    ("STOP", "anywhere"),
    ("<STOP_IT>", "last"),
]


@example(". `###STOP###```\n", ("###STOP###", "last"), 1)
@example("STOP_ITS\u0301TOP", ("STOP", "anywhere"), 1)
@example("###STOP######STOP###...###STOP###", ("###STOP###", "last"), 1)
@example('Stop`", ####STOP###. "Thank you', ("STOP", "anywhere"), 1)
@settings(max_examples=400)
@given(
    st.lists(
        st.sampled_from(
            [
                *("###STOP###", "STOP", "###", "#", "S", "TOP", "**", "\n", " ", ". ", "! "),
                *('"', "`", "Thank you", "so ", "```\n", "> ", "stop", "Stop", "Ann: ", "Ann", ":"),
                *("<b>", "</b>", "<br>", "</code>", "\uff03" * 3, "S\u0301TOP", "cafe\u0301"),
                *("👋", "(", ")", ", ", " - ", "...", "?", ":)", "<", ">", "STOP_IT", "I say "),
            ]
        ),
        max_size=12,
    ).map("".join),
    st.sampled_from(TOKENS),
    st.integers(1, 5),
)
def test_r2_no_part_of_a_done_token_is_told_before_it_is_known(
    text: str, token: tuple[str, Match], size: int
) -> None:
    word, match = token
    heard, known = without(word, text, match, "Ann"), 0
    for end in range(0, len(text) + 1, size):
        known = settled(word, text[:end], match, known, "Ann")
        # The streamed text is the beginning of the heard text.
        assert heard.startswith(text[:known])


@pytest.mark.parametrize("piece", ["Voilà le café. ", "<b>Hello</b> &amp; you. ", "###STO "])
def test_r2_a_long_line_that_arrives_in_pieces_is_read_in_linear_time(piece: str) -> None:
    text, known = piece * 2_000, 0
    with patch("duologue.graphs.text.done_words.unify", wraps=unify) as unified:
        for end in range(0, len(text), len(piece)):
            known = settled("###STOP###", text[:end], "last", known, "Ann")
    assert known > len(text) - 50
    assert sum(len(call.args[0]) for call in unified.call_args_list) < 50 * len(text)
