"""Answers and errors in the format of OpenAI's Chat Completions API. Pure functions."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...nodes.models.refusals import find_refusal, is_for_now, is_outage
from ..common.errors import (
    AnswerError,
    ContextTooLongError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
)
from ..conversation.usage import Usage

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class RefusedError(DuologueError):
    """A request that is refused. The message names the problem and the remedy.

    Attributes:
        status: The HTTP status.
        code: OpenAI's or duologue's word for the problem, for programs.
    """

    def __init__(self, status: int, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class Failure(NamedTuple):
    """An error, as a client receives it."""

    status: int
    message: str
    code: str | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return error_body(self.status, self.message, self.code)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response. Clients wait for some time after too many requests."""
        return {"Retry-After": "1"} if self.status == 429 else {}


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error. The field at the beginning of the message is its ``param``."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    field, colon, _ = message.partition(": ")
    param = field if status == 400 and colon and " " not in field else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def failure_of(error: Exception) -> Failure:
    """Return the response to an error of a run."""
    text = str(error)
    match error:
        case RefusedError():
            return Failure(error.status, text, error.code)
        case ContextTooLongError():
            return Failure(400, text, "context_length_exceeded")
        case ModelError():
            return Failure(429 if is_for_now(error) else 502, text, "model_error")
        case AnswerError():
            return Failure(400, text)
        case SessionError():
            return Failure(409, text, "session_error")
        case SpecError() | DuologueError():
            return Failure(500, text)
    # A model that is a Python object raises the errors of its own client.
    if find_refusal(error) is None and not is_outage(error):
        return Failure(500, f"The conversation failed: {type(error).__name__}")
    status = 429 if is_for_now(error) else 502
    return Failure(status, f"The model did not answer: {type(error).__name__}", "model_error")


class Envelope(NamedTuple):
    """The fields that all parts of one answer share."""

    id: str
    created: int
    """The Unix time of the request, in seconds."""
    model: str

    def completion(self, text: str, ending: str, usage: Usage) -> dict[str, Any]:
        """Return a whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": ending, "logprobs": None}
        return {
            **self._asdict(),
            "object": "chat.completion",
            "choices": [choice],
            "usage": write_usage(usage),
        }

    def chunk(self, delta: dict[str, str], ending: str | None = None) -> dict[str, Any]:
        """Return a part of a streamed answer."""
        choice = {"index": 0, "delta": delta, "finish_reason": ending, "logprobs": None}
        return {**self._asdict(), "object": "chat.completion.chunk", "choices": [choice]}

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """Return the part of a streamed answer that contains its usage."""
        counts = write_usage(usage)
        return {**self._asdict(), "object": "chat.completion.chunk", "choices": [], "usage": counts}


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the counts of tokens."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": usage.audio_input_tokens,
        },
        "completion_tokens_details": {"audio_tokens": usage.audio_output_tokens},
    }


def describe_model(name: str, created: int) -> dict[str, Any]:
    """Return a served conversation in a list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "duologue"}
