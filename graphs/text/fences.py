"""Code in a text: fenced blocks, and code in a text that grows. Pure functions."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


MARKS = ("```", "~~~")
"""What closes a fence."""

_LINES = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
"""The lines of a text as Markdown counts them, with their ends."""


@dataclass(frozen=True)
class Fence:
    """Fenced code in Markdown."""

    first: int
    """The line that opens it, counted from 0."""
    behind: int
    """The line after it."""
    markup: str
    """What opens it, such as three backticks."""
    language: str | None
    """The first word after that, in lower case, without attributes as in ``{.python}`` or
    ``python:file.py``."""
    content: str
    """What stands in it, without its last line break."""
    is_closed: bool
    """Whether it has a closing fence."""

    @property
    def is_json(self) -> bool:
        """Whether JSON may stand in it."""
        return self.language in (None, "json")

    def is_closed_by(self, stop: Sequence[str]) -> bool:
        """Whether its closing fence is one of the texts at which the model stopped."""
        signs = [set(text.strip()) for text in stop]
        return set(self.markup) in signs


def fences(text: str) -> tuple[list[str], list[Fence]]:
    """Find fenced code, in lists and quotations too."""
    lines: list[str] = _LINES.findall(text)
    if "```" not in text and "~~~" not in text:
        # Reading Markdown takes a second for a megabyte.
        return lines, []
    whole = text if not text or text.endswith(("\r", "\n")) else f"{text}\n"
    found = [
        Fence(
            first=token.map[0],
            behind=token.map[1],
            markup=token.markup,
            language=_language(token.info),
            content=token.content.removesuffix("\n"),
            # Each line of the content ends with a line break, and the opening fence is one more.
            is_closed=token.map[1] - token.map[0] > token.content.count("\n") + 1,
        )
        for token in _markdown().parse(whole)
        if token.type == "fence" and token.map is not None
    ]
    return lines, found


@cache
def _markdown() -> "MarkdownIt":
    # Its 60 modules are imported only for a text with a fence.
    from markdown_it import MarkdownIt

    # Only blocks matter. A line in angle brackets, such as `<answer>`, must not hide a fence below.
    return MarkdownIt("commonmark").disable(["inline", "text_join", "html_block"])


def _language(label: str) -> str | None:
    word = next(iter(label.casefold().split()), None)
    # Some write attributes around it, or right after it.
    return word and (re.split(r"[:,{}]", word.strip("{}.="))[0] or word)


def prose_places(text: str) -> list[tuple[int, str]]:
    """Return each line of a text that is not inside fenced code, with the place where it begins."""
    lines, found = fences(text)
    fenced = {place for fence in found for place in range(fence.first, fence.behind)}
    starts = accumulate(map(len, lines), initial=0)
    numbered = enumerate(zip(starts, lines, strict=False))
    return [one for place, one in numbered if place not in fenced]


def without_fences(text: str) -> str:
    """Take the Markdown fence away that models like to put around JSON."""
    text = text.strip()
    lines, found = fences(text)
    whole = [one for one in found if one.is_json and (one.first, one.behind) == (0, len(lines))]
    return whole[0].content if whole else text


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
