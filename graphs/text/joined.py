"""Joining the two parts of a text that was cut off. Pure functions."""

import re
from typing import Final

from .fences import fences

_LONGEST: Final = 2_000
"""How much of the end of the first part is looked for at the beginning of the second."""

_WORDS: Final = re.compile(r"(?:^|(?<=\s))\S")
"""Where the words of a text begin."""

_REOPENED: Final = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w[^\r\n]*\r?\n")
"""A fence with a label, which opens code and closes none."""


def joined(first: str, rest: str, *, begins_word: bool = False) -> str:
    """Join what was said before a text was cut off and what was said after it.

    The second part may begin in the middle of a word, with the word or the line at which the first
    one ends, or with the whole of it. The result always begins with the first part.

    Args:
        first: What was said before.
        rest: What was said after it.
        begins_word: Whether that is known to begin with a word.
    """
    in_code = any(not fence.is_closed for fence in fences(first)[1])
    if in_code and not rest.startswith(first):
        rest = _REOPENED.sub("", rest, count=1) if _REOPENED.match(rest) else rest
    again = _overlap(first, rest)
    if again:
        return first + rest[again:]
    goes_on = first[-1:].islower() or first[-1:] in ".!?:;,)"
    is_new = (begins_word or rest[:1].isupper()) and goes_on
    return f"{first} {rest}" if is_new and not in_code else first + rest


def _overlap(first: str, rest: str) -> int:
    """How much of the second part was said at the end of the first, from some word on."""
    if rest.startswith(first):
        return len(first)
    begun = rest.lstrip()
    space, end = len(rest) - len(begun), first[-_LONGEST:]
    for word in _WORDS.finditer(end):
        again = end[word.start() :]
        # Behind a space a word is a new one, which may well begin like the last.
        is_part = space and re.match(r"\w", begun[len(again) :])
        if begun.startswith(again) and re.search(r"\w", again) and not is_part:
            return space + len(again)
    return 0
