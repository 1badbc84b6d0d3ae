"""Rules of Google's Generative Language API for a request whose types are right."""

from base64 import b64decode
from typing import Any, Final

from google.genai import types
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from .base import RefusedRequestError

SIGNATURE: Final = "Z29vZ2xl"
"""The signature of each first call."""

_SKIP: Final = "skip_thought_signature_validator"

_KNOWN: Final = (b64decode(SIGNATURE), b64decode(_SKIP, altchars=b"-_"))
"""Signatures that are accepted, as Google's client reads them: that of a call, and the value for
calls of other models.
"""


class GenerateContentRequest(BaseModel):
    """The body, made of the types of Google's client, which has no type for it."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)

    contents: list[types.Content] = []
    system_instruction: types.Content | None = None
    tools: list[types.Tool] = []
    tool_config: types.ToolConfig | None = None
    safety_settings: list[types.SafetySetting] = []
    generation_config: types.GenerationConfig | None = None
    cached_content: str | None = None
    store: bool | None = None
    service_tier: str | None = None


def check_contents(read: GenerateContentRequest) -> None:
    """Refuse no contents, contents without parts, and unknown roles."""
    if not read.contents:
        # https://ai.google.dev/api/generate-content: the field is required.
        raise RefusedRequestError("* GenerateContentRequest.contents: contents is not specified\n")
    for index, content in enumerate(read.contents):
        if content.role not in (None, "user", "model", "function"):
            raise RefusedRequestError("Please use a valid role: user, model.")
        if not content.parts:
            # https://github.com/coze-dev/coze-studio/issues/46
            raise RefusedRequestError(
                f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be "
                "empty.\n"
            )


def check_order(read: GenerateContentRequest) -> None:
    """Refuse calls and results at a wrong place, or of different numbers.

    https://github.com/google-gemini/gemini-cli/issues/26486, /issues/11814 and /issues/4217;
    https://github.com/langchain-ai/langchain/issues/27799
    """
    before: types.Content | None = None
    for content in read.contents:
        calls, results = _count(content, "function_call"), _count(content, "function_response")
        asked = _count(before, "function_call") if before else 0
        if calls and (before is None or before.role == "model"):
            raise RefusedRequestError(
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
        if results and not asked:
            raise RefusedRequestError(
                "Please ensure that function response turn comes immediately after a function call "
                "turn."
            )
        if asked != results:
            raise RefusedRequestError(
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn."
            )
        before = content
    if before is not None and _count(before, "function_call"):
        raise RefusedRequestError(
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn."
        )


def _count(content: types.Content, field: str) -> int:
    return sum(getattr(part, field) is not None for part in content.parts or [])


def check_config(read: GenerateContentRequest, model: str) -> None:
    """Refuse settings that exclude one another, or that the model does not take."""
    config = read.generation_config or types.GenerationConfig()
    has_functions = any(tool.function_declarations for tool in read.tools)
    if has_functions and config.response_mime_type == "application/json" and "-3-" not in model:
        # https://github.com/googleapis/python-genai/issues/867; Gemini 3 takes both:
        # https://ai.google.dev/gemini-api/docs/structured-output
        raise RefusedRequestError(
            "Function calling with a response mime type: 'application/json' is unsupported"
        )
    if config.response_json_schema is not None:
        _check_schema(config.response_json_schema, config.response_json_schema.get("$defs", {}), ())
    thinking = config.thinking_config or types.ThinkingConfig()
    if thinking.thinking_budget == 0 and model.endswith("-pro"):
        # https://github.com/snailyp/gemini-balance/issues/206
        raise RefusedRequestError("Budget 0 is invalid. This model only works in thinking mode.")
    if (thinking.thinking_budget or 0) > 32_768:
        # https://github.com/RooCodeInc/Roo-Code/issues/4399
        raise RefusedRequestError(f"The thinking budget ({thinking.thinking_budget}) is invalid.")
    if "-3-" in model:
        _check_signatures(read)


def _check_schema(part: object, definitions: dict[str, Any], within: tuple[str, ...]) -> None:
    """Refuse references with other keywords, and cycles through required fields.

    https://ai.google.dev/api/generate-content, `responseJsonSchema`
    """
    if isinstance(part, list):
        for each in part:
            _check_schema(each, definitions, within)
    if not isinstance(part, dict):
        return
    if isinstance(name := part.get("$ref"), str):
        if any(not key.startswith("$") for key in part):
            raise RefusedRequestError("response_json_schema: $ref can't have other properties")
        if name in within:
            raise RefusedRequestError("response_json_schema: a required property has a cycle")
        _check_schema(definitions[name.removeprefix("#/$defs/")], definitions, (*within, name))
    for field, schema in part.get("properties", {}).items():
        if field in part.get("required", ()):
            _check_schema(schema, definitions, within)
    for key in ("items", "anyOf", "prefixItems", "additionalProperties"):
        _check_schema(part.get(key), definitions, within)


def _check_signatures(read: GenerateContentRequest) -> None:
    """Refuse calls of the current turn without the signature that came with them, or with another.

    https://ai.google.dev/gemini-api/docs/thought-signatures: the first call of each step has one;
    https://github.com/nanbingxyz/5ire/issues/405 quotes the error, and
    https://github.com/google-gemini/gemini-cli/issues/13467 that of a wrong signature.
    """
    turns = read.contents
    start = max(
        (i for i, each in enumerate(turns) if each.role != "model" and not _is_result(each)),
        default=0,
    )
    for position, content in enumerate(turns[start:], start):
        calls = [part for part in content.parts or [] if part.function_call is not None]
        if calls and calls[0].thought_signature not in (None, *_KNOWN):
            raise RefusedRequestError("Corrupted thought signature.")
        if calls and calls[0].thought_signature is None and calls[0].function_call is not None:
            raise RefusedRequestError(
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                "degraded model performance. Additional data, function call "
                f"`default_api:{calls[0].function_call.name}` , position {position + 1}. Please "
                "refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more "
                "details."
            )


def _is_result(content: types.Content) -> bool:
    return bool(_count(content, "function_response"))
