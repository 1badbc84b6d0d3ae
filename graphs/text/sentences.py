"""Sentences: their ends, their quotations, and the decoration of words. Pure functions."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final

from .farewells import FACE
from .structures import Span, fences

EMPHASIS: Final = "*_~"
"""Markdown's emphasis characters."""

_OPENING: Final = "\"'`“„«»‹›‘「『《([{<（［【〈*_~"  # noqa: RUF001
_CLOSING: Final = "\"'`”“»«›‹’」』》)]}>）］】〉*_~"  # noqa: RUF001
PAIRS: Final = dict(zip(_OPENING, _CLOSING, strict=True)) | {"“": "”", "„": "“”"}
"""The characters that open an emphasis, a quotation or a bracket, with their closing characters."""

CLOSERS: Final = {
    sign: tuple(opening for opening, closing in PAIRS.items() if sign in closing)
    for sign in "".join(PAIRS.values())
}
"""The closing characters, each with its opening characters."""

JOINTS: Final = frozenset(",،、，–—-")  # noqa: RUF001
"""Punctuation within a sentence that leads to the next word."""

_FINAL: Final = frozenset(".!¡…。！．｡।॥۔։።။།༎‧#")  # noqa: RUF001
"""Punctuation that ends a sentence without asking, and the character that begins a heading."""

_PLAIN: Final = _FINAL.union(PAIRS, CLOSERS)

_ASKS: Final = frozenset("❓❔⁉")
"""Emoji that express a question."""

_FACE_LAST: Final = re.compile(rf"(?:{FACE.pattern})\Z")
_LONGEST_FACE: Final = 3


@cache
def is_unseen(sign: str) -> bool:
    """Return whether a character is white space or invisible."""
    return sign.isspace() or unicodedata.category(sign) == "Cf"


@cache
def is_decoration(sign: str) -> bool:
    """Return whether a character is space, emphasis, a bracket, an emoji or a sentence end."""
    if sign in _PLAIN or is_unseen(sign) or "\ufe00" <= sign <= "\ufe0f":
        return True
    category = unicodedata.category(sign)
    return category in ("Ps", "Pe", "Pi", "Pf", "So", "Sk") and sign not in _ASKS


def is_decorative(text: str) -> bool:
    """Return whether a text consists of decoration alone."""
    return all(map(is_decoration, FACE.sub("", text)))


def content_start(text: str) -> int:
    """Return the index after the decoration at the beginning of a text."""
    return next((at for at, sign in enumerate(text) if not is_decoration(sign)), len(text))


def content_end(text: str, word: str = "") -> int:
    """Return the index at which the decoration at the end of a text begins.

    Args:
        text: The text.
        word: A word to keep, even if it consists of decoration.
    """
    is_part = is_unseen if word and is_decorative(word) else is_decoration
    at = len(text)
    while at:
        face = None if is_part is is_unseen else _FACE_LAST.search(text, at - _LONGEST_FACE, at)
        if face is not None:
            at = face.start()
        elif is_part(text[at - 1]):
            at -= 1
        else:
            break
    return at


def line_start(text: str, at: int) -> int:
    """Return the index at which the line of a place begins."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


@lru_cache
def _label(name: str) -> re.Pattern[str]:
    """Return a pattern for a speaker's name and a colon at the beginning of a text."""
    signs = rf"[{re.escape(EMPHASIS)}\"'`(\[\s]*"
    return re.compile(
        rf"{signs}{re.escape(name)}[{re.escape(EMPHASIS)}\"'`)\]]*\s*[:：][{re.escape(EMPHASIS)}]*",  # noqa: RUF001
        re.IGNORECASE,
    )


def unlabelled(text: str, name: str | None) -> str:
    """Return a text with the speaker's label at its beginning replaced by spaces."""
    found = None if name is None else _label(name).match(text)
    return text if found is None else " " * found.end() + text[found.end() :]


_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`]+\1(?!`)")
_IN_QUOTES = re.compile(
    # Straight quotation marks can also be inch signs or apostrophes.
    r'(?<![0-9A-Za-z])"(?=\S)(?:[^"\n]|\n(?![^\S\n]*\n))+"(?![0-9A-Za-z])'
    r"|(?<!\w)'(?=\S)[^'\n]+'(?!\w)"
    r"|“[^”“]+[”“]|„[^“”„]+[“”]|«[^»«]+»|»[^»«]+«|‹[^›‹]+›"  # noqa: RUF001
    r"|「[^」]+」|『[^』]+』|《[^》]+》|(?<!\w)‘[^’\n]+’(?!\w)"  # noqa: RUF001
)
_QUOTED_LINE = re.compile(r"^[^\S\n]*(>.*)$", re.MULTILINE)


def hidden_parts(text: str, is_shown: Callable[[str], bool] | None = None) -> list[Span]:
    """Return the parts of a text that are code or quotations, in order.

    Args:
        text: The text.
        is_shown: A function that returns whether a part is left out of the result. If None, every
            part is returned.
    """
    blocks = _blocks(text)
    pieces, at = [], 0
    for start, end in blocks:
        pieces += [text[at:start], "\n" * (end - start)]
        at = end
    rest = "".join([*pieces, text[at:]])
    code = [found.span() for found in _INLINE.finditer(rest)]
    quoted = [found.span() for found in _IN_QUOTES.finditer(rest)]
    # If the quotation is the whole text, no sentence can be about it.
    if quoted and is_decorative(rest[: quoted[0][0]]) and is_decorative(rest[quoted[0][1] :]):
        quoted = quoted[1:]
    kept = (one for one in (*code, *quoted) if not (is_shown and is_shown(rest[slice(*one)])))
    return _merged([*blocks, *kept])


def is_hidden(span: Span, hidden: list[Span]) -> bool:
    """Return whether a part of a text is within one of the hidden parts, which are sorted."""
    place = bisect_right(hidden, (span[0], 0)) - 1
    # A part that only surrounds the token itself does not hide it.
    return place >= 0 and hidden[place][0] < span[0] and span[1] <= hidden[place][1]


def _blocks(text: str) -> list[Span]:
    """Return the parts of a text that are fenced code or quoted lines, in order."""
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


_NEAR: Final = 300
"""Maximum number of characters before a place that are searched for the end of a sentence."""

_OPEN_POINT = re.compile(
    # A sentence continues after these abbreviations, and after the number of a list item.
    r"(?<!\w)(?:e\. ?g|i\. ?e|z\. ?B|d\. ?h|p\. ?ex|p\. ?ej|cf|viz|vs|bzw)\.\Z"
    r"|(?<!\w)(?:т\. ?е|напр)\.\Z"  # noqa: RUF001
    # The first of the two points in such an abbreviation.
    r"|(?<!\w)[deipzт]\.\Z"
    r"|(?:\n|[.!?:;]\s)\s*\(?\d{1,2}[.)]\Z",
    re.IGNORECASE,
)


def last_sentence(before: str, first: str) -> str:
    """Return the unfinished sentence at the end of a text. Empty if the text ends with a sentence.

    Args:
        before: The text.
        first: The character after the text.
    """
    near = before[-_NEAR:]
    begin = max(near.rfind(sign) for sign in "\n\r\u2028\u2029") + 1
    for found in _sentence_end().finditer(near, begin):
        if found.end() == len(near):
            # "config.DONE" is one word.
            is_end = not (near[-1] in ".!?" and first.isalnum())
        else:
            is_end = found[0][-1].isspace() or found[0][0] in "。！？｡"  # noqa: RUF001
        if is_end and _OPEN_POINT.search(near[: found.start() + 1]) is None:
            begin = found.end()
    return near[begin:]


@cache
def _sentence_end() -> Any:  # noqa: ANN401  # regex has no types
    # Imported here: loading it takes longer than a conversation, and few conversations need it.
    import regex  # type: ignore[import-untyped]

    emoji = r"(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)"
    signs = re.escape(f"{EMPHASIS}`\"'")
    return regex.compile(
        # Sentence ends of every script, except an ellipsis, which leaves a sentence open. Greek
        # asks with a semicolon, Tibetan ends with a stroke, Thai with a polite word.
        rf"(?:(?<!\.)(?:\p{{STerm}}|[།༎\u037e]|(?<=\p{{Greek}});)(?!\.\.)|{emoji}"
        rf"|ค่ะ|คะ|ครับ|จ้ะ|จ้า|{FACE.pattern})"
        # Brackets and quotation marks may close after it, and emphasis may open.
        rf"(?:[\p{{Pe}}\p{{Pf}}\p{{Pi}}\p{{Cf}}\p{{Emoji_Modifier}}\ufe0f\s{signs}]|{emoji}|[!?])*"
    )
