"""JSON objects in a text, wherever they are. Pure functions."""

import json
from typing import Any, Final

Json = Any
"""A value of JSON, whose numbers are `Number`."""


class Number(str):
    """A number as it is written, so that no digit is lost when it is written again."""

    __slots__ = ()


class UnreadableJsonError(ValueError):
    """A text has no JSON object, or says two different things by its JSON."""


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
    """Return the JSON objects in a text that are within no other one.

    An object that is cut off makes all others doubtful: then none is returned. Braces that contain
    no JSON, as in "{name}", are skipped.

    Raises:
        UnreadableJsonError: An object has one key with two different values.
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
    """Return the place after the brace that closes the one here. None: it is not closed."""
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
    """Return whether two values are the same; numbers as they are written, in any order of keys."""
    # Text that looks like a number is none.
    if isinstance(one, Number) is not isinstance(other, Number):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return type(one) is type(other) and bool(one == other)


def write_json(value: Json) -> str:
    """Write a value of JSON."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {write_json(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(write_json, value))}]"
    return json.dumps(value)
