"""The marks of a message: their places, the text after each, and the speaker they belong to.

Pure functions. Most lines begin with no mark, and most texts are much longer than a mark. So only
the characters that can matter are compared: the first ones of a text, or the last ones.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ..conversation.conversation import Conversation
from ..speakers.formats import (
    BEFORE_COLON,
    EMPHASIS,
    EMPHASIS_SIGNS,
    LEADING,
    WIDE,
    LabelledFormat,
    normalize_mark,
)
from ..speakers.replies import AgentReply
from ..speakers.speaker import Speaker
from ..text.structures import prose_places

_SIGNS = re.escape(EMPHASIS)
_CLOSING = re.compile(f"[{_SIGNS}]*")
_BEFORE = re.compile(rf"[#>\s{_SIGNS}]*")
"""The characters that may come before a mark."""

_BARE = f"{EMPHASIS} \t\r\n"
"""The characters that may come after an end mark."""

_DECORATED = f"{_BARE}#>"
"""The characters that may come after an end mark that does not itself end with one of them."""

_SENTENCE_END = frozenset("\r\n.!?:…。！？：")  # noqa: RUF001
_AFTER_SENTENCE = frozenset(f"{EMPHASIS}\"'”)]")
"""The characters that may come between the end of a sentence and an end mark, besides white space.
"""

_SPACES: Final = (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))
_AT_CUT: Final = EMPHASIS + "".join(map(chr, (*_SPACES, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)))
"""All white space, and emphasis. White space before a colon does not count, and at a cut it is
unknown if a colon follows."""

_NARROW: Final = {**WIDE, **dict.fromkeys(map(ord, EMPHASIS))}
"""Translates full-width characters to narrow ones, and removes emphasis."""

_SHARE: Final = 64
"""The number of characters that are compared first, in addition to those of a mark."""


def begins(line: str, mark: str) -> bool:
    """Return whether a line begins with a mark. Case and Markdown around the mark do not matter."""
    wanted = _plain_mark(mark)
    before = _BEFORE.match(line)
    place = before.end() if before else 0
    # Compare the first character first: nearly all lines begin with another one.
    if line[place : place + 1].translate(WIDE).casefold()[:1] != wanted[:1]:
        return not wanted
    size = place + len(wanted) + _SHARE
    while True:
        head = line if size >= len(line) else line[:size].rstrip(_AT_CUT)
        found = normalize_mark(head)
        if len(head) == len(line) or len(found) >= len(wanted) or not wanted.startswith(found):
            return found.startswith(wanted)
        size *= 2


@lru_cache(maxsize=256)
def _plain_mark(mark: str) -> str:
    """Return a mark in the form that is compared. A conversation has few marks."""
    return normalize_mark(mark)


def read_marks(lines: Sequence[str], end: str | None, text: str) -> list[str] | None:
    """Return the texts after the marks of a message, or None if marks are missing."""
    places = _places(lines, text)
    if len(places) < len(lines):
        return None
    last = (len(text), len(text)) if end is None else end_of(end, text)
    # The end mark may not be a part of the last mark.
    if last is None or places[-1].behind > last[1]:
        return None
    values: list[str] = []
    for number, place in enumerate(places, start=1):
        until = places[number].start if number < len(places) else last[0]
        value = text[place.behind : until].strip()
        head, line_break, rest = value.partition("\n")
        if place.open and head.count(place.open) == 1 and head.rstrip().endswith(place.open):
            # The emphasis that begins before the mark ends here.
            head = head.rstrip().removesuffix(place.open).rstrip()
        values.append(head + line_break + rest)
    return values


class _Place(NamedTuple):
    """The place of a mark in a text."""

    start: int
    """The index at which the mark's line begins."""
    behind: int
    """The index at which the text after the mark begins."""
    open: str
    """The closing characters of an emphasis that begins before the mark and continues after it.
    Empty if there is no such emphasis.
    """


def _places(lines: Sequence[str], text: str) -> list[_Place]:
    """Return the places of the marks, in order, up to the first mark that is missing."""
    found, left, start = list[_Place](), list(lines), 0
    for line in text.splitlines(keepends=True):
        if not left:
            return found
        if line.strip():
            if begins(line, left[0]):
                length, closing = length_of(left.pop(0), line)
                found.append(_Place(start, start + length, closing))
            elif not found:
                # No text may come before the first mark.
                return found
        start += len(line)
    return found


def length_of(mark: str, line: str) -> tuple[int, str]:
    """Return the length of the mark at a line's beginning, and the closing emphasis after it."""
    first, last = _span_of(_plain_mark(mark), line)
    closing = line[len(line[:first].rstrip(EMPHASIS)) : first][::-1]
    # In "**Input:** 3" the mark's own emphasis ends after it; in "Input: *3*" it is the value's.
    if line.startswith(closing, last + 1):
        return last + 1 + len(closing), ""
    return last + 1, closing


def _span_of(mark: str, line: str) -> tuple[int, int]:
    """Return the indices of the first and last character of the mark that a line begins with."""
    before = _BEFORE.match(line)
    size = (before.end() if before else 0) + len(mark) + _SHARE
    while True:
        head = line if size >= len(line) else line[:size].rstrip(_AT_CUT)
        signs, places = _fold(head)
        leading = LEADING.match(signs)
        skipped = leading.end() if leading else 0
        if len(head) == len(line) or skipped + len(mark) <= len(signs):
            return places[skipped], places[skipped + len(mark) - 1]
        size *= 2


def end_of(end: str, text: str) -> tuple[int, int] | None:
    """Return the index of the end mark, including the Markdown before it and without, or None."""
    for behind in (_BARE, _DECORATED):
        body = text.rstrip(behind)
        start = _start_of_end(_plain_mark(end), body)
        if start is None:
            continue
        # In "It waits for the next request." the words are not a mark.
        is_written = end.translate(_NARROW).endswith(body[start:].translate(_NARROW))
        if not is_written and not _begins_sentence(text, start):
            continue
        line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
        if not normalize_mark(text[line:start]):
            return line, start
        closing = _CLOSING.match(text, len(body))
        opening = closing[0][::-1] if closing else ""
        return (start - len(opening) if text.endswith(opening, 0, start) else start), start
    return None


def _start_of_end(mark: str, body: str) -> int | None:
    """Return the index of the mark that a text ends with, or None."""
    size = len(mark) + _SHARE
    while True:
        first = max(len(body) - size, 0)
        signs, places = _fold(body[first:])
        if first == 0 or len(signs) >= len(mark) or not mark.endswith(signs):
            break
        size *= 2
    return first + places[len(signs) - len(mark)] if signs.endswith(mark) else None


def _begins_sentence(text: str, start: int) -> bool:
    """Return whether an index begins a sentence, a line, or the decoration before either."""
    place = start
    while place and (text[place - 1].isspace() or text[place - 1] in _AFTER_SENTENCE):
        place -= 1
        if text[place] in _SENTENCE_END:
            return True
    return not place or text[place - 1] in _SENTENCE_END


def _fold(text: str) -> tuple[str, Sequence[int]]:
    """Normalize a text for comparison. Also return the original index of each character."""
    folded = text.translate(WIDE).casefold()
    # No character folds to an empty text, so equal lengths mean equal indices.
    is_same_length = len(folded) == len(text) and EMPHASIS_SIGNS.search(text) is None
    if is_same_length and BEFORE_COLON.search(text) is None:
        return folded, range(len(text))
    spaces = [found.span() for found in BEFORE_COLON.finditer(text)]
    signs, places, at = list[str](), list[int](), 0
    for start, end in (*spaces, (len(text), len(text))):
        for place in range(at, start):
            if text[place] not in EMPHASIS:
                sign = text[place].translate(WIDE).casefold()
                signs.append(sign)
                places += [place] * len(sign)
        at = end
    return "".join(signs), places


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Return the name of another speaker whose part a message plays, or None."""
    own = speaker.format.lines if isinstance(speaker.format, LabelledFormat) else ()
    shown = [one for _, one in prose_places(text.strip())]
    for other in conversation.speakers:
        mark = other.format.lines[0] if isinstance(other.format, LabelledFormat) else None
        if mark is None or mark in own or other.name == speaker.name:
            continue
        found = [place for place, one in enumerate(shown) if begins(one, mark)]
        if found and found[-1] >= _length_of_form(speaker, shown):
            return other.name
    first = _labels(conversation, shown[:1])
    is_user = len(shown) > 1 and _is_simulated(conversation, speaker)
    # Further down, a name with a colon may be an item of a list, a note or a quoted line.
    if not is_user and (conversation.is_pair or not first):
        return first[0] if first and first[0] != speaker.name else None
    labels = _labels(conversation, shown)
    others = [name for name in labels if name != speaker.name]
    return others[0] if others and (is_user or len(labels) > 1) else None


def _is_simulated(conversation: Conversation, speaker: Speaker) -> bool:
    """Return whether a speaker is a simulated user, who never says the lines of its agent."""
    others = (one for one in conversation.speakers if one.name != speaker.name)
    replies = (reply for other in others for reply in other.replies)
    return any(isinstance(one, AgentReply) and not one.with_system_prompt for one in replies)


def _labels(conversation: Conversation, lines: Sequence[str]) -> list[str]:
    """Return the speakers whose name, followed by a colon, begins a line."""
    names = [(name, f"{name}:") for name in conversation.names]
    return [name for one in lines for name, label in names if begins(one, label)]


def _length_of_form(speaker: Speaker, shown: Sequence[str]) -> int:
    """Return the number of lines up to the speaker's end mark, or 0. They may contain any text."""
    marks = speaker.marks
    if marks is None or marks.end is None:
        return 0
    opens = [place for place, one in enumerate(shown) if begins(one, marks.lines[0])]
    closes = (normalize_mark(one).rstrip().endswith(normalize_mark(marks.end)) for one in shown)
    return next((place for place, one in enumerate(closes, 1) if one and opens == [0]), 0)
