"""JSON objects anywhere in a text. Pure functions."""

import json
from typing import Any, Final

Json = Any
"""A JSON value. Its numbers are instances of `Number`."""


class Number(str):
    """A number as written in the text, so that writing it again changes no digit."""

    __slots__ = ()


class UnreadableJsonError(ValueError):
    """A text that contains no JSON object, or contradictory JSON."""


def _object_of(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if not is_equal(found.setdefault(key, value), value):
            raise UnreadableJsonError(f"the key {key!r} has two different values")
    return found


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object_of,
    parse_float=Number,
    parse_int=Number,
    parse_constant=Number,
    # Models write line breaks within strings.
    strict=False,
)


def find_objects(text: str) -> list[dict[str, Json]]:
    """Return the outermost JSON objects in a text.

    If an object is cut off, the others are doubtful as well, and the result is empty. Braces
    without JSON in them, as in "{name}", are skipped.

    Raises:
        UnreadableJsonError: An object has two different values for one key.
    """
    found: list[dict[str, Json]] = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
            found.append(value)
        except UnreadableJsonError:
            raise
        except (ValueError, RecursionError):
            closed = _end_of_braces(text, at)
            if closed is None:
                return []
            end = closed
        at = text.find("{", end)
    return found


def _end_of_braces(text: str, begin: int) -> int | None:
    """Return the index after the brace that closes the brace at `begin`, or None if none does."""
    depth, is_quoted, place = 0, False, begin
    while place < len(text):
        sign = text[place]
        if sign == '"':
            is_quoted = not is_quoted
        elif sign == "\\" and is_quoted:
            place += 1
        elif not is_quoted and sign in "{}":
            depth += 1 if sign == "{" else -1
            if not depth:
                return place + 1
        place += 1
    return None


def is_equal(one: Json, other: Json) -> bool:
    """Return whether two values are equal. Numbers are compared as text, keys in any order."""
    # A string that looks like a number is not equal to the number.
    if isinstance(one, Number) is not isinstance(other, Number):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return type(one) is type(other) and bool(one == other)


def write_json(value: Json) -> str:
    """Return a value as JSON text."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {write_json(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(write_json, value))}]"
    return json.dumps(value)
