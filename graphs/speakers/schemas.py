"""Replies that are JSON of a pydantic model: its JSON schema, and writing one. Pure functions."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from ..common.errors import failed

_NAME_LENGTH: Final = 64
"""The longest name of a schema that OpenAI takes."""

_STRICT: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
        *("anyOf", "$ref", "$defs", "title", "description", "default", "pattern", "format"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems", "minLength", "maxLength"),
    }
)
"""What OpenAI's strict form can say; a schema that says more is refused."""

_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
"""The formats of text that it knows."""

_TELLING: Final = ("type", "anyOf", "enum", "const", "$ref")
"""What says which values there are; a schema with none of these takes any."""


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Give the JSON schema of a pydantic model, as models and servers are told of it."""
    schema = model.model_json_schema()
    referred = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if referred:
        # Its other fields say no more than the definition does.
        schema = {**schema["$defs"][referred], "$defs": schema["$defs"]}
    title = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", model.__name__))).strip("_")
    return {**schema, "title": title[:_NAME_LENGTH] or "answer"}


def written_json(found: BaseModel) -> str:
    """Write an instance of a pydantic model as JSON."""
    try:
        return found.model_dump_json()
    except Exception as error:
        raise failed("pydantic model", type(found).__name__, error) from error


@cache
def is_object(model: type[BaseModel]) -> bool:
    """Whether a pydantic model stands for an object: models can be held to nothing else."""
    return schema_of(model).get("type") == "object"


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI's strict form can say all that a schema does.

    It refuses some words, and closes objects: one whose keys are free would have to be empty.
    """
    return all(map(_is_strict, _parts(schema)))


def _is_strict(part: Mapping[str, Any]) -> bool:
    is_open = part.get("additionalProperties", False) is not False
    is_free = is_open or (part.get("type") == "object" and "properties" not in part)
    return (
        not is_free
        and _STRICT.issuperset(part)
        and part.get("format", "date") in _FORMATS
        and any(word in part for word in _TELLING)
    )


def _parts(schema: object) -> Iterator[Mapping[str, Any]]:
    """A schema and all schemas in it, but for those within what strict schemas can't say."""
    if not isinstance(schema, Mapping):
        # True takes any value, and so does an empty schema.
        yield {}
        return
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += schema.get("anyOf", [])
    inner += [schema["items"]] if "items" in schema else []
    for part in inner:
        yield from _parts(part)
