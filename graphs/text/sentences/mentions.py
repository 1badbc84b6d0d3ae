"""Whether a sentence talks about the word that it ends with. The words are in ``mentions.toml``.

Where it cannot be sure it says yes: such a word ends nothing.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from ..farewells import is_farewell
from ..phrases import spellings, words_of
from ..words import has_phrase, last_phrase_length, phrase_length

_CLAUSE: Final = re.compile(r"[,;，；、،]|\s[-–—]+\s|[–—]")  # noqa: RUF001
_OPEN: Final = " \t,;，；、،–—-"  # noqa: RUF001
"""What may come between a clause and the word after it."""

_ITEM: Final = re.compile(r"\s*(?:[-*+•–]|\(?\d{1,2}[.)])\s*")  # noqa: RUF001
_COLON: Final = re.compile(r"[:：]\s*\Z")  # noqa: RUF001

_INNER_COLON: Final = re.compile(r"[:：](?=\s)")  # noqa: RUF001

# Scripts without spaces, in which a phrase is looked for among letters.
_DENSE: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


def is_mention(sentence: str) -> bool:
    """Return whether a sentence, up to the word that it ends with, asks about the word or names it.

    The same if it denies, plans or shows the word.
    """
    # It loads what compares texts, and few conversations come here.
    from ..wording import asks

    if _COLON.search(sentence):
        return is_shown(sentence)
    if _ITEM.fullmatch(sentence) or asks(sentence):
        return True
    # After a colon another sentence begins.
    sentence = _INNER_COLON.split(sentence)[-1]
    clauses = _CLAUSE.split(sentence.rstrip(_OPEN))
    words, begin = words_of(sentence), words_of(clauses[0])
    is_about = bool(
        _is_object(words)
        or _has(words, _words().anywhere)
        # "Si, ..." may be a yes, without its accent.
        or (_begins(words, _words().first) and not (len(clauses) > 1 and len(begin) < 2))
        or (words and _words().connectives.issuperset(words))
    )
    # "I don't need more, thanks" is about something else.
    return is_about and not (is_farewell(sentence) or is_farewell(clauses[-1]))


def is_shown(before: str) -> bool:
    """Whether a text up to a word on the same line or the next one announces just this word."""
    words = words_of(before)
    if _COLON.search(before) and not _words().shown.isdisjoint(words):
        return True
    return _is_object(words) and not is_farewell(before)


class _Words(NamedTuple):
    before: "_Phrases"
    anywhere: "_Phrases"
    first: "_Phrases"
    fillers: frozenset[str]
    determiners: frozenset[str]
    nouns: "_Phrases"
    connectives: frozenset[str]
    shown: frozenset[str]


class _Phrases(NamedTuple):
    spaced: frozenset[tuple[str, ...]]
    """Phrases of scripts with spaces, as their words."""
    dense: tuple[str, ...]
    """The others, as their letters."""


@cache
def _words() -> _Words:
    path = files(__package__) / "mentions.toml"
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return _Words(
        before=_phrases(found["before"]),
        anywhere=_phrases(found["anywhere"]),
        first=_phrases(found["first"]),
        fillers=frozenset(words_of(found["fillers"])),
        determiners=frozenset(words_of(found["determiners"])),
        nouns=_phrases(found["nouns"].split()),
        connectives=frozenset(words_of(found["connectives"])),
        shown=frozenset(words_of(found["shown"])),
    )


def _phrases(given: Iterable[str]) -> _Phrases:
    known = {True: set[tuple[str, ...]](), False: set[tuple[str, ...]]()}
    for phrase in given:
        for words in spellings([phrase]):
            known[_DENSE.search("".join(words)) is not None].add(words)
    dense = tuple("".join(words) for words in known[True])
    return _Phrases(frozenset(known[False]), dense)


def _is_object(words: Sequence[str]) -> bool:
    """Whether the last of these words governs what comes next, as in "reply with the word"."""
    table, end = _words(), len(words)
    while end:
        size = _ends(words[:end], table.before)
        if size and not _is_noun(words[:end]):
            return True
        if words[end - 1] not in table.fillers:
            return False
        end -= 1
    return False


def _is_noun(words: Sequence[str]) -> bool:
    """Return whether the last of these words is a noun, as in "thanks for your answer"."""
    size = _ends(words, _words().nouns)
    return 0 < size < len(words) and words[-size - 1] in _words().determiners


def _ends(words: Sequence[str], known: _Phrases) -> int:
    """Return of how many words the phrase is that these words end with; 0 if there is none."""
    size = last_phrase_length(words, known.spaced)
    if size:
        return size
    letters = "".join(words[-_FEW:])
    found = max((len(one) for one in known.dense if letters.endswith(one)), default=0)
    # In these scripts a sign is a word, or nothing after them is looked at.
    return min(found, len(words))


_FEW: Final = 12
"""How many words are as long as any phrase of a script without spaces."""


def _begins(words: Sequence[str], known: _Phrases) -> bool:
    letters = "".join(words[:_FEW])
    return bool(phrase_length(words, 0, known.spaced)) or letters.startswith(known.dense)


def _has(words: Sequence[str], known: _Phrases) -> bool:
    if has_phrase(words, known.spaced):
        return True
    letters = "".join(words)
    return any(one in letters for one in known.dense)
