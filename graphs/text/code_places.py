"""The places of code in a text that grows. Pure functions."""

import re
from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter

from .fences import fences

Span = tuple[int, int]
"""A part of a text: its first character, and the one after it."""

_INLINE = re.compile(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_LONGEST = 4000
"""How far from a line's begin inline code is looked for, in characters."""


class CodeFinder:
    """Finds code in a text that grows, by the lines up to the end of the one asked about."""

    def __init__(self) -> None:
        self._window = (0, 0)
        self._blocks: list[Span] = []
        self._line = (0, 0)
        self._inline: list[Span] = []

    def contains(self, text: str, at: int, behind: int, *, is_over: bool) -> bool | None:
        """Return whether a place is in code, by the text since another one, or None if unknown."""
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


def is_in_open_fence(text: str, begin: int, end: int) -> bool:
    """Return whether a part of a text ends in fenced code that is not closed."""
    part = text[begin:end]
    has_fence = "```" in part or "~~~" in part
    return has_fence and any(not fence.is_closed for fence in fences(part)[1])
