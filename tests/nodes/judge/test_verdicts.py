"""Verdicts as models write them (R4, R17): the first word of a verdict's line decides."""

# Signs of many languages.

import pytest
from hypothesis import given, strategies as st

from corpus.reading import rows
from duologue.graphs.conversation.judges import Finding
from duologue.nodes.judge.verdicts_in_words import read_lines, yes_or_no
from support.tables import each_row


@pytest.mark.parametrize("text", rows("verdicts", "complete"))
def test_r4_a_yes_counts_whatever_follows(text: str) -> None:
    assert yes_or_no(text) is True


@pytest.mark.parametrize("text", rows("verdicts", "not_complete"))
def test_r4_a_no_counts_whatever_follows(text: str) -> None:
    assert yes_or_no(text) is False


@pytest.mark.parametrize("text", rows("verdicts", "unreadable"))
def test_r4_what_does_not_begin_with_a_verdict_is_unreadable(text: str) -> None:
    assert yes_or_no(text) is None


CRITERIA = ("They agree on a plant.", "A price is named.")


@each_row("r4_r17_the_first_word_of_a_criterions_line_decides")
def test_r4_r17_the_first_word_of_a_criterions_line_decides(
    text: str, read: tuple[Finding, ...] | None
) -> None:
    expected = None if read is None else dict(zip(CRITERIA, read, strict=True))
    assert read_lines(text, CRITERIA) == expected


@given(st.text())
def test_r4_reading_a_verdict_never_fails(text: str) -> None:
    assert yes_or_no(text) in (True, False, None)
    read_lines(text, (text, "A price is named."))


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" .,;!。、*_`«»“”\t", max_size=4))
def test_r4_signs_around_the_word_change_nothing(word: str, signs: str) -> None:
    assert yes_or_no(f"{signs}{word}{signs}") is (word == "yes")
