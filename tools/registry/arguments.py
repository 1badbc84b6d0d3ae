"""The arguments of tools: what models are told of them, and calls held to a JSON schema.

LangChain holds them to pydantic's models.
"""

import re
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from .state import ArgumentsError


def parameters_of(tool: BaseTool) -> dict[str, Any]:
    """Give the JSON schema of a tool's arguments as models are told of them."""
    found: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    return found


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Make sure that arguments are what a JSON schema asks for."""
    # Here, since most conversations need none of it, and it takes long to load.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        # With a registry of its own it fetches nothing that the schema refers to.
        found = list(kind(schema, registry=Registry()).iter_errors(arguments))
    except (SchemaError, Unresolvable, re.error):
        # It is the tool's to say.
        return
    if found:
        wrong = (f"{'.'.join(map(str, one.path)) or 'they'}: {one.message:.200}" for one in found)
        raise ArgumentsError("; ".join(wrong))
