"""Where a text says a word, by what surrounds the word. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..code_places import Span
from .decoration import (
    CLOSERS,
    EMPHASIS,
    JOINTS,
    PAIRS,
    content_end,
    is_decorative,
    is_unseen,
    line_start,
    unlabelled,
)
from .mentions import is_mention, is_shown
from .sentence_ends import last_sentence
from .spellings import DENSE, Spelling

NEAR: Final = 300
"""How many characters before a word are looked at."""

_ASKED: Final = re.compile(r"[^.!?。！？\n]{0,300}[?？؟]")  # noqa: RUF001
"""The rest of a question."""

_GLUE: Final = re.compile(rf"[,;–—…，；、]|{DENSE}")  # noqa: RUF001
"""What a token may follow without a space."""

_LEADING: Final = JOINTS.union("([{<")
"""Signs before a token that mean nothing without it."""


class Part(NamedTuple):
    """A part of a text that others do not hear: a token, and what surrounds only this."""

    start: int
    end: int
    token: Span
    """Where the token is."""
    kept: str = ""
    """What closes within it what was opened before."""


def find_everywhere(word: Spelling, text: str) -> Iterator[Part]:
    """Yield where a word is, but for questions."""
    for found in word.exact.finditer(text):
        start, end = found.span()
        if _ASKED.match(text, end) is None:
            while start and text[end : end + 1] and text[start - 1] == text[end] in EMPHASIS:
                start, end = start - 1, end + 1
            yield Part(start, end, found.span())


def find_lines(word: Spelling, text: str) -> Iterator[Part]:
    """Yield where a word has a line of its own, without any decoration."""
    for found in word.line.finditer(text):
        yield Part(*found.span(1), found.span(1))


def find_last_line(word: Spelling, text: str, name: str | None) -> Part | None:
    """Return the last line of a text if it is the word, decorated, in any case."""
    begin = line_start(text, content_end(text, word.core))
    found = [one.span() for one in word.loose.finditer(text, begin)]
    if len(found) != 1 or found[0][0] - begin > NEAR:
        return None
    start, end = found[0]
    rest = f"{unlabelled(text[begin:start], name)} {text[end:]}"
    if not is_decorative(rest) or is_announced(text, begin):
        return None
    _, closing = _unpaired(text, start, end)
    return Part(len(text[:begin].rstrip()), len(text), (start, end), _opened(closing, text[:begin]))


def find_closing(word: Spelling, text: str) -> Part | None:
    """Return where a text ends with a word, if its last sentence says it.

    That is a sentence of its own, decorated or quoted, or the bare word after a sentence that does
    not talk about it.
    """
    end = content_end(text, word.core)
    near = word.exact.finditer(text, max(0, end - len(word.word)))
    start, after = next((one.span() for one in near if one.end() >= end), (0, 0))
    if not after:
        return None
    bare = start
    while bare and text[bare - 1] in PAIRS:
        bare -= 1
    sentence = last_sentence(text[max(0, bare - NEAR) : bare], text[start])
    if not sentence.strip():
        is_about = line_start(text, bare) == bare - len(sentence) and is_announced(text, bare)
    else:
        is_about = not _is_bare(text, bare, start) or is_mention(sentence)
    if is_about:
        return None
    span = start, after
    start = _first_of(word.word, text, start)
    start, closing = _unpaired(text, start, after)
    while start and (text[start - 1] in _LEADING or is_unseen(text[start - 1])):
        start -= 1
    return Part(start, len(text), span, _opened(closing, text[:start]))


def _first_of(word: str, text: str, start: int) -> int:
    """Return where the first of several equal words begins, of which the last begins here."""
    while True:
        end = start
        while end and (is_unseen(text[end - 1]) or text[end - 1] in ".!"):
            end -= 1
        if not text.endswith(word, 0, end):
            return start
        start = end - len(word)


def _is_bare(text: str, bare: int, start: int) -> bool:
    """Return whether a word is not quoted, in brackets, or glued to what comes before it.

    Args:
        text: The text.
        bare: Where the signs right before the word begin.
        start: Where the word begins.
    """
    if not set(text[bare:start]) <= set(EMPHASIS):
        return False
    before = text[bare - 1] if bare else " "
    if is_unseen(before) or _GLUE.match(before):
        return True
    return not text[start].isalnum() and (before.isalnum() or before == ".")


def _unpaired(text: str, start: int, end: int) -> tuple[int, str]:
    """Leave out the pairs of signs around a part of a text.

    Returns:
        Where the part begins with them, and the signs after it that close something else.
    """
    closing = []
    for sign in text[end:]:
        if start and sign in PAIRS.get(text[start - 1], ""):
            start -= 1
        elif sign in CLOSERS:
            closing.append(sign)
    return start, "".join(closing)


def _opened(closing: str, before: str) -> str:
    """Return those of some closing signs that close what a text has opened."""
    known = {one for one in set(closing) if any(sign in before for sign in CLOSERS[one])}
    return "".join(one for one in closing if one in known)


def is_announced(text: str, start: int) -> bool:
    """Return whether the line above a place announces the word that begins there."""
    begin = line_start(text, start)
    above = text[max(0, begin - NEAR) : begin].rstrip()
    sentence = last_sentence(above, " ")
    return bool(sentence) and is_shown(sentence)
