"""Texts of so many words (R8, Z2)."""

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.text.words import cut, words_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("one two - three", 4),
        ("计划花园" * 110, 220),
        ("ひらがな です", 2),
        ("GPT模型", 2),
        ("สวนผัก สวย", 2),
    ],
)
def test_r8_letters_make_words_where_spaces_do_not(text: str, words: float) -> None:
    assert words_in(text) == pytest.approx(words, abs=0.2)


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("One two. Three four.", 4, "One two. Three four."),
        ("One two. Three four.", 3, "One two."),
        ("One two three", 2, "One two"),
        ("我们计划花园。然后种树。", 5, "我们计划花园。"),
        ("我们计划花园然后种树", 3, "我们计划花园"),
        ("Plan 我们的花园吧", 2, "Plan 我们"),
    ],
)
def test_r8_a_text_is_cut_to_words_at_a_sentences_end(text: str, limit: int, kept: str) -> None:
    assert cut(text, limit) == kept


@given(st.text(alphabet="ab 。.我们ひらสว\n", max_size=60), st.integers(1, 12))
def test_r8_what_is_cut_has_at_most_so_many_words(text: str, limit: int) -> None:
    assert words_in(cut(text, limit)) <= limit
