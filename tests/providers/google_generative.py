"""A fake of Google's Generative Language API, which serves Gemini."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from google.genai import types
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from duologue.nodes.testing import Prompt, Reply

from .base import (
    FakeServer,
    ProviderRequest,
    RefusedRequestError,
    make_event,
    make_message,
    make_result,
    usage,
)
from .google_rules import (
    SIGNATURE,
    GenerateContentRequest,
    check_config,
    check_contents,
    check_order,
)

_STATUSES: Final = {
    # https://ai.google.dev/gemini-api/docs/troubleshooting
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_TYPES: Final = {
    "bool": "TYPE_BOOL",
    "float": "TYPE_FLOAT",
    "int": "TYPE_INT32",
    "string": "TYPE_STRING",
}
_ENDINGS: Final = {"length": "MAX_TOKENS", "stop": "STOP", "tool_calls": "STOP"}
_WITHOUT_CONTENT: Final = (
    # https://github.com/langchain-ai/langchain-google/issues/725 quotes such a candidate.
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "SAFETY",
    "RECITATION",
    "PROHIBITED_CONTENT",
)
BLOCKED: Final = "blocked"
"""The finish reason by which a script blocks the prompt: the answer then has no candidate.

https://ai.google.dev/api/generate-content#PromptFeedback
"""
_PATH: Final = re.compile(r"/v1(?:beta)?/models/([^:]+):(generateContent|streamGenerateContent)")
"""The path of a request. Google's client uses the version `v1` since 3.6, and `v1beta` before."""


class GenerateRequest(ProviderRequest):
    """A request for content."""

    @property
    def _read(self) -> GenerateContentRequest:
        return GenerateContentRequest.model_validate(self.body)

    @property
    def model(self) -> str:
        """The model, which the path names."""
        found = _PATH.fullmatch(self.path)
        return found[1] if found else ""

    @property
    def streams(self) -> bool:
        """True if the path asks for a stream."""
        return ":stream" in self.path

    @property
    def prompt(self) -> Prompt:
        """The contents as messages in OpenAI's form."""
        read, found, ids = self._read, [], {}
        if read.system_instruction is not None:
            found.append(make_message("system", _text(read.system_instruction)))
        for content in read.contents:
            parts = content.parts or []
            calls = []
            for part in parts:
                if (call := part.function_call) is not None:
                    # Calls may have no id: then a result belongs to the last call of its name.
                    ids[call.name] = call.id or f"call-{call.name}"
                    calls.append((ids[call.name], str(call.name), call.args or {}))
                if (done := part.function_response) is not None:
                    call_id = done.id or ids.get(done.name, "")
                    found.append(make_result(call_id, _result_text(done.response)))
            if calls or any(part.text is not None for part in parts):
                role = "assistant" if content.role == "model" else "user"
                found.append(make_message(role, _text(content), calls))
        return found

    @property
    def forced_tool(self) -> str | None:
        """The function that must be called."""
        config = self._read.tool_config
        calling = config.function_calling_config if config else None
        if calling is None or calling.mode != types.FunctionCallingConfigMode.ANY:
            return None
        return (calling.allowed_function_names or self.tools)[0]

    @property
    def shows_thoughts(self) -> bool:
        """True if the answer contains the thoughts of the model."""
        config = self._read.generation_config
        thinking = config.thinking_config if config else None
        return thinking is not None and bool(thinking.include_thoughts)

    @property
    def tools(self) -> list[str]:
        """The names of the functions."""
        return [
            str(each.name) for tool in self._read.tools for each in tool.function_declarations or []
        ]


class GoogleGenerative(FakeServer[GenerateRequest]):
    """Google's Generative Language API."""

    request_type = GenerateRequest
    models = ("gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview")

    def apply_rules(self, method: str, request: GenerateRequest) -> object | None:
        """Check the key, the model, the types and then each rule."""
        if not request.headers.get("x-goog-api-key"):
            # https://ai.google.dev/gemini-api/docs/troubleshooting
            raise RefusedRequestError(
                "Method doesn't allow unregistered callers (callers without established identity). "
                "Please use API Key or other form of API consumer identity to call this API.",
                status=403,
            )
        if method != "POST" or request.model not in self.models:
            raise RefusedRequestError(
                f"models/{request.model} is not found for API version v1beta, or is not supported "
                "for generateContent. Call ListModels to see the list of available models and "
                "their supported methods.",
                status=404,
            )
        try:
            read = GenerateContentRequest.model_validate(request.body)
        except ValidationError as error:
            raise _refusal(error, request.body) from None
        check_contents(read)
        check_order(read)
        check_config(read, request.model)
        return None

    def render_answer(self, reply: Reply, request: GenerateRequest, number: int) -> object:
        """Return the content."""
        return _piece(_parts(reply, request), reply, request, number, is_last=True)

    def stream_answer(self, reply: Reply, request: GenerateRequest, number: int) -> Iterator[bytes]:
        """Yield the content piece by piece."""
        parts = _parts(reply, request)
        pieces: list[dict[str, Any]] = [part for part in parts if "thought" in part]
        pieces += [{"text": piece} for piece in reply.pieces]
        if reply.error == "drop":
            pieces = pieces[: len(pieces) // 2]
        pieces += [part for part in parts if "functionCall" in part]
        if reply.ending == BLOCKED:
            pieces = []
        for piece in pieces:
            yield make_event(_piece([piece], reply, request, number, is_last=False))
        if reply.error != "drop":
            yield make_event(_piece([{"text": ""}], reply, request, number, is_last=True))

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in Google's form."""
        status = _STATUSES.get(error.status, "UNKNOWN")
        return {"error": {"code": error.status, "message": error.message, "status": status}}


def _refusal(error: ValidationError, body: dict[str, Any]) -> RefusedRequestError:
    """Return the error of wrong fields, as the JSON reader of Google's servers words it.

    https://github.com/zed-industries/zed/issues/44875 and
    https://github.com/simonw/llm-gemini/issues/49
    """
    lines = []
    for fault in error.errors():
        *above, last = fault["loc"]
        place = _place(above)
        if fault["type"] == "extra_forbidden":
            where = f" at '{place}'" if place else ""
            name = f'"{last}"'
            lines.append(
                f"Invalid JSON payload received. Unknown name {name}{where}: Cannot find field."
            )
            continue
        kind = _TYPES.get(fault["type"].split("_")[0], "TYPE_MESSAGE")
        given = json.dumps(fault["input"])
        lines.append(f"Invalid value at '{_place([*above, last])}' ({kind}), {given}")
    return RefusedRequestError("\n".join(lines))


def _place(path: list[str | int]) -> str:
    keys = (f"[{key}]" if isinstance(key, int) else f".{to_snake(key)}" for key in path)
    return "".join(keys).removeprefix(".")


def _text(content: types.Content) -> str:
    return "".join(part.text or "" for part in content.parts or [] if not part.thought)


def _result_text(response: dict[str, Any] | None) -> str:
    given = response or {}
    return str(given.get("output", given.get("result", json.dumps(given))))


def _parts(reply: Reply, request: GenerateRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if reply.reasoning and request.shows_thoughts:
        found.append({"text": reply.reasoning, "thought": True})
    if reply.text or reply.refusal or not reply.tool_calls:
        found.append({"text": reply.text or reply.refusal or ""})
    for index, call in enumerate(reply.tool_calls):
        args = call.args if isinstance(call.args, dict) else json.loads(call.args)
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": args}}
        if index == 0 and "-3-" in request.model:
            part["thoughtSignature"] = SIGNATURE
        found.append(part)
    return found


def _piece(
    parts: list[dict[str, Any]],
    reply: Reply,
    request: GenerateRequest,
    number: int,
    *,
    is_last: bool,
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    used = usage(reply, request.prompt)
    counts = {"promptTokenCount": used["prompt_tokens"], "totalTokenCount": used["prompt_tokens"]}
    if is_last:
        candidate["finishReason"] = _ENDINGS.get(reply.ending, reply.ending)
        counts["candidatesTokenCount"] = used["completion_tokens"]
        counts["totalTokenCount"] = used["total_tokens"]
    if is_last and reply.ending == BLOCKED:
        feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
        return {**feedback, "usageMetadata": counts, "modelVersion": request.model}
    if reply.ending in _WITHOUT_CONTENT and not reply.text:
        del candidate["content"]
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": request.model,
        "responseId": f"response-{number}",
    }
