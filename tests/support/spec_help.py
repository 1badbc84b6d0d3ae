"""What the tests of the spec share. No tests here."""

import json
from collections.abc import Mapping
from typing import Any

from duologue.graphs.text.words import normalize_look


def toml(value: object) -> str:
    """Write a value as inline TOML, in which null does not exist."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(key)} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    # JSON's strings are TOML's, but for the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(data: Mapping[str, object]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in data.items())


def minimal(**fields: object) -> dict[str, Any]:
    given: dict[str, Any] = {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
    return given | fields


def letters(name: str) -> str:
    """What a name is the same by: its letters without case."""
    return normalize_look(name)[0]


def look(name: str) -> str:
    """What a name is the same by: how its letters look."""
    return normalize_look(name)[1]
