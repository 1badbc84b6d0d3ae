"""Verdicts that take back what they say: conditional ones, partial ones, and those that go on.

Pure functions. The phrases are in ``phrases.toml``. If they are not sure, a verdict is doubtful:
asked once more, a judge that is sure says so.
"""

import re
from collections.abc import Sequence
from typing import Final

from ...graphs.text.phrases import Doubts, phrases, words_of
from ...graphs.text.words import last_phrase_length, phrase_length

_ENDS: Final = re.compile(r"(?<!\d)[.!?]+|[.!?]+(?!\d)")
"""The end of a sentence, but for the point in a number."""

_CLAUSE_ENDS: Final = re.compile(r"[,;:()\[\]—…|\"“”«»،]|\s-+\s")


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
    harmless = {at for at in range(len(words)) if phrase_length(words, at, known.harmless)}
    if any(phrase_length(words, at, known.conditions) for at in {*range(len(words))} - harmless):
        return True
    if phrase_length(words, 0, known.partly) and 0 not in harmless:
        return True
    if phrase_length(said, 0, known.denied):
        return True
    denied = next((at for at, word in enumerate(words) if word in known.denials), len(words))
    if denied > 0 and last_phrase_length(words, known.denied_last):
        return True
    # "Nothing is left", and "no need to go on".
    phrases_of_more = (known.left, known.going_on)
    return any(phrase_length(words, at, some) for some in phrases_of_more for at in range(denied))
