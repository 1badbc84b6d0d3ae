"""OpenAI's rules for JSON schemas of structured answers and strict tools."""

from collections.abc import Mapping
from typing import Any

from .refusals import RefusedRequestError


def check_schemas(body: Mapping[str, Any]) -> None:
    """Refuse a strict schema that is not strict, and JSON mode that no message mentions."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema" and form["json_schema"].get("strict"):
        name, schema = form["json_schema"]["name"], form["json_schema"].get("schema", {})
        check_strict_schema(schema, f"response_format '{name}'", "response_format", None)
    if form.get("type") == "json_object" and "json" not in str(body["messages"]).lower():
        # https://github.com/mem0ai/mem0/issues/3008
        raise RefusedRequestError(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
            param="messages",
        )
    for index, each in enumerate(body.get("tools") or ()):
        function = each.get("function", {})
        if function.get("strict"):
            where, code = f"tools[{index}].function.parameters", "invalid_function_parameters"
            what = f"function '{function['name']}'"
            check_strict_schema(function.get("parameters", {}), what, where, code)


def check_strict_schema(
    schema: object, what: str, param: str, code: str | None, context: tuple[str, ...] = ()
) -> None:
    """Refuse an object of a strict schema that allows other fields, or makes some optional.

    https://github.com/vercel/ai/issues/6484 and https://github.com/bytedance/trae-agent/issues/173

    Args:
        schema: The schema, or a part of it.
        what: What it is the schema of, as the error calls it.
        param: The field of the request that contains it.
        code: The error's code.
        context: The keys that lead to the part.
    """
    if isinstance(schema, list):
        for index, each in enumerate(schema):
            check_strict_schema(each, what, param, code, (*context, str(index)))
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and (wrong := _wrong(schema)) is not None:
        message = f"Invalid schema for {what}: In context={context}, {wrong}"
        raise RefusedRequestError(message, param=param, code=code)
    for key in ("properties", "$defs"):
        for name, field in schema.get(key, {}).items():
            check_strict_schema(field, what, param, code, (*context, key, name))
    for key in ("items", "anyOf"):
        check_strict_schema(schema.get(key), what, param, code, (*context, key))


def _wrong(schema: Mapping[str, Any]) -> str | None:
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    missing = set(schema.get("properties", {})) - set(schema.get("required", ()))
    if missing:
        return (
            "'required' is required to be supplied and to be an array including every key in "
            f"properties. Missing '{min(missing)}'."
        )
    return None
