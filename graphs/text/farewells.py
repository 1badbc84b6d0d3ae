"""Recognition of farewells: texts of thanks, farewells, closings and pleasantries alone.

`courtesies.toml` contains the phrases, and describes how they combine. Reading stops at the first
sentence that contains anything else. It takes time linear in the length of the text.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from .words import Kind, Part, courtesies, phrases, words_and_commas, words_of

_LONGEST = 100_000
"""Maximum length of a farewell, in characters. Reading 16 MiB would take many seconds."""

_TOPIC_WORDS = 6
"""Maximum number of words that name the reason for thanks."""

_SIGNATURE_WORDS = 5
"""Maximum number of words of a signature."""

FACE = re.compile(r"[:;]['-]?[()]|<3")
"""An emoticon, typed in ASCII characters."""

_NOT_COURTESY = re.compile(r"[\d?؟`{}=<>|\\@$€£%^]|\(\)|://")
_CLAUSE = re.compile(r"[^.!;:。।۔\n()\[\]\"“”«»„¡¿—–…/]+")  # noqa: RUF001
_DASH = re.compile(r"\s-+\s")
_PLACEHOLDER = re.compile(
    r"\[[^\[\]\n]{0,20}\b(?:name|signature)\b[^\[\]\n]{0,20}\]", re.IGNORECASE
)
_HONORIFIC = re.compile(
    r"\b(?=[DFHMPSdfhmps])"  # makes the search three times as fast
    r"(?i:dr|mr|mrs|ms|mx|prof|professor|doctor|herr|frau|monsieur|madame|sr|sra|signor|signora)"
    r"\b\.? [A-ZÀ-Þ]\w+"
)
_EMPHASIS = re.compile(r"[*_~#]+")
_QUOTED_LINE = re.compile(r"(?m)^[ \t]*>+")
_LETTER = re.compile(r"[^\W_]")
_WORDS_ALONE = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")


def is_farewell(text: str, names: Sequence[str] = (), marks: Sequence[str] = ()) -> bool:
    """Return whether a text contains nothing but thanks, farewells, closings and pleasantries.

    Args:
        text: The text.
        names: Names of speakers. They may occur anywhere in the text.
        marks: Marks of the speaker's format. They are ignored.
    """
    if len(text) > _LONGEST:
        return False
    around = _around(tuple(names), tuple(marks))
    shown = _without(text, around)
    if _NOT_COURTESY.search(shown):
        return False
    found = False
    if not shown.isascii():
        emoji = {sign for sign in set(shown) if unicodedata.category(sign) in ("So", "Cn", "Co")}
        if not emoji <= phrases().emoji:
            return False
        found = not emoji.isdisjoint(phrases().smiles)
    negated = False
    for sentence in _sentences(_unsigned(shown)):
        courtesy = _read(words_and_commas(sentence), around.words, negated=negated)
        if courtesy is None:
            return False
        negated = courtesy.negated
        found = found or courtesy.found
    return found and not negated


class _Around(NamedTuple):
    """The names and marks that a farewell may contain besides its courtesies."""

    words: frozenset[str]
    """The words of the names."""
    marks: re.Pattern[str] | None
    names: re.Pattern[str] | None
    """Names that contain characters other than letters, such as "Agent 2"."""


@lru_cache
def _around(names: tuple[str, ...], marks: tuple[str, ...]) -> _Around:
    shown = [name for each in names if (name := _without_emphasis(each).strip())]
    # Names such as "A" and "You" are also words of phrases.
    signed = [re.escape(name) for name in shown if not _WORDS_ALONE.fullmatch(name)]
    shown = [mark for each in marks if (mark := _without_emphasis(each).strip())]
    none = r"(?:[ \t]*(?:none|n/a)\b)?"
    marked = [re.escape(mark) + (none if mark.endswith(":") else "") for mark in shown]
    return _Around(
        frozenset(word for name in names for word in words_of(name)),
        re.compile("|".join(marked), re.IGNORECASE) if marked else None,
        re.compile(rf"(?<!\w)(?:{'|'.join(signed)})(?!\w)", re.IGNORECASE) if signed else None,
    )


def _without_emphasis(text: str) -> str:
    return _EMPHASIS.sub("", unicodedata.normalize("NFKC", text))


def _without(text: str, around: _Around) -> str:
    """Return a text without marks, `names`, quotes, placeholders, honorifics, faces, emphasis."""
    shown = _without_emphasis(text)
    if around.marks is not None:
        shown = around.marks.sub("\n", shown)
    if around.names is not None:
        shown = around.names.sub(" ", shown)
    shown = _QUOTED_LINE.sub("", shown)
    shown = _PLACEHOLDER.sub(" ", shown)
    shown = _HONORIFIC.sub(" ", shown)
    return FACE.sub(" ", shown)


def _unsigned(text: str) -> str:
    """Return a text without the signature below a line such as "Kind regards,"."""
    lines = text.splitlines()
    if len(lines) < 2:
        return text
    lines = [line for line in lines if _LETTER.search(line)]
    for below in (1, 2):
        if len(lines) > below and " ".join(words_of(lines[-below - 1])).endswith(
            courtesies().sign_offs
        ):
            signature = " ".join(lines[-below:]).split()
            if len(signature) <= _SIGNATURE_WORDS and all(word[0].isupper() for word in signature):
                return "\n".join(lines[:-below])
    return "\n".join(lines)


def _sentences(text: str) -> Iterator[str]:
    for clause in _CLAUSE.finditer(text):
        yield from _DASH.split(clause[0])


class _Courtesy(NamedTuple):
    """A sentence, or a part of one, that contains only parts of a farewell."""

    found: bool
    """Whether the sentence contains a courtesy, such as thanks."""
    negated: bool
    """Whether the sentence ends after a negation that no courtesy has followed yet."""


def _read(words: list[str], names: frozenset[str], *, negated: bool) -> _Courtesy | None:
    """Return the courtesy of a sentence, or None if it contains anything but parts of a farewell.

    Each word must belong to a phrase, be a name, be in the tail of one of the sentence's phrases,
    or belong to a topic.
    """
    pieces = _pieces_of(words, names)
    if pieces is None:
        return None
    stops = courtesies().stops
    tail, topic, others = set[str](), set[str](), set[str]()
    found, left = False, 0
    for start, end, part in pieces:
        if part is None:
            word = words[start]
            if word == ",":
                left = 0
            elif word in topic:
                left = _TOPIC_WORDS
            elif left and word not in stops:
                left -= word not in tail
            else:
                others.add(word)
        elif part.kind is Kind.FILLER:
            left = 0 if words[start] in stops else left
        elif part.kind is Kind.NEGATION and not tail.isdisjoint(words[start:end]):
            # In Portuguese, "no" after a wish means "in the".
            left = 0
        else:
            tail |= part.tail
            topic |= part.topic
            left = _TOPIC_WORDS if words[end - 1] in part.topic else 0
            closes = part.kind is Kind.OPENER or (part.kind is Kind.ANSWER and negated)
            found = found or closes
            negated = not closes and (negated or part.kind is Kind.NEGATION)
    return _Courtesy(found, negated) if others <= tail | names else None


def _pieces_of(
    words: list[str], names: frozenset[str]
) -> list[tuple[int, int, Part | None]] | None:
    """Split a sentence into its longest phrases and the words between them.

    Each piece contains its first index, the index after it, and its part. The part is None for a
    word between phrases. The result is None if an unknown word comes before the first phrase.
    """
    known = courtesies()
    pieces = list[tuple[int, int, Part | None]]()
    place, size, opened = 0, len(words), False
    while place < size:
        if not (opened or words[place] in known.words or words[place] in names):
            return None
        part, end, at = None, place + 1, place
        node = known.phrases.following.get(words[at])
        while node is not None:
            at += 1
            if node.part is not None:
                part, end = node.part, at
            node = node.following.get(words[at]) if at < size else None
        opened = opened or part is not None
        pieces.append((place, end, part))
        place = end
    return pieces
