"""OpenAI's rules for requests: parameters, messages and JSON schemas.

Each rule names the page that documents it, or a report that quotes the error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NoReturn

from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from .base import RefusedRequestError
from .openai_families import family_of
from .request_types import FieldFault, RequestType


def check_schemas(body: Mapping[str, Any]) -> None:
    """Refuse a strict schema that is not strict, and JSON mode if no message contains "json"."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema" and form["json_schema"].get("strict"):
        name, schema = form["json_schema"]["name"], form["json_schema"].get("schema", {})
        check_strict_schema(schema, f"response_format '{name}'")
    if form.get("type") == "json_object" and "json" not in str(body["messages"]).lower():
        # https://github.com/mem0ai/mem0/issues/3008
        raise RefusedRequestError(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
        )
    for each in body.get("tools") or ():
        function = each.get("function", {})
        if function.get("strict"):
            check_strict_schema(function.get("parameters", {}), f"function '{function['name']}'")


def check_strict_schema(schema: object, what: str, context: tuple[str, ...] = ()) -> None:
    """Refuse an object of a strict schema that allows other fields or has optional fields.

    https://github.com/vercel/ai/issues/6484 and https://github.com/bytedance/trae-agent/issues/173

    Args:
        schema: The schema, or a part of it.
        what: The schema's owner, as the error names it.
        context: The keys that lead to the part.

    Raises:
        RefusedRequestError: The schema is not strict.
    """
    if isinstance(schema, list):
        for index, each in enumerate(schema):
            check_strict_schema(each, what, (*context, str(index)))
    if not isinstance(schema, dict):
        return
    if (wrong := _wrong(schema)) is not None:
        message = f"Invalid schema for {what}: In context={context}, {wrong}"
        raise RefusedRequestError(message)
    for key in ("properties", "$defs"):
        for name, field in schema.get(key, {}).items():
            check_strict_schema(field, what, (*context, key, name))
    for key in ("items", "anyOf"):
        check_strict_schema(schema.get(key), what, (*context, key))


def _wrong(schema: Mapping[str, Any]) -> str | None:
    others = sorted({*schema} - {"$ref", "$defs"})
    if "$ref" in schema and others:
        # https://github.com/camel-ai/camel/issues/3001
        return f"$ref cannot have keywords {set(others)}."
    if not {"$ref", "type", "anyOf", "enum", "const"} & {*schema}:
        # developers.openai.com/api/docs/guides/structured-outputs, "Supported types"
        return "schema must have a 'type' key."
    if re.search(r"\(\?<?[=!]", str(schema.get("pattern", ""))):
        # https://github.com/existential-birds/daydream/issues/304
        return "regex lookaround is not supported."
    if schema.get("type") != "object":
        return None
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    missing = set(schema.get("properties", {})) - set(schema.get("required", ()))
    if missing:
        return (
            "'required' is required to be supplied and to be an array including every key in "
            f"properties. Missing '{min(missing)}'."
        )
    return None


Body = Mapping[str, Any]

_JSON_TYPES: Final = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a decimal",
    "object": "an object",
    "string": "a string",
}

NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""Valid names of tools and speakers.
https://github.com/jekalmin/extended_openai_conversation/issues/251
"""

_RANGES: Final = (
    # https://platform.openai.com/docs/api-reference/chat/create
    ("temperature", 0, 2),
    ("top_p", 0, 1),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
    ("max_tokens", 1, None),
    ("max_completion_tokens", 1, None),
    ("top_logprobs", 0, 20),
    ("n", 1, 128),
)

_MOST_STOPS: Final = 4


@cache
def _request_type() -> RequestType:
    stream = {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
    return RequestType(CompletionCreateParamsNonStreaming, {"stream": stream})


def check_chat_request(body: Body, model: str) -> None:
    """Refuse a request that OpenAI's Chat Completions refuses for a model.

    Args:
        body: The request's body.
        model: The model whose rules apply.

    Raises:
        RefusedRequestError: OpenAI refuses the request. The text, field and code are OpenAI's.
    """
    for rule in _RULES:
        rule(body)
    if (error := family_of(model).refusal(body)) is not None:
        raise error


def openai_refusal(fault: FieldFault, *, unknown: str | None = None) -> RefusedRequestError:
    """Return OpenAI's error for a wrong field.

    Args:
        fault: The wrong field.
        unknown: The text for an unknown top-level field, with `{}` for its name. If None, the text
            for unknown nested fields is used.
    """
    place = fault.place()
    match fault.kind:
        case "unknown" if unknown and len(fault.path) == 1:
            # https://github.com/xlinx/sd-webui-decadetw-auto-prompt-llm/issues/29
            return RefusedRequestError(unknown.format(place))
        case "unknown":
            return RefusedRequestError(f"Unknown parameter: '{place}'.")
        case "missing":
            return RefusedRequestError(
                f"Missing required parameter: '{place}'.",
            )
        case "type":
            # https://github.com/pydantic/pydantic-ai/issues/2653
            types = [_JSON_TYPES[each] for each in fault.expected]
            expected = types[0] if len(types) == 1 else f"one of {' or '.join(types)}"
            return RefusedRequestError(
                f"Invalid type for '{place}': expected {expected}, but got "
                f"{_JSON_TYPES[_json_type(fault.value)]} instead.",
            )
        case _:
            known = [f"'{each}'" for each in fault.expected if each is not None]
            listed = " and ".join(filter(None, [", ".join(known[:-1]), *known[-1:]]))
            return RefusedRequestError(
                f"Invalid value: '{fault.value}'. Supported values are: {listed}.",
            )


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _check_types(body: Body) -> None:
    if (fault := _request_type().fault(body)) is not None:
        raise openai_refusal(fault, unknown="Unrecognized request argument supplied: {}")


def check_ranges(body: Body, ranges: tuple[tuple[str, float, float | None], ...] = _RANGES) -> None:
    """Refuse a number outside its range.

    https://github.com/OpenBMB/ChatDev/issues/446 and
    https://github.com/earendil-works/pi/issues/6265 quote the text for integers.
    """
    for name, least, most in ranges:
        value = body.get(name)
        if not isinstance(value, int | float):
            continue
        is_whole = isinstance(least, int) and name not in ("temperature", "top_p")
        kind = "decimal" if not is_whole or "penalty" in name else "integer"
        if value < least:
            raise RefusedRequestError(
                f"Invalid '{name}': {kind} below minimum value. Expected a value >= {least}, "
                f"but got {value} instead.",
            )
        if most is not None and value > most:
            raise RefusedRequestError(
                f"Invalid '{name}': {kind} above maximum value. Expected a value <= {most}, "
                f"but got {value} instead.",
            )


def _check_stop(body: Body) -> None:
    # https://github.com/continuedev/continue/issues/2461
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > _MOST_STOPS:
        raise RefusedRequestError(
            f"Invalid 'stop': array too long. Expected an array with maximum length {_MOST_STOPS}, "
            f"but got an array with length {len(stop)} instead.",
        )


def _check_companions(body: Body) -> None:
    """Refuse a parameter that needs another parameter, or that excludes another parameter."""
    # https://github.com/RageAgainstThePixel/OpenAI-DotNet/issues/479
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not body.get("tools"):
            raise RefusedRequestError(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
            )
    # https://github.com/BerriAI/litellm/issues/5803
    if body.get("stream_options") and not body.get("stream"):
        raise RefusedRequestError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        )
    # https://github.com/langchain-ai/langgraph/issues/5943
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise RefusedRequestError(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        )


def _names(body: Body) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(body.get("tools") or ()):
        if "function" in each:
            yield f"tools[{index}].function.name", each["function"]["name"]
    for index, message in enumerate(body["messages"]):
        if message.get("name") is not None:
            yield f"messages[{index}].name", message["name"]
        for place, call in enumerate(message.get("tool_calls") or ()):
            if "function" in call:
                where = f"messages[{index}].tool_calls[{place}].function.name"
                yield where, call["function"]["name"]


def _check_names(body: Body) -> None:
    for place, name in _names(body):
        if not NAME.fullmatch(name):
            raise RefusedRequestError(
                f"Invalid '{place}': string does not match pattern. Expected a string that matches "
                f"the pattern '^{NAME.pattern}$'.",
            )


_UNASKED: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
    "'tool_calls'."
)
_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
)


def check_tool_results(
    body: Body,
    unasked: str = _UNASKED,
    unanswered: str = _UNANSWERED,
    code: str | None = None,
) -> None:
    """Refuse a tool result without its call, and a call without its result.

    https://github.com/miurla/morphic/issues/136, https://github.com/aliasrobotics/cai/issues/111

    Args:
        body: The request's body.
        unasked: The text of the error for a result.
        unanswered: The text of the error for calls, with their ids as `{ids}`.
        code: The code of the errors.
    """
    owed: list[str] = []
    for message in [*body["messages"], {"role": "end"}]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                raise RefusedRequestError(unasked, code=code)
            owed.remove(message["tool_call_id"])
            continue
        if owed:
            raise RefusedRequestError(unanswered.format(ids=", ".join(owed)), code=code)
        owed = [call["id"] for call in message.get("tool_calls") or ()]


def _refuse_empty(place: str) -> NoReturn:
    # https://github.com/CopilotKit/CopilotKit/issues/529,
    # https://github.com/openai/openai-node/pull/1341
    raise RefusedRequestError(
        f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead.",
    )


def _check_content(body: Body) -> None:
    if not body["messages"]:
        _refuse_empty("messages")
    for index, message in enumerate(body["messages"]):
        if message.get("tool_calls") == []:
            _refuse_empty(f"messages[{index}].tool_calls")
        has_calls = message.get("tool_calls") or message.get("function_call")
        if message.get("content") is None and not has_calls and not message.get("refusal"):
            # https://github.com/docker/docker-agent/issues/63
            raise RefusedRequestError(
                "Invalid value for 'content': expected a string, got null.",
            )


_IMAGES: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")


def _check_image_roles(body: Body) -> None:
    """Refuse an image in a message that is not of the user, before the types are checked."""
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in (None, "user") and any(_image_urls(message)):
            # https://github.com/OpenHands/OpenHands/issues/7700,
            # https://github.com/openai/openai-node/issues/1030
            raise RefusedRequestError(
                f"Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role "
                f"'user', but this message with role '{role}' contains an image URL.",
            )


def _check_images(body: Body) -> None:
    """Refuse an inline image that is not one of the accepted formats."""
    for message in body["messages"]:
        for url in _image_urls(message):
            if url.startswith("data:") and not _IMAGES.fullmatch(url):
                # https://github.com/STranslate/STranslate/issues/277
                raise RefusedRequestError(
                    "You uploaded an unsupported image. Please make sure your image has of one the "
                    "following formats: ['png', 'jpeg', 'gif', 'webp'].",
                )


def _image_urls(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "image_url":
            image = part.get("image_url")
            yield str(image.get("url")) if isinstance(image, Mapping) else ""


_RULES: Final[tuple[Callable[[Body], None], ...]] = (
    _check_image_roles,
    _check_types,
    _check_images,
    check_ranges,
    _check_stop,
    _check_companions,
    _check_content,
    _check_names,
    check_tool_results,
    check_schemas,
)
