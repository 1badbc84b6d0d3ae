"""Reducing JSON schemas to the subset that servers make grammars of."""

from collections.abc import Mapping
from typing import Any

_KEPT = frozenset(
    {"enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
"""What of a schema is sent as it is. Servers make a grammar of it, and some refuse what they can't;
what is left out is checked when the tool is run."""

_LONGEST = 100
"""The largest count of a list's items that is sent: grammars grow with it."""

_ANYTHING = ["string", "number", "boolean", "object", "array", "null"]
_KNOWN = frozenset({*_ANYTHING, "integer"})


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Give the schema of an object that has these properties and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def slim_arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is sent of the schema of a tool's arguments."""
    slim = _slim(dict(parameters))
    if "properties" not in slim and not slim.get("additionalProperties"):
        return closed_object({})
    return {**slim, "type": "object"}


def _slim(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {"type": _ANYTHING}
    slim = _own(schema)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(key), list):
            slim[key] = [_slim(each) for each in schema[key]]
    if isinstance(schema.get("items"), dict):
        slim["items"] = _slim(schema["items"])
    properties = schema.get("properties")
    if isinstance(properties, dict):
        slim["properties"] = {name: _slim(each) for name, each in properties.items()}
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        slim["additionalProperties"] = _slim(more)
    elif more is not None or properties is not None:
        slim["additionalProperties"] = bool(more)
    return slim or {"type": _ANYTHING}


def _own(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords to keep of one schema, without its subschemas."""
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    kinds = schema.get("type", ())
    if kinds and _KNOWN.issuperset([kinds] if isinstance(kinds, str) else kinds):
        kept["type"] = kinds
    for key in ("minItems", "maxItems"):
        if isinstance(schema.get(key), int) and schema[key] <= _LONGEST:
            kept[key] = schema[key]
    return kept
