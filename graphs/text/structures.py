"""Structures in a text: fenced blocks of code, and JSON objects. Pure functions.

Code is also found in a text that arrives in pieces.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


MARKS = ("```", "~~~")
"""The characters that close a fence."""

_LINES = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
"""The lines of a text as Markdown counts them, including their line breaks."""


@dataclass(frozen=True)
class Fence:
    """A block of fenced code in Markdown."""

    first: int
    """The index of the line with the opening fence, from 0."""
    behind: int
    """The index of the line after the block."""
    markup: str
    """The opening fence, such as three backticks."""
    language: str | None
    """The first word after the opening fence, in lower case, without attributes as in ``{.python}``
    or ``python:file.py``. None if there is no word.
    """
    content: str
    """The code, without its last line break."""
    is_closed: bool
    """Whether the block has a closing fence."""

    @property
    def is_json(self) -> bool:
        """True if the block may contain JSON."""
        return self.language in (None, "json")

    def is_closed_by(self, stop: Sequence[str]) -> bool:
        """Return whether the closing fence is one of the texts at which the model stopped."""
        signs = [set(text.strip()) for text in stop]
        return set(self.markup) in signs


def fences(text: str) -> tuple[list[str], list[Fence]]:
    """Return the lines of a text and its fenced code, including code in lists and quotations."""
    lines: list[str] = _LINES.findall(text)
    if "```" not in text and "~~~" not in text:
        # Parsing Markdown takes a second per megabyte.
        return lines, []
    whole = text if not text or text.endswith(("\r", "\n")) else f"{text}\n"
    found = [
        Fence(
            first=token.map[0],
            behind=token.map[1],
            markup=token.markup,
            language=_language(token.info),
            content=token.content.removesuffix("\n"),
            # The range includes the opening fence and each line of the content.
            is_closed=token.map[1] - token.map[0] > token.content.count("\n") + 1,
        )
        for token in markdown_parser().parse(whole)
        if token.type == "fence" and token.map is not None
    ]
    return lines, found


@cache
def markdown_parser() -> "MarkdownIt":
    """Return a parser of Markdown that finds blocks only."""
    # Imported here, because only a text with a fence or a list needs its 60 modules.
    from markdown_it import MarkdownIt

    # Only blocks matter. A line in angle brackets, such as `<answer>`, must not hide a fence below
    # it.
    return MarkdownIt("commonmark").disable(["inline", "text_join", "html_block"])


def _language(label: str) -> str | None:
    word = next(iter(label.casefold().split()), None)
    # Some models write attributes around the language, or directly after it.
    return word and (re.split(r"[:,{}]", word.strip("{}.="))[0] or word)


def prose_places(text: str) -> list[tuple[int, str]]:
    """Return the lines of a text outside fenced code, each with its first index."""
    lines, found = fences(text)
    fenced = {place for fence in found for place in range(fence.first, fence.behind)}
    starts = accumulate(map(len, lines), initial=0)
    numbered = enumerate(zip(starts, lines, strict=False))
    return [one for place, one in numbered if place not in fenced]


def without_fences(text: str) -> str:
    """Return JSON without the Markdown fence that models often write around it."""
    text = text.strip()
    lines, found = fences(text)
    whole = [one for one in found if one.is_json and (one.first, one.behind) == (0, len(lines))]
    return whole[0].content if whole else text


Span = tuple[int, int]
"""A part of a text: the index of the first character, and the index after the last one."""

_INLINE = re.compile(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_LONGEST = 4000
"""Maximum distance between inline code and the line's beginning, in characters."""


class CodeFinder:
    """A finder of code in a growing text.

    It reads whole lines, and only as many as the answer to a question needs.
    """

    def __init__(self) -> None:
        self._window = (0, 0)
        self._blocks: list[Span] = []
        self._line = (0, 0)
        self._inline: list[Span] = []

    def contains(self, text: str, at: int, behind: int, *, is_over: bool) -> bool | None:
        """Return whether index `at` is in code, judging by the text from index `behind` on.

        None if the answer depends on text that has not arrived yet.
        """
        first = max(behind, at - _LONGEST)
        first = max(first, text.rfind("\n", first, at) + 1)
        is_fenced = "```" in text[behind:at] or "~~~" in text[behind:at]
        if "`" not in text[first:at] and not is_fenced:
            return False
        end = text.find("\n", at, first + _LONGEST) + 1 or min(len(text), first + _LONGEST)
        if end == len(text) and text[-1] != "\n" and not is_over:
            return None
        if is_fenced and (self._window[0] != behind or self._window[1] < end):
            # Twice as far as needed, so that the time stays linear in the number of tags.
            far = text.rfind("\n", 0, 2 * end - behind) + 1
            self._window = (behind, max(end, far))
            self._blocks = fenced_spans(text[behind : self._window[1]], behind)
        if self._line != (first, end):
            self._line = (first, end)
            self._inline = [one.span() for one in _INLINE.finditer(text, first, end)]
        return (is_fenced and _has(self._blocks, at)) or _has(self._inline, at)


def _has(spans: list[Span], at: int) -> bool:
    place = bisect_right(spans, at, key=itemgetter(0)) - 1
    return place >= 0 and at < spans[place][1]


def fenced_spans(text: str, begin: int = 0) -> list[Span]:
    """Return the places of the fenced code in a text that begins at an index."""
    lines, found = fences(text)
    ends = [*accumulate(map(len, lines), initial=begin)]
    return [(ends[one.first], ends[min(one.behind, len(lines))]) for one in found]


def is_in_open_fence(text: str) -> bool:
    """Return whether a text ends within fenced code that is not closed."""
    return any(not fence.is_closed for fence in fences(text)[1])


def hide(text: str, parts: Sequence[Span], sign: str) -> str:
    """Return a text of the same length in which a character replaces all others in some parts."""
    pieces, at = list[str](), 0
    for start, end in parts:
        pieces += [text[at:start], sign * (end - start)]
        at = end
    return "".join([*pieces, text[at:]])


Json = Any
"""A JSON value. Its numbers are instances of `Number`."""


class Number(str):
    """A number as written in the text, so that writing it again changes no digit."""

    __slots__ = ()


class UnreadableJsonError(ValueError):
    """A text that contains no JSON object, or contradictory JSON."""


def _object_of(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if not is_equal(found.setdefault(key, value), value):
            raise UnreadableJsonError(f"the key {key!r} has two different values")
    return found


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object_of,
    parse_float=Number,
    parse_int=Number,
    parse_constant=Number,
    # Models write line breaks within strings.
    strict=False,
)


_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
"""A string, or the comma after the last item of an object or a list, which models write."""


def find_objects(text: str) -> list[dict[str, Json]]:
    """Return the outermost JSON objects in a text.

    If an object is cut off, the others are doubtful as well, and the result is empty. Braces
    without JSON in them, as in "{name}", are skipped.

    Raises:
        UnreadableJsonError: An object has two different values for one key.
    """
    found: list[dict[str, Json]] = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
            found.append(value)
        except UnreadableJsonError:
            raise
        except (ValueError, RecursionError):
            closed = _end_of_braces(text, at)
            if closed is None:
                return []
            end = closed
            if (repaired := _LAST_COMMA.sub(r"\1", text[at:end])) != text[at:end]:
                found += find_objects(repaired)
        at = text.find("{", end)
    return found


def _end_of_braces(text: str, begin: int) -> int | None:
    """Return the index after the brace that closes the brace at `begin`, or None if none does."""
    depth, is_quoted, place = 0, False, begin
    while place < len(text):
        sign = text[place]
        if sign == '"':
            is_quoted = not is_quoted
        elif sign == "\\" and is_quoted:
            place += 1
        elif not is_quoted and sign in "{}":
            depth += 1 if sign == "{" else -1
            if not depth:
                return place + 1
        place += 1
    return None


def is_equal(one: Json, other: Json) -> bool:
    """Return whether two values are equal. Numbers are compared as text, keys in any order."""
    # A string that looks like a number is not equal to the number.
    if isinstance(one, Number) is not isinstance(other, Number):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return type(one) is type(other) and bool(one == other)


def write_json(value: Json) -> str:
    """Return a value as JSON text."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {write_json(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(write_json, value))}]"
    return json.dumps(value)
