"""Escaping and shortening text of models and users before it is shown. Pure functions.

Two strengths, each with one function for text and one for JSON:

- `clean` is for what people read: control and direction characters are escaped, and all that
  languages and emoji need stays, such as the joiners between letters.
- `escape_invisible` is for what people decide on or copy: arguments that they approve, ids, names,
  code. Every character that can't be seen is escaped.
"""

import json
import re
from typing import Final

# Hebrew and Arabic need these; they turn no more than a letter does, but can't be seen.
_MARKS = "\u061c\u200e\u200f"

# These turn the direction of what follows, so that a line can look like another one, or change
# how it is drawn and are deprecated by Unicode.
_TURNING = f"{_MARKS}\u202a-\u202e\u2066-\u206f\ufff9-\ufffb"

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"

_UNREADABLE: Final = re.compile(f"[{_CONTROLS}{_TURNING}]")

# Printable for Python, and yet nothing is seen: the characters that Unicode calls ignorable, and
# the letters, a pattern and a note that are blank.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)


LONGEST: Final = 2000
"""How long an error may be, in characters."""


def clean(text: str) -> str:
    """Escape what would move a terminal's cursor, change its state or turn the direction of text.

    Line breaks and tabs stay. The result has no character that is escaped once more.
    """
    return _UNREADABLE.sub(_escape_match, _lines(text))


def clean_page(text: str) -> str:
    """Escape as `clean` does, and keep the direction marks that Hebrew and Arabic need."""
    return _UNREADABLE.sub(
        lambda found: found[0] if found[0] in _MARKS else _escape_match(found), _lines(text)
    )


def escape_invisible(text: str, keep: str = "") -> str:
    r"""Escape every character that nobody can see, such as ``\n``, ``\x1b`` or ``\u200b``.

    The only blank that stays is the space. Emoji that are joined are taken apart.

    Args:
        text: The text.
        keep: Characters that stay as they are, such as a line break.
    """
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    return "".join(
        one if one in keep or _is_visible(one) else _escape_character(one) for one in text
    )


def dump_exact_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in which every character that nobody can see is escaped.

    It is read back as the same value. Letters that only look alike, as in two scripts, stay.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return escape_invisible_json(text)


def escape_invisible_json(text: str) -> str:
    """Escape in JSON every character that nobody can see; it is read back as the same value."""
    if text.isprintable() and _BLANK.search(text) is None:
        return text
    # Outside of strings JSON has no other characters of this kind.
    return "".join(
        one if one in "\n\r\t" or _is_visible(one) else json.dumps(one)[1:-1] for one in text
    )


def escape_markdown(text: str) -> str:
    """Write text on one line with nothing in it that Markdown reads."""
    return re.sub(r"([\\`*_\[\]<>&#~|])", r"\\\1", " ".join(text.split()))


def escape_json(text: str) -> str:
    """Make JSON harmless to a terminal, and to programs that split text into lines."""
    return _UNSAFE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_UNSAFE_JSON: Final = re.compile(f"[\x7f-\x9f\u2028\u2029{_TURNING}]")


def shorten(text: str) -> str:
    """Escape text that quotes others, and leave out its middle if it is too long for an error."""
    # Of a long text only the parts that stay are escaped.
    whole = text if len(text) > LONGEST else clean(text)
    if len(whole) <= LONGEST:
        return whole
    before, after = LONGEST * 3 // 5, LONGEST // 5
    front, back = clean(whole[:before])[:before], clean(whole[-after:])[-after:]
    return f"{front} [{len(whole) - before - after:,} characters left out] {back}"


def excerpt(text: str, most: int = 300) -> str:
    """Give text from elsewhere as a part of a sentence."""
    shown = " ".join(clean(text[:most]).split())
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
    # `unicode_escape` leaves Latin-1 and ASCII that it calls printable, which none of these is.
    return character.encode("unicode_escape").decode()
