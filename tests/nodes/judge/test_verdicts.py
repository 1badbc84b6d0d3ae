"""Verdicts as models write them (R4, R17): the first word of a verdict's line decides."""

import pytest
from hypothesis import given, strategies as st

from corpus.reading import rows
from duologue.graphs.text.names import read_name
from duologue.nodes.judge.verdicts_in_words import read_lines, yes_or_no
from support.tables import each_row

CRITERIA = ("They agree on a plant.", "A price is named.")
READINGS = {"complete": True, "not_complete": False, "unreadable": None}


@pytest.mark.parametrize("kind", READINGS)
def test_r4_a_yes_or_no_counts_whatever_follows(kind: str) -> None:
    found = {text: yes_or_no(text) for text in rows("verdicts", kind)}
    assert found == dict.fromkeys(found, READINGS[kind])


@each_row("a_verdict_is_read_as_a_word_never_as_a_substring")
def test_a_verdict_is_read_as_a_word_never_as_a_substring(text: str, read: bool | None) -> None:
    assert yes_or_no(text) is read


@each_row("each_criterion_is_read_by_the_first_word_of_its_line")
def test_each_criterion_is_read_by_the_first_word_of_its_line(
    text: str, read: list[str] | None
) -> None:
    expected = None if read is None else dict(zip(CRITERIA, read, strict=True))
    assert read_lines(text, CRITERIA) == expected


@given(st.text())
def test_r4_reading_a_verdict_never_fails(text: str) -> None:
    assert yes_or_no(text) in (True, False, None)
    read_lines(text, (text, "A price is named."))
    read_name(text, ("Ann", "Bob"))


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" .,;!。、*_`«»“”\t", max_size=4))
def test_r4_signs_around_the_word_change_nothing(word: str, signs: str) -> None:
    assert yes_or_no(f"{signs}{word}{signs}") is (word == "yes")
