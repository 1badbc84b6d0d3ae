"""What a model thinks within its answer, told from what it says. Pure.

Models write `<think>…</think>` in front of their words. Some servers leave only the closing tag,
and an answer that is cut off may lack it. A tag in code is code, unless the message begins with it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from .fences import fences

Span = tuple[int, int]
"""A part of a text: its first character, and the one after it."""

_TAG = re.compile(r"<(/?)(think(?:ing)?)>", re.IGNORECASE)
_TAGS = ("<think>", "<thinking>", "</think>", "</thinking>")
_INLINE = re.compile(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_OUTER = re.compile(rf"\A\s*{_TAG.pattern}|{_TAG.pattern}\s*\Z", re.IGNORECASE)
_SPACE, _BLANKS = re.compile(r"\s*"), re.compile(r"[ \t]*")
_LONGEST = 4000
"""How far from a line's begin inline code is looked for, in characters."""


class Split(NamedTuple):
    """A text, split."""

    speech: str
    """What it says."""
    thought: str
    """What it thinks."""
    is_unopened: bool
    """Whether a tag closes the thought that none has opened."""


def split(text: str) -> Split:
    """Tell thought from speech in a whole text."""
    if _TAG.search(text) is None:
        return Split(text, "", is_unopened=False)
    reader = ThoughtReader()
    reader.take(text, is_over=True)
    return Split(reader.speech, reader.thought, reader.is_unopened)


def thoughts(text: str) -> list[Span]:
    """Find the thoughts in a text, in order, with their tags and the space around them."""
    reader = ThoughtReader()
    reader.take(text, is_over=True)
    return reader.spans


class Told(NamedTuple):
    """What a piece of a text adds to what is known of it."""

    speech: str
    """More of what it says."""
    anew: bool = False
    """Whether all that was told before was thought."""


class ThoughtReader:
    """Tells thought from speech in a text that comes in pieces.

    What it tells is the same however the text is cut: what may be a tag is held back.

    Args:
        is_unopened: Whether the thought is expected to begin without a tag: nothing is told before
            a tag has come.
    """

    def __init__(self, *, is_unopened: bool = False) -> None:
        self.spans: list[Span] = []
        """The thoughts so far."""
        self.is_unopened = False
        """Whether a tag has closed a thought that none has opened."""
        self._text = ""
        self._told = 0
        self._sought = 0
        self._begin = 0
        self._closing: str | None = None
        self._space: re.Pattern[str] | None = None
        self._waits = is_unopened
        self._has_told = False
        self._code = _Code()

    @property
    def speech(self) -> str:
        """What is said so far."""
        return "".join(self._text[start:end] for start, end in self._said())

    @property
    def thought(self) -> str:
        """What was thought so far."""
        inside = (_OUTER.sub("", self._text[start:end]).strip() for start, end in self.spans)
        return "\n\n".join(filter(None, inside))

    def take(self, piece: str, *, is_over: bool = False) -> Told:
        """Take the next piece of the text; the last one where it is over."""
        self._text += piece
        before, anew = self._has_told, False
        told: list[str] = []
        while (tag := self._next_tag(is_over=is_over)) is not None:
            closes, name = tag.groups()
            self._waits = False
            if not closes:
                told.append(self._tell(tag.start()))
                self._begin, self._closing = self._told, f"</{name}>"
                self._sought = tag.end()
                continue
            if self._closing is None:
                # Its begin stands in the prompt, as some templates have it.
                self.is_unopened, self._begin, self.spans = True, 0, []
                told, anew, self._has_told = [], before, False
            self._close(tag.end())
        told.append(self._rest(is_over=is_over))
        return Told("".join(told), anew)

    def _next_tag(self, *, is_over: bool) -> re.Match[str] | None:
        """The next tag that opens a thought, or closes one."""
        if self._space is not None:
            self._told = self._space.match(self._text, self._told).end()  # type: ignore[union-attr]
            self.spans[-1] = (self.spans[-1][0], self._told)
            if self._told < len(self._text):
                self._space = None
        for tag in _TAG.finditer(self._text, max(self._sought, self._told)):
            if self._closing is not None:
                if tag[0].lower() == self._closing.lower():
                    return tag
            elif (is_code := self._is_code(tag.start(), is_over=is_over)) is None:
                break
            elif not is_code:
                return tag
            self._sought = tag.end()
        return None

    def _is_code(self, at: int, *, is_over: bool) -> bool | None:
        """Whether a tag stands in code. None: what comes next decides."""
        if not self._has_told and not self._text[self._told : at].strip():
            return False
        behind = self.spans[-1][1] if self.spans else 0
        return self._code.holds(self._text, at, behind, is_over=is_over)

    def _tell(self, end: int) -> str:
        """Take the text up to here for speech; space in front of all speech says nothing."""
        found = self._text[self._told : end]
        if not self._has_told and not found.strip():
            return ""
        self._told, self._has_told = end, True
        return found

    def _close(self, end: int) -> None:
        self.spans.append((self._begin, end))
        self._closing = None
        self._told = self._sought = end
        if not self._has_told:
            self._space = _SPACE
        elif self._text[self._begin - 1].isspace():
            self._space = _BLANKS

    def _rest(self, *, is_over: bool) -> str:
        """What is known to be said behind the last tag."""
        if self._closing is not None:
            self._sought = max(self._sought, len(self._text) - len(self._closing) + 1)
            if is_over:
                self._close(len(self._text))
            return ""
        if is_over:
            found, self._told = self._text[self._told :], len(self._text)
            return found
        return "" if self._waits else self._tell(max(self._told, self._open_at()))

    def _open_at(self) -> int:
        """From where on the text may be a tag, as far as it has come."""
        text = self._text
        tag = _TAG.search(text, max(self._sought, self._told))
        if tag is not None:
            # It may be code.
            return tag.start()
        at = text.rfind("<", max(self._sought, self._told))
        tail = text[at:].lower() if at >= 0 else ""
        return at if tail and any(one.startswith(tail) for one in _TAGS) else len(text)

    def _said(self) -> Iterator[Span]:
        at = 0
        for start, end in self.spans:
            yield at, start
            at = end
        yield at, len(self._text) if self._closing is None else self._begin


class _Code:
    """Where a text that grows holds code, by the lines up to the end of the one asked about."""

    def __init__(self) -> None:
        self._window = (0, 0)
        self._blocks: list[Span] = []
        self._line = (0, 0)
        self._inline: list[Span] = []

    def holds(self, text: str, at: int, behind: int, *, is_over: bool) -> bool | None:
        """Whether there is code at a place, by the text behind another one; None: not known yet."""
        first = max(behind, at - _LONGEST)
        first = max(first, text.rfind("\n", first, at) + 1)
        is_fenced = "```" in text[behind:at] or "~~~" in text[behind:at]
        if "`" not in text[first:at] and not is_fenced:
            return False
        end = text.find("\n", at, first + _LONGEST) + 1 or min(len(text), first + _LONGEST)
        if end == len(text) and text[-1] != "\n" and not is_over:
            return None
        if is_fenced and (self._window[0] != behind or self._window[1] < end):
            # Twice as far as needed, so that many tags take no longer than a few.
            far = text.rfind("\n", 0, 2 * end - behind) + 1
            self._window = (behind, max(end, far))
            self._blocks = _blocks(text[behind : self._window[1]], behind)
        if self._line != (first, end):
            self._line = (first, end)
            self._inline = [one.span() for one in _INLINE.finditer(text, first, end)]
        return (is_fenced and _has(self._blocks, at)) or _has(self._inline, at)


def _has(spans: list[Span], at: int) -> bool:
    place = bisect_right(spans, at, key=itemgetter(0)) - 1
    return place >= 0 and at < spans[place][1]


def _blocks(text: str, begin: int) -> list[Span]:
    lines, found = fences(text)
    ends = [*accumulate(map(len, lines), initial=begin)]
    return [(ends[one.first], ends[min(one.behind, len(lines))]) for one in found]
