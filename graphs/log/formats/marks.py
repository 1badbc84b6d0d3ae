"""Where the marks of a message stand, and what comes after each. Pure functions."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...speakers.formats import BEFORE_COLON, EMPHASIS, LEADING, WIDE, plain

_SIGNS = re.escape(EMPHASIS)
_OPENING = re.compile(f"[{_SIGNS}]*$")
_CLOSING = re.compile(f"[{_SIGNS}]*")

_BARE = f"{EMPHASIS} \t\r\n"
"""What may come after an end mark."""

_DECORATED = f"{_BARE}#>"
"""The same where the mark itself does not end with one of these signs."""

_SENTENCE_END = re.compile(rf"(?:\A|[\r\n.!?:…。！？：])[{_SIGNS}\s\"'”)\]]*\Z")  # noqa: RUF001
"""What stands before an end mark that is not written as it should be."""


def begins(line: str, mark: str) -> bool:
    """Whether a line begins with a mark. Case and Markdown around it do not matter."""
    return plain(line).startswith(plain(mark))


def read_marks(lines: Sequence[str], end: str | None, text: str) -> list[str] | None:
    """Read what comes after the marks of a message."""
    places = list(_places(lines, text))
    if len(places) < len(lines):
        return None
    last = (len(text), len(text)) if end is None else end_of(end, text)
    # The end may not be a part of the last mark.
    if last is None or places[-1].behind > last[1]:
        return None
    until = [place.start for place in places[1:]] + [last[0]]
    return [
        _unsigned(text[place.behind : to].strip(), place.open)
        for place, to in zip(places, until, strict=True)
    ]


class _Place(NamedTuple):
    """Where a mark stands."""

    start: int
    """Where its line begins."""
    behind: int
    """Where the text after it begins."""
    open: str
    """What closes the emphasis that begins before the mark, where it goes on after it."""


def _places(lines: Sequence[str], text: str) -> Iterator[_Place]:
    """For each mark in turn where it stands."""
    left = list(lines)
    start = 0
    for line in text.splitlines(keepends=True):
        if left and line.strip():
            if begins(line, left[0]):
                length, closing = length_of(left.pop(0), line)
                yield _Place(start, start + length, closing)
            elif len(left) == len(lines):
                # Nothing may stand before the first mark.
                return
        start += len(line)


def _unsigned(value: str, closing: str) -> str:
    """What comes after a mark, without the emphasis that begins before the mark."""
    head, line_break, rest = value.partition("\n")
    if closing and head.count(closing) == 1 and head.rstrip().endswith(closing):
        head = head.rstrip().removesuffix(closing).rstrip()
    return head + line_break + rest


def length_of(mark: str, line: str) -> tuple[int, str]:
    """How long the mark is that a line begins with, and what closes an emphasis that goes on."""
    signs, places = _folded(line)
    leading = LEADING.match(signs)
    skipped = leading.end() if leading else 0
    first, last = places[skipped], places[skipped + len(plain(mark)) - 1]
    opening = _OPENING.search(line, 0, first)
    closing = opening[0][::-1] if opening else ""
    # In "**Input:** 3" the mark's own emphasis ends after it; in "Input: *3*" it is the value's.
    if line.startswith(closing, last + 1):
        return last + 1 + len(closing), ""
    return last + 1, closing


def end_of(end: str, text: str) -> tuple[int, int] | None:
    """Where the end mark of a message begins, with the Markdown before it and without."""
    for behind in (_BARE, _DECORATED):
        body = text.rstrip(behind)
        signs, places = _folded(body)
        if not signs.endswith(plain(end)):
            continue
        start = places[len(signs) - len(plain(end))]
        # In "It waits for the next request." it is no mark.
        is_written = _unsigned_text(end).endswith(_unsigned_text(body[start:]))
        if not is_written and _SENTENCE_END.search(text, 0, start) is None:
            continue
        line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
        if not plain(text[line:start]):
            return line, start
        closing = _CLOSING.match(text, len(body))
        opening = closing[0][::-1] if closing else ""
        return (start - len(opening) if text.endswith(opening, 0, start) else start), start
    return None


def _unsigned_text(text: str) -> str:
    """Text without emphasis and width."""
    return "".join(sign for sign in text if sign not in EMPHASIS).translate(WIDE)


def _folded(text: str) -> tuple[str, list[int]]:
    """Text as marks are compared, and of each of its characters where it comes from."""
    spaces = {place for found in BEFORE_COLON.finditer(text) for place in range(*found.span())}
    pairs = [
        (sign, place)
        for place, given in enumerate(text)
        if given not in EMPHASIS and place not in spaces
        for sign in given.translate(WIDE).casefold()
    ]
    return "".join(sign for sign, _ in pairs), [place for _, place in pairs]
