"""Texts that a person approves or copies on a page: each character is visible, in its place."""

import re
from typing import Final

from markupsafe import Markup, escape

from ..common.sanitize import dump_exact_json, escape_invisible

_STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*")')


def exact(text: object) -> str:
    """Escape every character of a name, an id or a text that nobody can see but a line break."""
    return escape_invisible(str(text), keep="\n")


def exact_json(value: object) -> Markup:
    """Draw a value as JSON, for an element that is read from left to right.

    Browsers would draw neighbours in Hebrew or Arabic, and the numbers between them, from right to
    left: each string has a direction of its own, so that all of them stay in their order.
    """
    parts = _STRING.split(dump_exact_json(value, indent=2))
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def editable_json(value: object) -> str:
    """Write a value as JSON that can be edited; it is read back as the same value."""
    return dump_exact_json(value, indent=2)
