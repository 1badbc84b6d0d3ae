"""Pure functions that escape and shorten text of models and users before it is shown.

There are two strengths, each with one function for text and one for JSON:

- `clean` is for text that people only read: it escapes control and direction characters, and keeps
  all characters that languages and emoji need, such as the joiners between letters.
- `escape_invisible` is for text that people approve or copy: tool arguments, ids, names, code. It
  escapes every invisible character.
"""

import json
import re
from typing import Final

from .addresses import hide_addresses

# Hebrew and Arabic need these. They affect the direction no more than a letter does, but are
# invisible.
_MARKS = "\u061c\u200e\u200f"

# These change the direction of the text after them, so that a line can look like another one, or
# change its rendering and are deprecated by Unicode.
_TURNING = f"{_MARKS}\u202a-\u202e\u2066-\u206f\ufff9-\ufffb"

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"

_UNREADABLE: Final = re.compile(f"[{_CONTROLS}{_TURNING}]")

# Printable for Python, but invisible: the characters that Unicode calls ignorable, and the letters,
# a pattern and a note that are blank.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)


UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that no text of a store contains: PostgreSQL refuses U+0000, and half a surrogate pair
has no encoding."""


def storable(text: str) -> str:
    """Return text that any store can contain: each character that it refuses becomes "?"."""
    return UNSTORABLE.sub("?", text)


LONGEST: Final = 2000
"""Maximum length of an error, in characters."""

_LONGEST_ADDRESS: Final = 2000
"""Maximum length of an address whose secrets are found if it is at the end of an excerpt."""


def clean(text: str) -> str:
    """Escape characters that affect a terminal's cursor or state, or the direction of text.

    Line breaks and tabs stay. A second call does not change the result.
    """
    return _UNREADABLE.sub(_escape_match, _lines(text))


def clean_page(text: str) -> str:
    """Escape as `clean` does, but keep the direction marks that Hebrew and Arabic need."""
    return _UNREADABLE.sub(
        lambda found: found[0] if found[0] in _MARKS else _escape_match(found), _lines(text)
    )


def escape_invisible(text: str, keep: str = "") -> str:
    r"""Escape every invisible character, such as ``\n``, ``\x1b`` or ``\u200b``.

    The space is the only blank character that stays. Joined emoji are split.

    Args:
        text: The text.
        keep: Characters that are not escaped, such as a line break.
    """
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    return "".join(
        one if one in keep or _is_visible(one) else _escape_character(one) for one in text
    )


def dump_exact_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in which every invisible character is escaped.

    Reading the JSON returns the same value. Letters that look alike, as in two scripts, stay.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return escape_invisible_json(text)


def escape_invisible_json(text: str) -> str:
    """Escape every invisible character in JSON; its value does not change."""
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    # Outside of strings, JSON has no other invisible characters.
    return "".join(
        one if one in "\n\r\t" or _is_visible(one) else json.dumps(one)[1:-1] for one in text
    )


def escape_markdown(text: str) -> str:
    """Return text on one line with all Markdown syntax escaped."""
    return re.sub(r"([\\`*_\[\]<>&#~|])", r"\\\1", " ".join(text.split()))


def escape_json(text: str) -> str:
    """Escape JSON for terminals, and for programs that split text into lines."""
    return _UNSAFE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_UNSAFE_JSON: Final = re.compile(f"[\x7f-\x9f\u2028\u2029{_TURNING}]")


def shorten(text: str) -> str:
    """Return the text of an error, escaped and without secrets in addresses.

    The middle is left out if the text is longer than `LONGEST`.
    """
    # Only the remaining parts of a long text are read.
    whole = text if len(text) > 2 * LONGEST else clean(hide_addresses(text))
    if len(whole) <= LONGEST:
        return whole
    before, after = LONGEST * 3 // 5, LONGEST // 5
    front = clean(hide_addresses(whole[: before + _LONGEST_ADDRESS]))[:before]
    back = clean(hide_addresses(whole[-after - _LONGEST_ADDRESS :]))[-after:]
    return f"{front} [{len(whole) - before - after:,} characters left out] {back}"


def excerpt(text: str, most: int = 300) -> str:
    """Return an excerpt of a text for use inside a sentence.

    It is escaped, on one line, and without secrets in addresses.
    """
    shown = hide_addresses(text[: most + _LONGEST_ADDRESS])[:most]
    shown = " ".join(clean(shown).split())
    if max(len(text), len(shown)) <= most:
        return shown
    return f"{shown[:most]} … ({len(text):,} characters in all)"


def _lines(text: str) -> str:
    return re.sub("\r\n|[\u2028\u2029]", "\n", text)


def _is_visible(character: str) -> bool:
    return character.isprintable() and _BLANK.match(character) is None


def _escape_match(found: re.Match[str]) -> str:
    return _escape_character(found[0])


def _escape_character(character: str) -> str:
    # `unicode_escape` does not change printable Latin-1 and ASCII, but no such character gets here.
    return character.encode("unicode_escape").decode()
