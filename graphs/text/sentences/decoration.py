"""What may surround a word without changing what it says. Pure functions."""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Final

from ..farewells import FACE

EMPHASIS: Final = "*_~"
"""Markdown's signs of emphasis."""

_OPENING: Final = "\"'`“„«»‹›‘「『《([{<（［【〈*_~"  # noqa: RUF001
_CLOSING: Final = "\"'`”“»«›‹’」』》)]}>）］】〉*_~"  # noqa: RUF001
PAIRS: Final = dict(zip(_OPENING, _CLOSING, strict=True)) | {"“": "”", "„": "“”"}
"""The signs that open an emphasis, a quotation or a bracket, each with those that close it."""

CLOSERS: Final = {
    sign: tuple(opening for opening, closing in PAIRS.items() if sign in closing)
    for sign in "".join(PAIRS.values())
}
"""The signs that close one, each with those that open it."""

JOINTS: Final = frozenset(",،、，–—-")  # noqa: RUF001
"""Punctuation that only leads to what comes next."""

_FINAL: Final = frozenset(".!¡…。！．｡।॥۔։።။།༎‧#")  # noqa: RUF001
"""Final punctuation that asks nothing, and the sign of a heading."""

_PLAIN: Final = _FINAL.union(PAIRS, CLOSERS)

_ASKS: Final = frozenset("❓❔⁉")
"""Emoji that ask something."""

_FACE_LAST: Final = re.compile(rf"(?:{FACE.pattern})\Z")
_LONGEST_FACE: Final = 3


@cache
def is_unseen(sign: str) -> bool:
    """Return whether a character is white space or invisible."""
    return sign.isspace() or unicodedata.category(sign) == "Cf"


@cache
def is_decoration(sign: str) -> bool:
    """Whether a character only decorates: white space, emphasis, a bracket, an emoji, the end."""
    if sign in _PLAIN or is_unseen(sign) or "\ufe00" <= sign <= "\ufe0f":
        return True
    category = unicodedata.category(sign)
    return category in ("Ps", "Pe", "Pi", "Pf", "So", "Sk") and sign not in _ASKS


def is_decorative(text: str) -> bool:
    """Return whether a text has nothing but decoration."""
    return all(map(is_decoration, FACE.sub("", text)))


def content_start(text: str) -> int:
    """Return where the decoration ends that a text begins with."""
    return next((at for at, sign in enumerate(text) if not is_decoration(sign)), len(text))


def content_end(text: str, word: str = "") -> int:
    """Return where the decoration begins that a text ends with.

    Args:
        text: The text.
        word: A word that is none, even if it has the same signs.
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
    """Return where the line of a place begins."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


@lru_cache
def _label(name: str) -> re.Pattern[str]:
    """Return what finds a speaker's name and a colon at the beginning of a text."""
    signs = rf"[{re.escape(EMPHASIS)}\"'`(\[\s]*"
    return re.compile(
        rf"{signs}{re.escape(name)}[{re.escape(EMPHASIS)}\"'`)\]]*\s*[:：][{re.escape(EMPHASIS)}]*",  # noqa: RUF001
        re.IGNORECASE,
    )


def unlabelled(text: str, name: str | None) -> str:
    """Return a text with white space for the name of its speaker at its beginning."""
    found = None if name is None else _label(name).match(text)
    return text if found is None else " " * found.end() + text[found.end() :]
