"""Helpers for the tests of the spec. No tests here."""

import json
from collections.abc import Mapping
from typing import Any

from duologue.graphs.text.names import normalize_look


def toml(value: object) -> str:
    """Write a value as inline TOML, which has no null."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(key)} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    # A JSON string is a TOML string, except for the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(data: Mapping[str, object]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in data.items())


def minimal(**fields: object) -> dict[str, Any]:
    given: dict[str, Any] = {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
    return given | fields


def letters(name: str) -> str:
    """Return a name's letters without case; equal letters make names equal."""
    return normalize_look(name)[0]


def look(name: str) -> str:
    """Return a name's look; equal looks make names equal."""
    return normalize_look(name)[1]
