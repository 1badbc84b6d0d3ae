"""Text of models and users, made harmless to whatever shows it. Pure."""

import unicodedata

# These turn the direction of what follows, so that a line can look like another one.
_TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


def clean(text: str) -> str:
    """Make text harmless to a terminal, and to a page that may be read in one.

    Args:
        text: Anything.

    Returns:
        The text with signs of their own in place of control characters; line ends and tabs stay.
    """
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    if character in _TURNING or unicodedata.category(character) in ("Cc", "Cs"):
        # Unicode has a picture of each of the first 32 control characters.
        return chr(0x2400 + ord(character)) if ord(character) < 32 else "\N{REPLACEMENT CHARACTER}"
    return character
