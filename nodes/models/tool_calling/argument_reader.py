"""Reads one argument of a call of a tool while it arrives, piece by piece."""

import json
import re

from ....graphs.log.call_text import TO_USER

_WHOLE = re.compile(
    r'(?:[^"\\\ud800-\udfff]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""What of a JSON string can be read as it stands: whole characters, surrogate pairs together."""

_BEGUN = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?"
)
"""A character of which more has to come."""

_SIGN = re.compile(r'[{}\[\]",:]')
_IN_STRING = re.compile(r'[^"\\]*')


class Argument:
    """Reads ``to_user`` out of a call's arguments while they arrive.

    Each character is looked at once, whatever stands before or after the argument; only what
    stands before it is read a second time, to know that it is JSON. Where it is not, or the text
    holds half a character, the call is a broken one, and no more of it is told.

    pydantic's reading of partial JSON is no way to do it: it refuses line breaks within strings,
    which our reading of calls takes, does not say whether a string has ended, and begins anew with
    each piece.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether no more can come."""
        self._is_silent = False
        self._came: list[str] = []
        """All that has come before the text."""
        self._where = self._between
        self._depth = 0
        self._key = ""
        """The latest key of the outermost object."""
        self._is_key = False
        """Whether the next string of that object is a key."""
        self._left = ""
        """The end of what came, of which more is needed."""

    def read(self, piece: str) -> str:
        """Take the next piece of the arguments' JSON."""
        if self.is_over or self._is_silent:
            return ""
        self._came.append(piece)
        text, self._left = self._left + piece, ""
        at, told = 0, ""
        while at < len(text) and not self.is_over and not self._is_silent:
            at, new = self._where(text, at)
            told += new
        return told

    def _between(self, text: str, at: int) -> tuple[int, str]:
        """Outside of strings: look for the next sign that means something."""
        found = _SIGN.search(text, at)
        if found is None:
            return len(text), ""
        sign = found.group()
        if sign in "{[":
            self._depth += 1
            self._is_key = self._depth == 1
            self._is_silent = self._is_key and sign == "["
        elif sign in "}]":
            self._depth -= 1
            self.is_over = self._depth == 0
        elif sign == '"':
            self._open(text[found.start() :])
        elif self._depth == 1:
            self._is_key = sign == ","
        return found.end(), ""

    def _open(self, text: str) -> None:
        """Go into the string that begins here."""
        if self._depth != 1:
            self._where = self._in_another
        elif self._is_key:
            self._key, self._where = "", self._in_key
        elif self._key == TO_USER and self._is_value("".join(self._came).removesuffix(text)):
            self._where = self._in_text
        else:
            self._where = self._in_another

    def _is_value(self, before: str) -> bool:
        """Whether a value can come after this; where it can't, the call is a broken one."""
        try:
            json.loads(f"{before}null}}", strict=False)
        except (ValueError, RecursionError):
            self._is_silent = True
        return not self._is_silent

    def _in_another(self, text: str, at: int) -> tuple[int, str]:
        """Within a string that is neither a key nor the text: look for its end alone."""
        ends = _end_of_string(text, at)
        if ends is None:
            self._left = _half(text)
            return len(text), ""
        self._where = self._between
        return ends + 1, ""

    def _in_key(self, text: str, at: int) -> tuple[int, str]:
        ends = _end_of_string(text, at)
        if ends is None:
            self._left = _half(text)
            self._key += text[at : len(text) - len(self._left)]
            return len(text), ""
        self._key = _unescaped(self._key + text[at:ends])
        self._where = self._between
        return ends + 1, ""

    def _in_text(self, text: str, at: int) -> tuple[int, str]:
        found = _WHOLE.match(text, at)
        assert found is not None  # noqa: S101  # it may be empty
        self._left = text[found.end() :]
        if self._left.startswith('"'):
            self.is_over = True
        elif self._left:
            self._is_silent = _BEGUN.fullmatch(self._left) is None
        return len(text), _unescaped(found.group())


def _end_of_string(text: str, at: int) -> int | None:
    """Where a string ends; None where it does not end here."""
    while True:
        found = _IN_STRING.match(text, at)
        at = found.end() if found is not None else at
        if at >= len(text):
            return None
        if text[at] == '"':
            return at
        # What comes after a backslash ends nothing.
        at += 2


def _half(text: str) -> str:
    """The backslash at the end of a part of a string, where it belongs to what is to come."""
    return "\\" if (len(text) - len(text.rstrip("\\"))) % 2 else ""


def _unescaped(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        # An odd key is no key of ours; in the text there is none.
        return ""
