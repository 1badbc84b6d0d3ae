"""Texts of so many words (R8, Z2)."""

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.text.words import cut, words_in
from support.tables import each_row


@each_row("counts")
def test_r8_letters_make_words_where_spaces_do_not(text: str, words: float) -> None:
    assert words_in(text) == pytest.approx(words, abs=0.2)


@each_row("cuts")
def test_r8_a_text_is_cut_to_words_at_a_sentences_end(text: str, limit: int, kept: str) -> None:
    assert cut(text, limit) == kept


@given(st.text(alphabet="ab 。.我们ひらสว\n", max_size=60), st.integers(1, 12))
def test_r8_what_is_cut_has_at_most_so_many_words(text: str, limit: int) -> None:
    assert words_in(cut(text, limit)) <= limit
