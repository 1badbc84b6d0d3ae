"""A fake of Ollama's /api/chat.

The server ignores unknown fields and options (ollama/ollama, api/types.go, `FromMap`, which logs
"invalid option provided"). Its Python client stops a wrong parameter, because `chat` accepts no
unknown keyword: https://github.com/jataware/archytas/issues/56
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from duologue.nodes.testing import Prompt, Reply

from .base import FakeServer, ProviderRequest, RefusedRequestError, make_message, make_result, usage

_GO_TYPES: Final = {
    bool: "bool",
    dict: "object",
    float: "number",
    int: "number",
    list: "array",
    str: "string",
}
_FIELDS: Final = {
    # ollama/ollama, api/types.go, ChatRequest
    "model": (str, "string"),
    "messages": (list, "[]api.Message"),
    "stream": (bool, "bool"),
    "tools": (list, "api.Tools"),
    "options": (dict, "map[string]interface {}"),
    "logprobs": (bool, "bool"),
    "top_logprobs": (int, "int"),
}
_MESSAGE_FIELDS: Final = {
    # ollama/ollama, api/types.go, Message
    "role": (str, "string"),
    "content": (str, "string"),
    "thinking": (str, "string"),
    "tool_calls": (list, "[]api.ToolCall"),
    "tool_name": (str, "string"),
    "tool_call_id": (str, "string"),
}
_OPTIONS: Final = {
    # ollama/ollama, api/types.go, Options and Runner
    **dict.fromkeys(("num_keep", "seed", "num_predict", "top_k", "repeat_last_n"), "integer"),
    **dict.fromkeys(("num_ctx", "num_batch", "num_gpu", "num_thread"), "integer"),
    **dict.fromkeys(("top_p", "min_p", "typical_p", "temperature"), "float32"),
    **dict.fromkeys(("repeat_penalty", "presence_penalty", "frequency_penalty"), "float32"),
    "stop": "array",
}
_MOST_LOGPROBS: Final = 20


class ChatRequest(ProviderRequest):
    """A request for a chat."""

    @property
    def streams(self) -> bool:
        """True unless the request asks for the whole answer at once."""
        return self.body.get("stream") is not False

    @property
    def prompt(self) -> Prompt:
        """The messages in OpenAI's form."""
        found: Prompt = []
        for message in self.body["messages"]:
            if message["role"] == "tool":
                found.append(make_result(message.get("tool_call_id", ""), message["content"]))
                continue
            calls = [
                (call.get("id", ""), call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            ]
            found.append(make_message(message["role"], message.get("content", ""), calls))
        return found

    @property
    def forced_tool(self) -> str | None:
        """Nothing: the API can't force a call."""
        return None


class OllamaChat(FakeServer[ChatRequest]):
    """Ollama's API."""

    request_type = ChatRequest
    stream_type = "application/x-ndjson"
    models = ("llama3.2:3b", "qwen3:8b", "gemma2:2b")
    thinking = ("qwen3:8b",)
    with_tools = ("llama3.2:3b", "qwen3:8b")

    def apply_rules(self, method: str, request: ChatRequest) -> object | None:
        """Check the path, the types, the model and its capabilities."""
        if (method, request.path) != ("POST", "/api/chat"):
            raise RefusedRequestError("404 page not found", status=404)
        body = request.body
        if not body:
            raise RefusedRequestError("missing request body")
        _check_types(body)
        # The rest is in ollama/ollama, server/routes.go, ChatHandler.
        if not 0 <= (body.get("top_logprobs") or 0) <= _MOST_LOGPROBS:
            raise RefusedRequestError("top_logprobs must be between 0 and 20")
        if not body.get("model"):
            raise RefusedRequestError("model is required")
        if body["model"] not in self.models:
            raise RefusedRequestError(f"model '{body['model']}' not found", status=404)
        if body.get("think") and body["model"] not in self.thinking:
            raise RefusedRequestError(f'"{body["model"]}" does not support thinking')
        if body.get("tools") and body["model"] not in self.with_tools:
            # server/images_test.go
            raise RefusedRequestError(
                f"registry.ollama.ai/library/{body['model']} does not support tools"
            )
        _check_options(body.get("options") or {})
        if any(not re.fullmatch(r"\^.*\$", each) for each in _patterns(body.get("format"))):
            # https://github.com/ollama/ollama/issues/8325
            raise RefusedRequestError("invalid JSON schema in format")
        return None

    def render_answer(self, reply: Reply, request: ChatRequest, number: int) -> object:
        """Return a chat response."""
        return {**_response(request, _message(reply, request)), **_end(reply, request)}

    def stream_answer(self, reply: Reply, request: ChatRequest, number: int) -> Iterator[bytes]:
        """Yield the lines of a chat response."""
        whole = _message(reply, request)
        pieces: list[dict[str, Any]] = []
        if "thinking" in whole:
            pieces.append({"thinking": whole["thinking"], "content": ""})
        texts = reply.pieces
        if reply.error == "drop":
            texts = texts[: len(texts) // 2]
        pieces += [{"content": piece} for piece in texts]
        if reply.error != "drop" and "tool_calls" in whole:
            # Calls come whole, each in a piece: the parser waits until one is complete.
            pieces += [{"content": "", "tool_calls": [call]} for call in whole["tool_calls"]]
        for piece in pieces:
            yield _line({**_response(request, {"role": "assistant", **piece}), "done": False})
        if reply.error != "drop":
            last = _response(request, {"role": "assistant", "content": ""})
            yield _line({**last, **_end(reply, request)})

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in Ollama's form."""
        return {"error": error.message}


def _check_types(body: dict[str, Any]) -> None:
    for name, (kind, go_type) in _FIELDS.items():
        _check_type(body.get(name), kind, f"ChatRequest.{name}", go_type)
    think = body.get("think")
    if not (think is None or isinstance(think, bool) or think in ("high", "medium", "low", "max")):
        # api/types.go, ThinkValue
        raise RefusedRequestError(
            f'invalid think value: "{think}" (must be "high", "medium", "low", "max", true, or '
            "false)"
        )
    for message in body.get("messages") or ():
        _check_type(message, dict, "ChatRequest.messages", "api.Message")
        for name, (kind, go_type) in _MESSAGE_FIELDS.items():
            _check_type(message.get(name), kind, f"ChatRequest.messages.{name}", go_type)
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            where = "ChatRequest.messages.tool_calls.function.arguments"
            _check_type(arguments, dict, where, "api.ToolCallFunctionArguments")


def _check_type(value: object, kind: type, where: str, go_type: str) -> None:
    """Refuse a value that Go's encoding/json can't read into the field."""
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if value is not None and not is_right:
        raise RefusedRequestError(
            f"json: cannot unmarshal {_GO_TYPES[type(value)]} into Go struct field {where} of "
            f"type {go_type}"
        )


def _patterns(schema: object) -> Iterator[str]:
    """Yield the patterns in a schema."""
    parts: list[object] = schema if isinstance(schema, list) else []
    for each in schema.values() if isinstance(schema, dict) else parts:
        yield from _patterns(each)
    if isinstance(schema, dict) and isinstance(pattern := schema.get("pattern"), str):
        yield pattern


def _check_options(options: dict[str, Any]) -> None:
    """Refuse an option of a wrong type: ollama/ollama, api/types.go, Options.FromMap."""
    for name, value in options.items():
        kind = _OPTIONS.get(name)
        if value is None or kind is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_right = isinstance(value, list) if kind == "array" else is_number
        if not is_right:
            raise RefusedRequestError(f'option "{name}" must be of type {kind}')
        if kind == "array" and not all(isinstance(each, str) for each in value):
            raise RefusedRequestError(f'option "{name}" must be of an array of strings')


def _message(reply: Reply, request: ChatRequest) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": reply.text or reply.refusal or ""}
    # A model that can think does so by default: server/routes.go.
    may_think = request.model in OllamaChat.thinking and request.body.get("think") is not False
    if reply.reasoning and may_think:
        made["thinking"] = reply.reasoning
    if reply.tool_calls:
        made["tool_calls"] = [
            {"function": {"index": index, "name": call.name, "arguments": _arguments(call.args)}}
            for index, call in enumerate(reply.tool_calls)
        ]
    return made


def _arguments(args: dict[str, Any] | str) -> object:
    return args if isinstance(args, dict) else json.loads(args)


def _response(request: ChatRequest, message: dict[str, Any]) -> dict[str, Any]:
    return {"model": request.model, "created_at": "2026-01-01T00:00:00Z", "message": message}


def _end(reply: Reply, request: ChatRequest) -> dict[str, Any]:
    used = usage(reply, request.prompt)
    return {
        "done": True,
        # "load" without a text means that the model has only been loaded: server/routes.go.
        "done_reason": "stop" if reply.ending == "tool_calls" else reply.ending,
        "total_duration": 3,
        "load_duration": 1,
        "prompt_eval_count": used["prompt_tokens"],
        "prompt_eval_duration": 1,
        "eval_count": used["completion_tokens"],
        "eval_duration": 1,
    }


def _line(data: object) -> bytes:
    return json.dumps(data).encode() + b"\n"
