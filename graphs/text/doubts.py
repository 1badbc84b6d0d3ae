"""Doubts about a judge's "yes" or "met": clauses that deny, restrict, postpone or demand.

``doubts.toml`` contains the clauses as regular expressions. Pure functions.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Final

from .phrases import load_table, load_words
from .sentences import is_farewell
from .words import APOSTROPHES, DENSE, fold, words_in, words_of

_SENTENCE_END: Final = re.compile(r"(?<!\d)[.!?。！？]+|[.!?。！？]+(?!\d)|\n")  # noqa: RUF001
"""The end of a sentence, except the point in a number."""
_CLAUSE_END: Final = re.compile(
    r"[,;:()\[\]—…|\"“”«»،、，；：]|\s-+\s|\band\b"  # noqa: RUF001
)
_SHORT_WILL: Final = re.compile(rf"[{APOSTROPHES}]ll\b")
_SPACE_IN_DENSE: Final = re.compile(rf"(?<={DENSE}) (?={DENSE})")
_FRAGMENT: Final = 3
_DENSE_FRAGMENT: Final = 2.5
"""Maximum number of words of a fragment, and of one in a script without spaces."""
_FEW: Final = 4
"""Maximum number of words of a clause that names only a part, as in "for the day"."""


@cache
def _pattern(*names: str) -> re.Pattern[str]:
    """Return a pattern for the clauses in some entries of the file."""
    entries = chain.from_iterable(load_table("doubts.toml")[name] for name in names)
    # Words of a script without spaces may touch others.
    return re.compile(
        "|".join(
            entry if re.search(DENSE, entry) else rf"(?<![^ ])(?:{entry})(?![^ ])"
            # Names of groups begin with a capital P.
            for entry in (fold(one).replace("(?p", "(?P") for one in entries)
        )
    )


def is_doubtful(rest: str, *, is_yes: bool) -> bool:
    """Return whether the text after a "yes" or "met" makes it doubtful.

    Args:
        rest: The text directly after the word.
        is_yes: Whether the word is "yes". Then all sentences count, and a question or a clause
            that denies, restricts, postpones or demands anything makes it doubtful. After "met",
            which may be followed by its occasion, only the first sentence counts, and in it only
            conditions, denied parts and remaining work.
    """
    sentences = [one for one in _SENTENCE_END.split(rest) if words_of(one)]
    if is_yes and ("?" in rest or (sentences and _is_of_part(sentences[0]))):
        return True
    doubts = _pattern("both", "yes") if is_yes else _pattern("both")
    return any(
        doubts.search(_pattern("harmless").sub(" ", clause).strip())
        for sentence in sentences[: None if is_yes else 1]
        for clause in _clauses_of(sentence)
    )


def is_vague(rest: str) -> bool:
    """Return whether the first clause after a "yes" is a fragment that may mean no.

    Examples are "half done" and "in two days". A clause of two or three words must contain a
    completion, an affirmation or a verb.
    """
    clauses = (one for part in _SENTENCE_END.split(rest) for one in _clauses_of(part))
    clause = next(filter(None, clauses), "")
    limit = _DENSE_FRAGMENT if re.search(DENSE, clause) else _FRAGMENT
    is_name = limit == _FRAGMENT and " " not in clause
    return not is_name and words_in(clause) <= limit and _pattern("clear").search(clause) is None


def _is_of_part(sentence: str) -> bool:
    """Return whether a sentence begins by naming the only part of the task that is complete."""
    words = words_of(_CLAUSE_END.split(sentence.lstrip(" ,;:-—"), maxsplit=1)[0])
    topics, whole = (load_words("doubts.toml", name) for name in ("topics", "whole"))
    is_near = sentence[:1] == " " or len(words) <= _FEW
    return is_near and len(words) > 1 and words[0] in topics and words[1] not in whole


def _clauses_of(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence that are no courtesies, as folded words."""
    if is_farewell(sentence):
        return
    for clause in _CLAUSE_END.split(_SHORT_WILL.sub(" will", sentence).replace("%", " percent")):
        if not is_farewell(clause):
            yield _SPACE_IN_DENSE.sub("", " ".join(words_of(clause)))
