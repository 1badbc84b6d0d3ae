"""The items of a list in a text. Pure functions."""

import re
from typing import Final

from .fences import markdown_parser

_MARK: Final = re.compile(r"\s*(?:\d+[.)]|[-*+])\s*")


def find_list_items(text: str) -> list[str]:
    """Return the items of the outermost Markdown lists in a text, without numbers and bullets.

    A line below an item belongs to it if the line is indented. Text before, between and after the
    lists is left out.
    """
    lines = text.split("\n")
    ranges = [
        token.map
        for token in markdown_parser().parse(text)
        if token.type == "list_item_open" and token.level == 1 and token.map is not None
    ]
    return [item for first, behind in ranges if (item := _read_item(lines[first:behind]))]


def _read_item(lines: list[str]) -> str:
    first, *others = lines
    below = [line.strip() for line in others if not line or line[0].isspace()]
    return "\n".join([_MARK.sub("", first, count=1), *below]).strip()
