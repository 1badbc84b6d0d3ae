"""A fake of OpenAI's Responses API."""

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from duologue.nodes.testing import Prompt, Reply

from .base import (
    FakeServer,
    ProviderRequest,
    RefusedRequestError,
    fields_of,
    make_event,
    make_message,
    make_result,
    text_of,
)
from .openai_families import family_of
from .openai_responses_form import INCOMPLETE, item_events, output_of, response_of
from .openai_rules import NAME, check_ranges, check_strict_schema, openai_refusal
from .request_types import RequestType

_MOVED = {
    # https://github.com/MuiseDestiny/zotero-gpt/issues/502 quotes the words for the first.
    # https://platform.openai.com/docs/guides/migrate-to-responses lists the parameters.
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


class ResponsesRequest(ProviderRequest):
    """A request for a response."""

    @property
    def prompt(self) -> Prompt:
        """The input as messages in OpenAI's form."""
        given = self.body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        found: Prompt = []
        if self.body.get("instructions"):
            found.append(make_message("system", self.body["instructions"]))
        for item in items:
            match item.get("type", "message"):
                case "message":
                    found.append(make_message(item["role"], text_of(item["content"])))
                case "function_call":
                    if not found or found[-1]["role"] != "assistant":
                        found.append(make_message("assistant", ""))
                    function = {"name": item["name"], "arguments": item["arguments"]}
                    call = {"id": item["call_id"], "type": "function", "function": function}
                    found[-1].setdefault("tool_calls", []).append(call)
                case "function_call_output":
                    found.append(make_result(item["call_id"], text_of(item["output"])))
        return found

    @property
    def forced_tool(self) -> str | None:
        """The function that must be called."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict) and choice["type"] == "function":
            return str(choice["name"])
        return self.tools[0] if choice == "required" else None

    @property
    def tools(self) -> list[str]:
        """The names of the functions."""
        return [tool["name"] for tool in self.body.get("tools") or () if "name" in tool]


@cache
def _request_type() -> RequestType:
    stream = {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
    # LangChain's client leaves these out of functions and of answers that it sends back, which the
    # API accepts.
    optional = ("annotations", "id", "parameters", "status", "strict")
    return RequestType(ResponseCreateParamsNonStreaming, {"stream": stream}, optional)


class OpenAIResponses(FakeServer[ResponsesRequest]):
    """OpenAI's Responses API."""

    request_type = ResponsesRequest
    models = ("gpt-4.1-mini", "gpt-5", "gpt-5.2", "o4-mini")

    @property
    def url(self) -> str:
        """The base URL that OpenAI's client takes."""
        return f"{self.origin}/v1"

    def apply_rules(self, method: str, request: ResponsesRequest) -> object | None:
        """Check the path, the model and the body."""
        if (method, request.path) != ("POST", "/v1/responses"):
            raise RefusedRequestError(f"Invalid URL ({method} {request.path})", status=404)
        body = request.body
        for name, now in _MOVED.items():
            if name in body:
                raise RefusedRequestError(
                    f"Unsupported parameter: '{name}'. In the Responses API, this parameter has "
                    f"moved to '{now}'. Try again with the new parameter. See the API "
                    "documentation for more information: "
                    "https://platform.openai.com/docs/api-reference/responses/create.",
                )
        if (fault := _request_type().fault(body)) is not None:
            raise openai_refusal(fault)
        if body["model"] not in self.models:
            raise RefusedRequestError(
                f"The requested model '{body['model']}' does not exist.",
                status=400,
            )
        # https://github.com/vectorize-io/hindsight/issues/58
        check_ranges(body, (("max_output_tokens", 16, None), ("temperature", 0, 2)))
        _check_family(body)
        _check_tools(body)
        _check_calls(body)
        return None

    def render_answer(self, reply: Reply, request: ResponsesRequest, number: int) -> object:
        """Return a `response`."""
        return response_of(reply, request, number, output_of(reply, number))

    def stream_answer(
        self, reply: Reply, request: ResponsesRequest, number: int
    ) -> Iterator[bytes]:
        """Yield the events of a response."""
        numbers = count()

        def event(kind: str, **fields: Any) -> bytes:
            return make_event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

        output = output_of(reply, number)
        begun = {**response_of(reply, request, number, []), "status": "in_progress", "usage": None}
        yield event("response.created", response=begun)
        for index, item in enumerate(output):
            yield from item_events(event, item, index, reply)
            if reply.error == "drop":
                return
        kind = "response.incomplete" if reply.ending in INCOMPLETE else "response.completed"
        yield event(kind, response=response_of(reply, request, number, output))

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in OpenAI's form."""
        return {"error": {"type": "invalid_request_error", **fields_of(error)}}


def _check_family(body: dict[str, Any]) -> None:
    """Refuse sampling parameters of models that reason.

    https://github.com/OpenHands/software-agent-sdk/issues/1837: the value plays no part.
    """
    family = family_of(body["model"])
    effort = (body.get("reasoning") or {}).get("effort") or family.default_effort
    if effort is None and body.get("reasoning"):
        raise RefusedRequestError(
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        )
    for name in ("temperature", "top_p"):
        if effort not in (None, "none") and body.get(name) is not None:
            raise RefusedRequestError(
                f"Unsupported parameter: '{name}' is not supported with this model."
            )


def _check_tools(body: dict[str, Any]) -> None:
    for index, tool in enumerate(body.get("tools") or ()):
        if tool["type"] != "function":
            continue
        if not NAME.fullmatch(tool["name"]):
            # https://github.com/danishjsheikh/swagger-mcp/issues/13
            raise RefusedRequestError(
                f"Invalid 'tools[{index}].name': string does not match pattern. Expected a string "
                f"that matches the pattern '^{NAME.pattern}$'.",
            )
        # Functions are strict unless they say otherwise:
        # https://platform.openai.com/docs/guides/migrate-to-responses
        if tool.get("strict"):
            check_strict_schema(tool.get("parameters") or {}, f"function '{tool['name']}'")
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema" and form.get("strict"):
        check_strict_schema(form["schema"], f"response_format '{form['name']}'")


def _check_calls(body: dict[str, Any]) -> None:
    """Refuse a call without an output, and an output without a call.

    https://github.com/symgraph/GhidrAssist/issues/78 and
    https://github.com/continuedev/continue/issues/10092
    """
    items = body["input"] if isinstance(body["input"], list) else []
    called = [item["call_id"] for item in items if item.get("type") == "function_call"]
    given = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call_id in given:
        if call_id not in called:
            raise RefusedRequestError(
                f"No tool call found for function call output with call_id {call_id}.",
            )
    for call_id in called:
        if call_id not in given:
            raise RefusedRequestError(f"No tool output found for function call {call_id}.")
