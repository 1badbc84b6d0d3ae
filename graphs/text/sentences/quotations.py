"""Where a text has code and quotations, in which nothing is said. Pure functions."""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from ..code_places import Span
from ..fences import fences
from .decoration import is_decorative

_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`]+\1(?!`)")
_IN_QUOTES = re.compile(
    # Straight quotation marks are no inches, and no apostrophes.
    r'(?<![0-9A-Za-z])"(?=\S)(?:[^"\n]|\n(?![^\S\n]*\n))+"(?![0-9A-Za-z])'
    r"|(?<!\w)'(?=\S)[^'\n]+'(?!\w)"
    r"|“[^”“]+[”“]|„[^“”„]+[“”]|«[^»«]+»|»[^»«]+«|‹[^›‹]+›"  # noqa: RUF001
    r"|「[^」]+」|『[^』]+』|《[^》]+》|(?<!\w)‘[^’\n]+’(?!\w)"  # noqa: RUF001
)
_QUOTED_LINE = re.compile(r"^[^\S\n]*(>.*)$", re.MULTILINE)


def hidden_parts(text: str, is_shown: Callable[[str], bool] | None = None) -> list[Span]:
    """Return where a text has code and quotations, in order.

    Args:
        text: The text.
        is_shown: Whether a piece of code or a quotation hides nothing. None does if None.
    """
    blocks = _blocks(text)
    pieces, at = [], 0
    for start, end in blocks:
        pieces += [text[at:start], "\n" * (end - start)]
        at = end
    rest = "".join([*pieces, text[at:]])
    code = [found.span() for found in _INLINE.finditer(rest)]
    quoted = [found.span() for found in _IN_QUOTES.finditer(rest)]
    # No sentence is about a quotation that is the whole text.
    if quoted and is_decorative(rest[: quoted[0][0]]) and is_decorative(rest[quoted[0][1] :]):
        quoted = quoted[1:]
    kept = (one for one in (*code, *quoted) if not (is_shown and is_shown(rest[slice(*one)])))
    return _merged([*blocks, *kept])


def is_hidden(span: Span, hidden: list[Span]) -> bool:
    """Return whether a part of a text is within one of these, which are in order."""
    place = bisect_right(hidden, (span[0], 0)) - 1
    # What a token itself is made of hides nothing.
    return place >= 0 and hidden[place][0] < span[0] and span[1] <= hidden[place][1]


def _blocks(text: str) -> list[Span]:
    """Return where fenced code and quoted lines are, in order."""
    spans = [found.span(1) for found in _QUOTED_LINE.finditer(text)] if ">" in text else []
    if "```" in text or "~~~" in text:
        lines, found = fences(text)
        ends = [0, *accumulate(map(len, lines))]
        spans += [(ends[one.first], ends[min(one.behind, len(lines))]) for one in found]
    return _merged(spans)


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found
