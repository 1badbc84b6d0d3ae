"""Checks of a model's JSON: whether checkpoints, prompts and screens can contain it. Pure."""

import math
from typing import Any

from ...graphs.common.sanitize import UNSTORABLE

_LEAST, _MOST = -(2**63), 2**64 - 1
"""Smallest and largest integer in msgpack, the format of checkpoints."""
_DEEPEST = 100
"""Maximum nesting depth. Logs that are nested deeper than about 200 levels can't be read."""

TOO_DEEP = f"they are nested more than {_DEEPEST} levels deep"
TOO_LARGE = "a whole number has more than 64 bits; write it as text"


def why_unstorable(fields: dict[str, Any]) -> str | None:
    """Return why fields can't be stored, sent again or shown, or None if they can."""
    # Without recursion, since deeply nested fields would exceed Python's limit.
    left: list[tuple[str, int, Any]] = [("", 1, fields)]
    while left:
        at, depth, value = left.pop()
        if depth > _DEEPEST:
            return TOO_DEEP
        inside: list[tuple[str, Any]] = []
        if isinstance(value, dict):
            keys = [
                _fault_of(key) if isinstance(key, str) else "a key is not text" for key in value
            ]
            if fault := next(filter(None, keys), None):
                return f"{_at(at)}{fault}"
            inside = list(value.items())
        elif isinstance(value, list):
            inside = [(str(place), each) for place, each in enumerate(value)]
        elif fault := _fault_of(value):
            return f"{_at(at)}{fault}"
        left.extend((f"{at}.{key}".lstrip("."), depth + 1, each) for key, each in inside)
    return None


def _at(place: str) -> str:
    return f"at {place}, " if place else ""


def _fault_of(value: object) -> str | None:
    """Return what is wrong with a single value, or None."""
    match value:
        case None | bool():
            return None
        case str():
            if (found := UNSTORABLE.search(value)) is None:
                return None
            fault = "U+0000" if found[0] == "\0" else "half a surrogate pair"
            return f"a text contains {fault}"
        case int():
            return None if _LEAST <= value <= _MOST else TOO_LARGE
        case float():
            return None if math.isfinite(value) else "a number is not finite"
        case _:
            return f"a {type(value).__name__} is not JSON"
