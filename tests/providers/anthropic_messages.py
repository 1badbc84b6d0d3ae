"""A fake of Anthropic's Messages API."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from duologue.nodes.testing import Prompt, Reply, Script

from .anthropic_rules import SIGNATURE, check_messages, check_model, check_thinking, check_tools
from .base import (
    FakeServer,
    ProviderRequest,
    RefusedRequestError,
    make_event,
    make_message,
    make_result,
    text_of,
    usage,
    words_of,
)
from .request_types import FieldFault, RequestType

_NUMBER: Final = {"anyOf": [{"type": "number"}, {"type": "null"}]}
_EXPECTED: Final = {
    "array": "Input should be a valid list",
    "boolean": "Input should be a valid boolean",
    "integer": "Input should be a valid integer",
    "number": "Input should be a valid number",
    "object": "Input should be a valid dictionary",
    "string": "Input should be a valid string",
}
_KINDS: Final = {
    # https://platform.claude.com/docs/en/api/errors
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_ENDINGS: Final = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


class MessagesRequest(ProviderRequest):
    """A request for a message."""

    @property
    def prompt(self) -> Prompt:
        """The system prompt and the messages in OpenAI's form."""
        found: Prompt = []
        if self.body.get("system"):
            found.append(make_message("system", text_of(self.body["system"])))
        for message in self.body["messages"]:
            content = message["content"]
            if isinstance(content, str):
                found.append(make_message(message["role"], content))
                continue
            results = [part for part in content if part["type"] == "tool_result"]
            found += [
                make_result(part["tool_use_id"], text_of(part.get("content"))) for part in results
            ]
            calls = [
                (part["id"], part["name"], part["input"])
                for part in content
                if part["type"] == "tool_use"
            ]
            text = text_of(part for part in content if part["type"] == "text")
            if text or calls or not results:
                found.append(make_message(message["role"], text, calls))
        return found

    @property
    def forced_tool(self) -> str | None:
        """The tool that must be called."""
        choice = self.body.get("tool_choice") or {}
        if choice.get("type") == "any":
            return self.tools[0]
        return choice.get("name")

    @property
    def tools(self) -> list[str]:
        """The names of the tools."""
        return [tool["name"] for tool in self.body.get("tools") or ()]

    @property
    def thinks(self) -> bool:
        """True if thinking is enabled."""
        return (self.body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


@cache
def _request_type() -> RequestType:
    # Newer clients leave sampling out of their types, since the newest models refuse it. Older
    # models still take it: https://platform.claude.com/docs/en/api/messages
    sampling = {"temperature": _NUMBER, "top_p": _NUMBER, "top_k": {"type": "integer"}}
    return RequestType(MessageCreateParamsNonStreaming, {**sampling, "stream": {"type": "boolean"}})


class AnthropicMessages(FakeServer[MessagesRequest]):
    """Anthropic's Messages API."""

    request_type = MessagesRequest
    models = (
        "claude-3-haiku-20240307",
        "claude-sonnet-4-5",
        "claude-sonnet-4-6",
        "claude-opus-4-7",
    )

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(script, **options)
        self.billed: list[dict[str, Any]] = []
        """The usage of each answered call."""
        self._cache: set[str] = set()

    def apply_rules(self, method: str, request: MessagesRequest) -> object | None:
        """Check the headers, the types and then each rule."""
        if (method, request.path) != ("POST", "/v1/messages"):
            raise RefusedRequestError("Not found", status=404)
        # https://platform.claude.com/docs/en/api/overview; version 2 of Anthropic's Python client
        # sends the key as a bearer's.
        headers = request.headers
        if not (headers.get("x-api-key") or headers.get("authorization")):
            raise RefusedRequestError("x-api-key header is required", status=401)
        if not headers.get("anthropic-version"):
            raise RefusedRequestError("anthropic-version: header is required")
        body = request.body
        if (fault := _request_type().fault(body)) is not None:
            raise _refusal(fault, body)
        if body["model"] not in self.models:
            raise RefusedRequestError(f"model: {body['model']}", status=404)
        check_model(body)
        check_thinking(body)
        check_tools(body)
        check_messages(body)
        return None

    def render_answer(self, reply: Reply, request: MessagesRequest, number: int) -> object:
        """Return a message."""
        return {
            **_envelope(request, number, self._usage(reply, request)),
            "content": _content(reply, request),
            **_ending(reply),
        }

    def stream_answer(self, reply: Reply, request: MessagesRequest, number: int) -> Iterator[bytes]:
        """Yield the events of a message."""
        used = self._usage(reply, request)
        begun = {**_envelope(request, number, used), "content": [], "stop_reason": None}
        begun["usage"] = {**used, "output_tokens": 1}
        yield _event("message_start", message=begun)
        for index, block in enumerate(_content(reply, request)):
            yield from _block_events(index, block, reply)
            if reply.error == "drop":
                return
        ending = {**_ending(reply), "stop_sequence": None}
        # The last event does not say how long the cache keeps the tokens:
        # https://github.com/anthropics/anthropic-sdk-typescript/issues/793
        counts = {name: count for name, count in used.items() if name.endswith("_tokens")}
        yield _event("message_delta", delta=ending, usage=counts)
        yield _event("message_stop")

    def _usage(self, reply: Reply, request: MessagesRequest) -> dict[str, Any]:
        """Return the usage of a call. The cache keeps the prompt if the request asks for it.

        https://platform.claude.com/docs/en/build-with-claude/prompt-caching, "Automatic caching"
        """
        prompt, used = request.prompt, usage(reply, request.prompt)
        total, read, written = used["prompt_tokens"], 0, 0
        control = request.body.get("cache_control")
        if control is not None:
            beginnings = [json.dumps(prompt[: place + 1]) for place in range(len(prompt))]
            known = [place for place, text in enumerate(beginnings) if text in self._cache]
            read = words_of(prompt[: known[-1] + 1]) if known else 0
            written = total - read
            self._cache.add(beginnings[-1])
        hours = written if control is not None and control.get("ttl") == "1h" else 0
        found = {
            "input_tokens": total - read - written,
            "output_tokens": used["completion_tokens"],
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - hours,
                "ephemeral_1h_input_tokens": hours,
            },
            "service_tier": "standard",
        }
        self.billed.append(found)
        return found

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in Anthropic's form."""
        default = "api_error" if error.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(error.status, default)
        return {
            "type": "error",
            "error": {"type": kind, "message": error.message},
            "request_id": "req_fake",
        }


def _refusal(fault: FieldFault, body: dict[str, Any]) -> RefusedRequestError:
    """Return the error of a wrong field, as pydantic words it.

    https://github.com/anthropics/claude-code/issues/4378, /issues/31033, /issues/14135
    """
    place = ".".join(_tagged(fault.path, body))
    match fault.kind:
        case "unknown":
            return RefusedRequestError(f"{place}: Extra inputs are not permitted")
        case "missing":
            return RefusedRequestError(f"{place}: Field required")
        case "type":
            return RefusedRequestError(f"{place}: {_EXPECTED[fault.expected[0]]}")
        case _:
            known = [f"'{each}'" for each in fault.expected]
            listed = " or ".join(filter(None, [", ".join(known[:-1]), *known[-1:]]))
            return RefusedRequestError(f"{place}: Input should be {listed}")


def _tagged(path: tuple[str | int, ...], body: object) -> Iterator[str]:
    """Yield the keys of a path, each kind of block after its place."""
    here: Any = body
    for place, key in enumerate(path):
        yield str(key)
        try:
            here = here[key]
        except KeyError:  # a field that is missing
            here = None
        is_last = place == len(path) - 1
        in_list = isinstance(key, int) and place and path[place - 1] in ("content", "tools")
        if isinstance(here, dict) and not is_last and (in_list or key == "thinking"):
            yield str(here.get("type", "custom"))


def _envelope(request: MessagesRequest, number: int, used: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "stop_sequence": None,
        "usage": used,
    }


def _ending(reply: Reply) -> dict[str, Any]:
    """Return why the message ended.

    https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons; the details are
    anthropic/types/refusal_stop_details.py in Anthropic's Python client.
    """
    ending: dict[str, Any] = {"stop_reason": _ENDINGS.get(reply.ending, reply.ending)}
    if reply.ending == "refusal":
        details = {"type": "refusal", "category": "cyber", "explanation": reply.refusal}
        ending["stop_details"] = details
    return ending


def _content(reply: Reply, request: MessagesRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if request.thinks and reply.reasoning:
        found.append({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE})
    said = reply.text or ("" if reply.ending == "refusal" else reply.refusal)
    if said:
        found.append({"type": "text", "text": said})
    for call in reply.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name}
        # A model always sends a whole object; in a stream it may be cut off.
        given = call.args if isinstance(call.args, dict) else _object(call.args)
        found.append({**block, "input": given, "_arguments": call.pieces})
    if reply.ending == "pause_turn":
        search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
        query = {"query": "tides"}
        found.append({**search, "input": query, "_arguments": (json.dumps(query),)})
    return found if request.streams else [_without_pieces(block) for block in found]


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _without_pieces(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "_arguments"}


def _event(kind: str, **fields: Any) -> bytes:
    return make_event({"type": kind, **fields}, kind)


def _block_events(index: int, block: dict[str, Any], reply: Reply) -> Iterator[bytes]:
    deltas: list[dict[str, Any]]
    empty: dict[str, Any]
    match block["type"]:
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            pieces = re.split(r"(?<=\s)(?=\S)", block["thinking"])
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "text":
            empty = {"type": "text", "text": ""}
            pieces = list(reply.pieces or (block["text"],))
            if reply.error == "drop":
                pieces = pieces[: len(pieces) // 2]
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        case _:
            empty = {**_without_pieces(block), "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in block["_arguments"]
            ]
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    if reply.error != "drop":
        yield _event("content_block_stop", index=index)
