"""Escaping and shortening text of models and users before it is shown. Pure functions."""

import re
import unicodedata
from typing import Final

# Hebrew and Arabic need these; they turn no more than a letter does, but can't be seen.
_MARKS = {"\u061c", "\u200e", "\u200f"}

# These turn the direction of what follows, so that a line can look like another one.
_TURNING = {
    *_MARKS,
    *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))),
}


LONGEST: Final = 2000
"""How long an error may be, in characters."""


def clean(text: str) -> str:
    """Make text harmless to a terminal."""
    return "".join(map(_visible, _lines(text)))


def clean_page(text: str) -> str:
    """Make a page of prose harmless to a terminal that it may be read in."""
    return "".join(one if one in _MARKS else _visible(one) for one in _lines(text))


def in_markdown(text: str) -> str:
    """Write text on one line with nothing in it that Markdown reads."""
    return re.sub(r"([\\`*_\[\]<>&#~|])", r"\\\1", " ".join(text.split()))


def escaped(text: str) -> str:
    """Make JSON harmless to a terminal, and to programs that split text into lines."""
    return text.translate(_ESCAPED)


_ESCAPED = {
    ord(sign): f"\\u{ord(sign):04x}"
    for sign in (*map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", *_TURNING)
}


def short(text: str) -> str:
    """Make text that quotes others short enough for an error: its middle is left out."""
    if len(text) <= LONGEST:
        return text
    front, back = text[: LONGEST * 3 // 5], text[-LONGEST // 5 :]
    left_out = len(text) - len(front) - len(back)
    return f"{front} [{left_out:,} characters left out] {back}"


def excerpt(text: str, most: int = 300) -> str:
    """Give text from elsewhere as a part of a sentence."""
    shown = " ".join(clean(text[:most]).split())
    return shown if len(text) <= most else f"{shown} … ({len(text):,} characters in all)"


def _lines(text: str) -> str:
    return re.sub("\r\n|[\u2028\u2029]", "\n", text)


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    if character in _TURNING or unicodedata.category(character) in ("Cc", "Cs"):
        # Unicode has a picture of each of the first 32 control characters.
        return chr(0x2400 + ord(character)) if ord(character) < 32 else "\N{REPLACEMENT CHARACTER}"
    return character
