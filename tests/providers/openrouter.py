"""A fake of OpenRouter's chat completions.

It drops parameters that a model does not take, unless the request requires them: openrouter.ai
/docs/guides/routing/provider-selection, `require_parameters`.
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from openrouter.components import ChatRequest
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse

from duologue.nodes.testing import Reply

from .base import OpenAILikeServer, ProviderRequest, RefusedRequestError, fields_of, make_event
from .openai_families import family_of
from .openai_rules import check_tool_results

_ROUTING: Final = (
    "To learn more about provider routing, visit: "
    "https://openrouter.ai/docs/guides/routing/provider-selection"
)

_LATE: Final = (408, 429, 502, 503)
"""Codes of errors of the provider behind OpenRouter, which has already begun to answer."""


_REASONS: Final = ("tool_calls", "stop", "length", "content_filter", "error")
_UNSAFE: Final = ("SAFETY", "PROHIBITED_CONTENT", "refusal")


class OpenRouter(OpenAILikeServer):
    """OpenRouter's API."""

    path = "/api/v1/chat/completions"
    models = ("openai/gpt-5", "anthropic/claude-sonnet-4.5", "deepseek/deepseek-r1")
    without_tools: ClassVar[tuple[str, ...]] = ("deepseek/deepseek-r1",)
    reasoning_field = "reasoning"
    always_sends_usage = True

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the types, the routing, and the rules of the provider behind it."""
        if not body.get("messages"):
            # https://openrouter.ai/docs/api/reference/overview
            raise RefusedRequestError('Input required: specify "prompt" or "messages"')
        try:
            ChatRequest.model_validate(body)
        except ValidationError as error:
            raise RefusedRequestError(_issues(error)) from None
        if body.get("model") not in self.models:
            raise RefusedRequestError(f"{body.get('model')} is not a valid model ID")
        reasoning = body.get("reasoning") or {}
        if reasoning.get("effort") is not None and reasoning.get("max_tokens") is not None:
            # https://github.com/omeryasirkucuk/amx/pull/66
            raise RefusedRequestError(
                'Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified'
            )
        _check_routing(body)
        try:
            check_tool_results(body)
        except RefusedRequestError as error:
            raise _UpstreamError(error) from None

    def render_answer(self, reply: Reply, request: ProviderRequest, number: int) -> object:
        """Return a completion, which always has a fingerprint."""
        made: Any = super().render_answer(reply, request, number)
        _normalise_reason(made)
        return {**made, "system_fingerprint": None}

    def respond(self, reply: Reply, request: ProviderRequest, number: int) -> Response:
        """Send a late error with status 200, in the body or in an event.

        https://openrouter.ai/docs/api/reference/errors-and-debugging and .../streaming
        """
        if not isinstance(reply.error, int) or reply.error not in _LATE:
            return super().respond(reply, request, number)
        message = reply.message or "Provider returned error"
        body: Any = self.render_error(RefusedRequestError(message, status=reply.error))
        if not request.streams:
            return JSONResponse(body)
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        parts = [b": OPENROUTER PROCESSING\n\n", make_event({**body, "choices": [choice]})]
        return StreamingResponse(iter(parts), media_type=self.stream_type)

    def make_chunks(
        self, reply: Reply, request: ProviderRequest, number: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream."""
        for chunk in super().make_chunks(reply, request, number):
            _normalise_reason(chunk)
            yield chunk

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in OpenRouter's form, whose code is the HTTP status."""
        body: dict[str, Any] = {"message": error.message, "code": error.status}
        if isinstance(error, _UpstreamError):
            body["metadata"] = {"raw": error.raw, "provider_name": "OpenAI"}
        return {"error": body, "user_id": "user_fake"}


class _UpstreamError(RefusedRequestError):
    """An error of the provider behind OpenRouter.

    https://github.com/dottxt-ai/outlines/issues/1666
    """

    def __init__(self, error: RefusedRequestError) -> None:
        super().__init__("Provider returned error", status=error.status)
        fields = {**fields_of(error), "type": "invalid_request_error"}
        self.raw = json.dumps({"error": fields}, indent=2)


def _normalise_reason(completion: dict[str, Any]) -> None:
    """Add the reason of the provider, and normalise it to OpenRouter's own.

    https://openrouter.ai/docs/api/reference/overview, "Finish Reason"
    """
    for choice in completion["choices"]:
        native = choice["finish_reason"]
        choice["native_finish_reason"] = native
        if native not in (None, *_REASONS):
            choice["finish_reason"] = "content_filter" if native in _UNSAFE else "stop"


def _check_routing(body: dict[str, Any]) -> None:
    if body.get("tools") and body["model"] in OpenRouter.without_tools:
        # https://github.com/bobrware/bobrchat/issues/60
        raise RefusedRequestError(
            f"No endpoints found that support tool use. {_ROUTING}", status=404
        )
    name = body["model"].partition("/")[2]
    asked = {**body, "model": name}
    # OpenRouter translates the limit.
    asked.pop("max_tokens", None)
    requires = (body.get("provider") or {}).get("require_parameters")
    if requires and family_of(name).refusal(asked) is not None:
        raise RefusedRequestError(
            f"No endpoints found that can handle the requested parameters. {_ROUTING}", status=404
        )


def _issues(error: ValidationError) -> str:
    """Return wrong fields as zod, OpenRouter's reader, lists them.

    https://github.com/CherryHQ/cherry-studio/issues/10477
    """
    kinds = {"float": "number", "int": "number", "string": "string", "bool": "boolean"}
    found = []
    for fault in error.errors():
        expected = kinds.get(fault["type"].split("_")[0], "object")
        given = type(fault["input"])
        received = {str: "string", list: "array", dict: "object", bool: "boolean"}.get(
            given, "number"
        )
        found.append(
            {
                "code": "invalid_type",
                "expected": expected,
                "received": received,
                "path": [each for each in fault["loc"] if not str(each)[:1].isupper()],
                "message": f"Expected {expected}, received {received}",
            }
        )
    return json.dumps(found, indent=2)
