"""Verdicts that take back what they say: conditional ones, partial ones, and those that go on.

Pure functions. The phrases are in ``phrases.toml``. If they are not sure, a verdict is doubtful:
asked once more, a judge that is sure says so.
"""

import re
from collections.abc import Sequence, Set
from typing import Final

from ...graphs.text.phrases import Doubts, phrases, words_of

_ENDS: Final = re.compile(r"(?<!\d)[.!?]+|[.!?]+(?!\d)")
"""The end of a sentence, but for the point in a number."""

_CLAUSE_ENDS: Final = re.compile(r"[,;:()\[\]—…|\"“”«»،]|\s-+\s")
_LONGEST: Final = 8
"""The most words of a phrase."""


def is_doubtful(rest: str, *, is_yes: bool) -> bool:
    """Return whether a good verdict is doubtful by its first sentence.

    Args:
        rest: The rest of the verdict's line.
        is_yes: Whether the verdict is a "yes". The word "met" may be followed by its occasion, as
            in "met on Friday".
    """
    known = phrases().doubts
    sentence = next(filter(words_of, _ENDS.split(rest)), "")
    clauses = [words for clause in _CLAUSE_ENDS.split(sentence) if (words := words_of(clause))]
    if not clauses:
        return False
    is_topical = is_yes and rest.startswith(" ") and _is_about_a_part(clauses[0], known)
    return is_topical or any(_is_doubtful_clause(words, known) for words in clauses)


def _is_about_a_part(words: Sequence[str], known: Doubts) -> bool:
    return len(words) > 1 and words[0] in known.topics and words[1] not in known.whole


def _is_doubtful_clause(words: Sequence[str], known: Doubts) -> bool:
    said = words[1:] if len(words) > 1 and words[0] in known.joins else words
    harmless = {place for place in range(len(words)) if _begins(words[place:], known.harmless)}
    if any(_begins(words[at:], known.conditions) for at in {*range(len(words))} - harmless):
        return True
    if _begins(words, known.partly) and 0 not in harmless:
        return True
    if _begins(said, known.denied):
        return True
    denied = next((at for at, word in enumerate(words) if word in known.denials), len(words))
    if denied > 0 and _ends(words, known.denied_last):
        return True
    # "Nothing is left", and "no need to go on".
    return any(_begins(words[at:], known.left | known.going_on) for at in range(denied))


def _begins(words: Sequence[str], known: Set[tuple[str, ...]]) -> bool:
    return any(tuple(words[:size]) in known for size in range(1, _LONGEST + 1))


def _ends(words: Sequence[str], known: Set[tuple[str, ...]]) -> bool:
    return any(tuple(words[-size:]) in known for size in range(1, _LONGEST + 1))
