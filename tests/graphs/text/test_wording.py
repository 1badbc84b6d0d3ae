"""Wording: blank messages, done tokens, farewells, repetitions, names and counts of words."""

# Texts are typed as people and models type them.
# ruff: noqa: RUF001

import re
import sys
import tomllib
from collections import Counter
from importlib.resources import files

import pytest
from hypothesis import given, strategies as st

from corpus.reading import rows
from duologue.graphs.text.done_words import says
from duologue.graphs.text.names import read_name
from duologue.graphs.text.sentences import is_farewell
from duologue.graphs.text.similarity import (
    Texts,
    all_repeat,
    is_blank,
    is_equal,
    is_same,
    is_same_move,
    is_short,
    plain,
)
from duologue.graphs.text.words import cut, words_in
from support.cases import drawn_cases, thorough
from support.tables import each_row, read_rows

MARKS = ("Instruction:", "Input:", "Solution:", "Next request.")

BLANK = [*read_rows(__file__, "blank"), "\ud800"]
NOT_BLANK = read_rows(__file__, "not_blank")

FAREWELLS = rows("farewells", "farewells")
NOT_FAREWELLS = [*rows("farewells", "others"), "\ud800"]

TEXT = st.text(st.characters(), max_size=80)
"""Any text, lone surrogates too."""
TALK = st.lists(st.sampled_from([*FAREWELLS, *NOT_FAREWELLS, *BLANK, *NOT_BLANK]), max_size=4).map(
    " ".join
)
ANY = TEXT | TALK


@pytest.mark.parametrize("text", BLANK)
def test_blank_is_what_says_nothing(text: str) -> None:
    assert is_blank(text)
    assert not is_farewell(text)


@pytest.mark.part(40)
@pytest.mark.parametrize("text", [*NOT_BLANK, *FAREWELLS])
def test_a_letter_a_number_or_an_emoji_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@each_row("said")
def test_a_token_is_said_alone_on_a_line(text: str) -> None:
    assert says("STOP", text)


@each_row("not_said")
def test_a_token_is_not_said_among_other_words(text: str) -> None:
    assert not says("STOP", text)


@pytest.mark.parametrize("token", ["*_*", "**", "~", "'x'", "`done`"])
def test_a_token_may_be_made_of_decoration(token: str) -> None:
    assert says(token, token)
    assert says(token, f"Fine.\n  {token}")


@pytest.mark.part(40)
@pytest.mark.parametrize("text", FAREWELLS)
def test_thanks_farewells_and_pleasantries_are_farewells(text: str) -> None:
    assert is_farewell(text, ("Bob",))
    assert is_farewell(text.upper(), ("Bob",))
    assert is_farewell(f"**{text}**", ("Bob",))
    assert is_farewell(text.replace("'", "’"), ("Bob",))


@each_row("marked_farewells")
def test_marks_do_not_hide_a_farewell(text: str) -> None:
    assert is_farewell(text, (), MARKS)
    assert not is_farewell(text)


@each_row("marked_others")
def test_marks_alone_are_no_farewell(text: str) -> None:
    assert not is_farewell(text, (), MARKS)


def test_names_are_filler_whatever_they_are_made_of() -> None:
    assert is_farewell("Goodbye, Agent 2!", ("Agent 2",))
    assert not is_farewell("Goodbye, Agent 2!", ("Agent",))
    assert is_farewell("Thanks, trader!", ("Stock Trader",))
    assert is_farewell("Bye, *_Max_*!", ("*_Max_*", "", "("))
    assert is_farewell("さん, thank you!", ("さん",))
    assert not is_farewell("Goodbye, Carla!", ("Bob",))
    assert not is_farewell("Bob", ("Bob",))


@pytest.mark.parametrize("name", ["A", "I", "You", "Great", "Day", "Have a", "The", "It"])
def test_r7_a_name_that_is_a_word_of_a_phrase_hides_no_farewell(name: str) -> None:
    for text in ("Have a great day!", "You're welcome!", "I appreciate it.", "It was a pleasure!"):
        assert is_farewell(text, (name, "Bob"))
        assert is_farewell(f"{text} Bye, {name}!", (name, "Bob"))
    assert not is_farewell("Have a look at the parser.", (name, "Bob"))


def test_r22_reading_a_message_takes_few_calls_however_long_it_is() -> None:
    prose = "We write the parser first, since all other parts depend on it. Then come tests. "
    farewell = "Thank you so much for your help, Bob! No, that's all I needed. Goodbye! "
    assert max(calls_of(prose * 100), calls_of(prose)) <= 11
    assert calls_of(farewell) <= 30
    assert calls_of(farewell * 20) <= 20 * calls_of(farewell)


def calls_of(text: str) -> int:
    """Return the number of Python functions called to read a message."""
    calls = Counter[str]()
    is_farewell(text, ("Bob",), MARKS)  # Fill the caches of phrases, names and marks.
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        is_farewell(text, ("Bob",), MARKS)
    finally:
        sys.setprofile(None)
    return calls["call"]


def test_r22_each_language_has_every_part_of_a_closing_and_phrases_without_nested_brackets() -> (
    None
):
    text = (files("duologue.graphs.text") / "courtesies.toml").read_text(encoding="utf-8")
    languages = tomllib.loads(text)["languages"]
    assert len({each["name"] for each in languages}) == 16
    fields = {"name", "fillers", "filler_words", "stops", "sign_offs"}
    fields |= {"thanks", "closing", "courtesies"}
    for each in languages:
        assert set(each) <= fields
        assert set(each["closing"]) - {"assents"} == {"negations", "openers", "answers", "tail"}
        assert all({"openers", "tail"} <= set(one) for one in each["courtesies"])
        known = {"openers", "tail", "topic", "prefixes"}
        assert all(set(one) <= known for one in each["courtesies"])
    assert not re.search(r'\([^()"\n]*\(|\)[^()"\n]*\)', text.partition("[[languages]]")[2])


@each_row("same")
def test_the_same_in_other_clothes_is_the_same(one: str, other: str) -> None:
    assert is_same(one, other)
    assert is_same(other, one)


@each_row("not_same")
def test_a_short_reply_or_another_move_is_not_the_same(one: str, other: str) -> None:
    assert not is_same(one, other)
    assert not is_same(other, one)


@drawn_cases(
    30,
    300,
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    text
                    for pair in ("same", "not_same")
                    for row in read_rows(__file__, pair)
                    for text in row.values()
                ]
            )
            | ANY,
            st.sampled_from(["", " ", "s", "!", " not", " 7", " `a`", " Ben", '"a"']),
            st.sampled_from([1, 1, 1, 400]),
        ),
        max_size=20,
    ),
)
def test_those_that_are_the_same_are_found_among_many(parts: list[tuple[str, str, int]]) -> None:
    texts, many = [f"{text * times}{end}" for text, end, times in parts], Texts()
    for number, text in enumerate(texts):
        assert set(many.same_as(text)) == {one for one in texts[:number] if is_same(one, text)}
        many.add(text)


def test_equal_texts_are_equal_though_short() -> None:
    assert is_equal("Lower.", "**lower**")
    assert not is_equal("Lower.", "Higher.")
    assert not is_equal("It is 1.5", "It is 15")


@drawn_cases(30, 300, ANY)
def test_no_text_is_too_strange(text: str) -> None:
    is_blank(text)
    is_farewell(text, (text, text[:3]), (text[1:], "a:"))
    says(text, text)
    plain(text)


@given(ANY, ANY)
def test_is_same_is_symmetric(one: str, other: str) -> None:
    assert is_same(one, other) == is_same(other, one)
    near = f"{one} {other}"
    assert is_same(one, near) == is_same(near, one)


@given(ANY)
def test_a_text_is_the_same_as_itself_unless_it_is_short(text: str) -> None:
    assert is_same(text, text) != is_short(text)
    assert is_equal(text, text)


@given(TEXT | TALK, st.characters(categories=["Nd"]), st.sampled_from(FAREWELLS))
def test_what_holds_a_digit_is_no_farewell(text: str, digit: str, farewell: str) -> None:
    assert not is_farewell(f"{text}{digit} {farewell}")
    assert not is_farewell(f"{farewell} {digit}{text}")


@given(st.lists(st.sampled_from(FAREWELLS), min_size=1, max_size=5))
def test_farewells_in_a_row_are_a_farewell(texts: list[str]) -> None:
    # A signature ends a message, so the next farewell begins another paragraph.
    whole = "\n\n".join(text for text in texts if "\n" not in text) or "Bye"
    assert is_farewell(whole, ("Bob",))


@given(ANY, st.sampled_from(NOT_FAREWELLS[:2]))
def test_content_is_never_hidden_by_what_stands_before_it(text: str, content: str) -> None:
    assert not is_farewell(f"{text}\n{content}")


PIECES = (
    *("a", "a ", "thank you ", "thank you zzz ", "thank you for you ", "bye. ", "`", '"', "[name"),
    *("1-", "\ud800", "\n", ">", "-", "“", "dr. ", "*", "好"),
)


@pytest.mark.part(4)
@pytest.mark.parametrize("piece", PIECES)
@thorough
def test_huge_texts_are_no_trouble(thorough: bool, piece: str) -> None:
    """Rules take linear time; any other rule would reach the time limit of a test."""
    huge = piece * (50_000 if thorough else 20_000)
    is_blank(huge)
    is_farewell(huge, ("Bob", "[name"), MARKS)
    says(piece, huge)
    text = f"here is a long one {huge}"
    assert is_same(text, text)
    is_same(text, f"So {text}")


@each_row("copies")
def test_a_copy_has_several_words_of_a_request(text: str, request: str, copied: bool) -> None:
    assert all_repeat(text, request) is copied


@each_row("moves")
def test_moves_of_a_game_differ_in_their_numbers_and_options(
    one: str, other: str, same: bool
) -> None:
    assert is_same_move(one, other) is same
    assert is_same_move(other, one) is same


# Names of speakers as models write them

NAMES = ("Reviewer", "Coder", "Senior Coder")
LAST = ("Planner",)
"""The speaker of the last turn, who can't be chosen."""


@each_row("choices")
def test_an_answer_that_names_one_speaker_is_read(text: str, name: str | None) -> None:
    """R30: an answer in any accepted form names a speaker, and an ambiguous one names none."""
    assert read_name(text, NAMES, LAST) == name


@each_row("numbers")
def test_a_number_is_read_if_the_prompt_numbers_the_names(text: str, name: str | None) -> None:
    """A number with two meanings, or of a speaker who can't be chosen, is unreadable."""
    listed = "You choose.\n1. Planner\n2. Coder (writes)\n- 3) Senior Coder\n4. Coder\n4. Reviewer"
    assert read_name(text, NAMES, LAST, listed=listed) == name


@each_row("unusual")
def test_unusual_names_are_read_whole(text: str, name: str | None) -> None:
    """Names that differ only in marks or case must be written exactly."""
    unusual = ("C", "C++", "小明", "小红", "Dr. Smith", "Smith", "O'Brien", "José", "🤖", "Ann")
    assert read_name(text, (*unusual, "ann", "Agent 1", "Agent 12")) == name


# Texts of so many words


@each_row("counts")
def test_r8_letters_make_words_where_spaces_do_not(text: str, words: float) -> None:
    assert words_in(text) == pytest.approx(words, abs=0.2)


@each_row("cuts")
def test_r8_a_text_is_cut_to_words_at_a_sentences_end(text: str, limit: int, kept: str) -> None:
    assert cut(text, limit) == kept


@given(st.text(alphabet="ab 。.我们ひらสว\n", max_size=60), st.integers(1, 12))
def test_r8_what_is_cut_has_at_most_so_many_words(text: str, limit: int) -> None:
    assert words_in(cut(text, limit)) <= limit
