"""A fake of Google's address with OpenAI's Chat Completions, which serves Gemini.

https://ai.google.dev/gemini-api/docs/openai; its errors are a list:
https://github.com/securo-finance/securo/issues/884.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from duologue.nodes.testing import Reply

from .base import OpenAILikeServer, ProviderRequest, RefusedRequestError
from .openai_rules import check_ranges, check_tool_results

SIGNATURE: Final = "Z2VtaW5p"
_SKIP: Final = "skip_thought_signature_validator"
"""Signature for calls of other models: https://ai.google.dev/gemini-api/docs/thought-signatures."""


class GeminiOpenAI(OpenAILikeServer):
    """Google's address with OpenAI's API. It shows no thoughts, but signs them."""

    path = "/v1beta/openai/chat/completions"
    models: ClassVar[tuple[str, ...]] = ("gemini-3-pro-preview", "gemini-2.5-flash")
    always_sends_usage = True

    def check_body(self, body: dict[str, Any]) -> None:
        """Check the model, the results and the signatures."""
        if body.get("model") not in self.models:
            raise RefusedRequestError(
                f"models/{body.get('model')} is not found for API version v1main", status=404
            )
        check_ranges(body, (("temperature", 0, 2), ("top_p", 0, 1)))
        check_tool_results(body)
        if "-3-" in body["model"]:
            _check_signatures(body["messages"])

    def render_answer(self, reply: Reply, request: ProviderRequest, number: int) -> object:
        """Return a completion, whose first call is signed."""
        made: Any = super().render_answer(reply, request, number)
        for call in made["choices"][0]["message"].get("tool_calls", ())[:1]:
            call["extra_content"] = _signed(request)
        return made

    def make_chunks(
        self, reply: Reply, request: ProviderRequest, number: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream, in which the first call is signed."""
        is_signed = False
        for chunk in super().make_chunks(reply, request, number):
            for choice in chunk["choices"]:
                for call in choice["delta"].get("tool_calls", ())[: 0 if is_signed else 1]:
                    call["extra_content"] = _signed(request)
                    is_signed = True
            yield chunk

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in Google's form, inside a list."""
        status = "NOT_FOUND" if error.status == 404 else "INVALID_ARGUMENT"
        return [{"error": {"code": error.status, "message": error.message, "status": status}}]


def _signed(request: ProviderRequest) -> dict[str, Any]:
    return {"google": {"thought_signature": SIGNATURE}} if "-3-" in request.model else {}


def _check_signatures(messages: list[dict[str, Any]]) -> None:
    """Refuse a message of the current turn whose first call has no valid signature.

    https://ai.google.dev/gemini-api/docs/thought-signatures;
    https://github.com/lbjlaq/Antigravity-Manager/issues/970 quotes the error of another model's.
    """
    heard = (place for place, one in enumerate(messages) if one["role"] == "user")
    for place in range(max(heard, default=-1) + 1, len(messages)):
        for call in messages[place].get("tool_calls", ())[:1]:
            google = (call.get("extra_content") or {}).get("google") or {}
            signature = google.get("thought_signature")
            if signature is None:
                raise RefusedRequestError(
                    "Function call is missing a thought_signature in functionCall parts. This is "
                    "required for tools to work correctly, and missing thought_signature may lead "
                    "to degraded model performance. Additional data, function call "
                    f"`default_api:{call['function']['name']}` , position {place + 1}."
                )
            if signature not in (SIGNATURE, _SKIP):
                raise RefusedRequestError("Corrupted thought signature.")
