"""Whether a text is nothing but thanks, farewells and pleasantries. The words are in `phrases`."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from .phrases import phrases, spellings, words_of

_LONGEST = 100_000
"""A longer text, in characters, is no farewell: reading one of 16 MiB would take many seconds."""

_TOPIC_WORDS = 6
"""How many words may name what somebody gives thanks for."""

_SIGNATURE_WORDS = 5
"""How many words a signature has at most."""

FACE = re.compile(r"[:;]['-]?[()]|<3")
"""A smile typed in signs."""

_NOT_COURTESY = re.compile(r"[\d?؟`{}=<>|\\@$€£%^]|\(\)|://")
_CLAUSE_END = re.compile(r"[.!;:。।۔\n()\[\]\"“”«»„¡¿—–…/]+|\s-+\s")  # noqa: RUF001
_PLACEHOLDER = re.compile(
    r"\[[^\[\]\n]{0,20}\b(?:name|signature)\b[^\[\]\n]{0,20}\]", re.IGNORECASE
)
_HONORIFIC = re.compile(
    r"\b(?i:dr|mr|mrs|ms|mx|prof|professor|doctor|herr|frau|monsieur|madame|sr|sra|signor|signora)"
    r"\b\.? [A-ZÀ-Þ]\w+"
)
_COMMA = re.compile("[,،、]")
_WORDS_ALONE = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")


def is_farewell(text: str, names: Sequence[str] = (), marks: Sequence[str] = ()) -> bool:
    """Whether a text holds nothing but thanks, farewells and pleasantries."""
    if len(text) > _LONGEST:
        return False
    known, signed = _known(tuple(names))
    shown = _stripped(text, signed, marks)
    if _NOT_COURTESY.search(shown):
        return False
    emoji = {sign for sign in shown if unicodedata.category(sign) in ("So", "Cn", "Co")}
    if not emoji <= phrases().emoji:
        return False
    found = not emoji.isdisjoint(phrases().smiles)
    for sentence in set(_CLAUSE_END.split(_unsigned(shown))):
        courtesy = _is_courtesy(sentence, known)
        if courtesy is None:
            return False
        found = found or courtesy
    return found


@lru_cache
def _known(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The words of names, and the names that are not made of words alone."""
    shown = [_emphasis_gone(name).strip() for name in names]
    # "A" and "You" also stand in phrases.
    signed = tuple(name for name in shown if name and not _WORDS_ALONE.fullmatch(name))
    return frozenset(word for name in names for word in words_of(name)), signed


def _stripped(text: str, signed: Sequence[str], marks: Sequence[str]) -> str:
    """A text without marks, names made of signs, placeholders, emoticons and Markdown."""
    shown = _emphasis_gone(text)
    for mark in map(_emphasis_gone, marks):
        if mark.strip():
            none = r"(?:[ \t]*(?:none|n/a)\b)?" if mark.rstrip().endswith(":") else ""
            shown = re.sub(re.escape(mark.strip()) + none, "\n", shown, flags=re.IGNORECASE)
    for name in signed:
        shown = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", shown, flags=re.IGNORECASE)
    shown = re.sub(r"(?m)^[ \t]*>+", "", shown)
    for dressing in (_PLACEHOLDER, _HONORIFIC, FACE):
        shown = dressing.sub(" ", shown)
    return shown


def _emphasis_gone(text: str) -> str:
    return re.sub(r"[*_~#]+", "", unicodedata.normalize("NFKC", text))


def _unsigned(text: str) -> str:
    """A text without the name below a line such as "Kind regards,"."""
    lines = [found for found in text.splitlines() if words_of(found)]
    for below in (1, 2):
        if len(lines) > below and " ".join(words_of(lines[-below - 1])).endswith(
            _table().sign_offs
        ):
            signature = " ".join(lines[-below:]).split()
            if len(signature) <= _SIGNATURE_WORDS and all(word[0].isupper() for word in signature):
                return "\n".join(lines[:-below])
    return "\n".join(lines)


def _is_courtesy(sentence: str, names: frozenset[str]) -> bool | None:
    """Whether a sentence is a courtesy; None when it holds anything else.

    Then every word belongs to a phrase, may stand around one, or names a topic of it.
    """
    words = [word for clause in _COMMA.split(sentence) for word in (*words_of(clause), ",")]
    tail, topic, others, place, left = set[str](), set[str](), set[str](), 0, 0
    while place < len(words):
        word = words[place]
        if not tail and word not in _table().words and word not in names:
            return None
        opened = _opened(words, place)
        if opened is not None:
            size, kind = opened
            place += size
            if kind is not _FILLER:
                tail |= kind.tail
                topic |= kind.topic
                left = _TOPIC_WORDS if words[place - 1] in kind.topic else 0
            elif word in _table().stops:
                left = 0
            continue
        if word == ",":
            left = 0
        elif word in topic:
            left = _TOPIC_WORDS
        elif left and word not in _table().stops:
            left -= word not in tail
        else:
            others.add(word)
        place += 1
    return bool(tail) if others <= tail | names else None


class _Row(NamedTuple):
    tail: frozenset[str]
    topic: frozenset[str]


_FILLER = _Row(frozenset(), frozenset())


class _Table(NamedTuple):
    rows: dict[tuple[str, ...], _Row]
    """Every phrase that a courtesy is made of."""
    words: frozenset[str]
    """All words of phrases and tails, and the comma."""
    longest: int
    """The length of the longest, in words."""
    stops: frozenset[str]
    """Words that end a topic."""
    sign_offs: tuple[str, ...]
    """Endings of the line above a signature."""


def _opened(words: list[str], place: int) -> tuple[int, _Row] | None:
    """The longest phrase that begins at this place: its length and its row."""
    table = _table()
    for size in range(min(table.longest, len(words) - place), 0, -1):
        row = table.rows.get(tuple(words[place : place + size]))
        if row is not None:
            return size, row
    return None


@cache
def _table() -> _Table:
    words = phrases()
    rows, tails = dict.fromkeys(spellings(words.fillers), _FILLER), list[frozenset[str]]()
    for courtesy in words.courtesies:
        topic = frozenset(words_of(courtesy.topic))
        row = _Row(frozenset(words_of(courtesy.tail)), topic)
        tails.append(row.tail | topic)
        for phrase in spellings(courtesy.openers):
            known = rows.setdefault(phrase, row)
            if known is not row:  # Some phrases are the same in two languages.
                rows[phrase] = _Row(row.tail | known.tail, row.topic | known.topic)
    return _Table(
        rows,
        frozenset((",", *(word for phrase in rows for word in phrase))).union(*tails),
        max(map(len, rows)),
        frozenset(words_of(words.stops)),
        tuple(" ".join(words_of(sign_off)) for sign_off in words.sign_offs),
    )
