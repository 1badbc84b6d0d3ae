"""Texts of so many words, and phrases among words. Pure functions."""

import re
from collections.abc import Sequence
from functools import lru_cache

# Scripts without spaces: about so many letters make a word.
_DENSE = (
    (re.compile(r"[\u3005\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 2),
    (re.compile(r"[\u3040-\u30ff]"), 3),
    (re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), 5),
)

_END = re.compile(r"[.!?](?=\s|$)|[。！？]")  # noqa: RUF001


def words_in(text: str) -> float:
    """Count the words of a text; letters make words where spaces do not."""
    words = 0.0
    for letters, per_word in _DENSE:
        text, count = letters.subn(" ", text)
        words += count / per_word
    return words + len(text.split())


def cut(text: str, limit: int) -> str:
    """Cut text to a number of words, at the end of a sentence where there is one."""
    if words_in(text) <= limit:
        return text
    kept, left = "", float(limit)
    for word in text.split():
        length = words_in(word)
        if length > left:
            kept = f"{kept} {_begin(word, left)}".strip()
            break
        kept, left = f"{kept} {word}".strip(), left - length
    ends = [found.end() for found in _END.finditer(kept)]
    return kept[: ends[-1]] if ends else kept


def _begin(word: str, limit: float) -> str:
    """What of a word that is a whole text, in a script without spaces, is not too long."""
    sizes = range(len(word), 0, -1)
    return next((word[:size] for size in sizes if words_in(word[:size]) <= limit), "")


def phrase_length(words: Sequence[str], place: int, phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase that begins at a place, or 0."""
    sizes = range(min(_longest(phrases), len(words) - place), 0, -1)
    return next((size for size in sizes if (*words[place : place + size],) in phrases), 0)


def last_phrase_length(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase that some words end with, or 0."""
    sizes = range(min(_longest(phrases), len(words)), 0, -1)
    return next((size for size in sizes if (*words[-size:],) in phrases), 0)


def has_phrase(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> bool:
    """Return whether some words contain one of these phrases."""
    return any(phrase_length(words, place, phrases) for place in range(len(words)))


@lru_cache
def _longest(phrases: frozenset[tuple[str, ...]]) -> int:
    return max(map(len, phrases), default=0)
