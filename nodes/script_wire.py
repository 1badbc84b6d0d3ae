"""How a scripted reply looks to a client of OpenAI: bodies, stream events, errors.

Pure functions, shared by `scripted.py` and `scripted_server.py`; sending is the server's work,
choosing the reply is `script.py`'s.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .script import Prompt, Reply, ScriptedToolCall, count_words

if TYPE_CHECKING:
    import openai

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class CallDelta(TypedDict):
    """A part of a streamed tool call; name and id come with the first part only."""

    name: str | None
    args: str
    id: str | None


def call_deltas(call: ScriptedToolCall) -> tuple[CallDelta, ...]:
    """Splits a tool call the way a provider streams it: its name, then its arguments in pieces."""
    rest = tuple(CallDelta(name=None, args=piece, id=None) for piece in call.pieces)
    return CallDelta(name=call.name, args="", id=call.id), *rest


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Gives the body of an error in OpenAI's shape.

    Args:
        status: The HTTP status, which chooses the error's `type`.
        message: What went wrong.
        code: OpenAI's error code, or None.

    Returns:
        `{"error": {"message", "type", "param", "code"}}`.
    """
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def too_long(
    prompt_tokens: int, limit: int, *, like: Literal["openai", "llama.cpp"] = "openai"
) -> Reply:
    """Gives the reply of a server that refuses a prompt as longer than its model takes.

    Args:
        prompt_tokens: The tokens of the prompt.
        limit: The tokens that the model takes.
        like: Whose error it looks like.
    """
    if like == "openai":
        message = (
            f"The maximum context length is {limit} tokens, your messages resulted in "
            f"{prompt_tokens} tokens."
        )
        return Reply(error=400, message=message, code="context_length_exceeded")
    fields = {
        "code": 400,
        "message": "the request is longer than the context",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": prompt_tokens,
        "n_ctx": limit,
    }
    return Reply(error=400, body={"error": fields})


def reply_error(reply: Reply) -> tuple[dict[str, Any], dict[str, str]]:
    """Gives the body and the headers of a reply whose `error` is an HTTP status."""
    status = int(reply.error or 0)
    message = reply.message or f"Scripted error {status}"
    body = error_body(status, message, reply.code) if reply.body is None else reply.body
    headers = {} if reply.retry_after is None else {"Retry-After": f"{reply.retry_after:g}"}
    return body, headers


def client_error(reply: Reply) -> "openai.APIError":
    """Makes the exception the real client raises for a failed reply, its retries used up.

    Args:
        reply: A reply whose `error` is set.

    Returns:
        The exception, with `status_code`, `code`, `body` and the response's headers;
        `openai.APIConnectionError` for `"drop"`.
    """
    # Loaded only here: whoever scripts no error needs no client.
    import httpx2
    import openai

    request = httpx2.Request("POST", "http://scripted/v1/chat/completions")
    if reply.error == "drop" or reply.error is None:
        return openai.APIConnectionError(request=request)
    body, headers = reply_error(reply)
    response = httpx2.Response(reply.error, headers=headers, json=body, request=request)
    # What the real client raises by status; from 500 on it is always InternalServerError.
    default = openai.InternalServerError if reply.error >= 500 else openai.APIStatusError
    made = {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        403: openai.PermissionDeniedError,
        404: openai.NotFoundError,
        409: openai.ConflictError,
        422: openai.UnprocessableEntityError,
        429: openai.RateLimitError,
    }.get(reply.error, default)
    # As the client reads it: servers put the fields under "error", or bare.
    fields = body.get("error", body)
    said = fields.get("message") if isinstance(fields, dict) else fields
    text = f"Error code: {reply.error} - {said}"
    return made(text, response=response, body=fields)


def usage(reply: Reply, prompt: Prompt) -> dict[str, int]:
    """Gives the usage of one call, words standing for tokens."""
    asked = count_words(prompt)
    return {
        "prompt_tokens": asked,
        "completion_tokens": reply.words,
        "total_tokens": asked + reply.words,
    }


def completion(reply: Reply, prompt: Prompt, model: str, number: int) -> dict[str, Any]:
    """Gives the body of an answer that is not streamed.

    Args:
        reply: What to say.
        prompt: The call's messages, for the usage.
        model: The model's name, as it was asked for.
        number: The call's number, which makes the answer's id.

    Returns:
        A `chat.completion` object.
    """
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.tool_calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.ending, "logprobs": None}
    return {
        **_envelope("chat.completion", model, number),
        "choices": [choice],
        "usage": usage(reply, prompt),
    }


def events(
    reply: Reply, prompt: Prompt, model: str, number: int, *, with_usage: bool
) -> Iterator[dict[str, Any]]:
    """Gives the events of a streamed answer, in order and without the final `[DONE]`.

    Args:
        reply: What to say.
        prompt: The call's messages, for the usage.
        model: The model's name, as it was asked for.
        number: The call's number, which makes the answer's id.
        with_usage: End with an event that holds the usage.

    Yields:
        `chat.completion.chunk` objects.
    """
    envelope = _envelope("chat.completion.chunk", model, number)

    def event(delta: dict[str, Any], ending: str | None = None) -> dict[str, Any]:
        return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": ending}]}

    yield event({"role": "assistant", "content": ""})
    for piece in reply.pieces:
        yield event({"content": piece})
    if reply.refusal is not None:
        yield event({"refusal": reply.refusal})
    for index, call in enumerate(reply.tool_calls):
        for part in call_deltas(call):
            function: dict[str, Any] = {"arguments": part["args"]}
            delta: dict[str, Any] = {"index": index, "function": function}
            if part["id"] is not None:
                function["name"] = part["name"]
                delta |= {"id": part["id"], "type": "function"}
            yield event({"tool_calls": [delta]})
    yield event({}, reply.ending)
    if with_usage:
        yield {**envelope, "choices": [], "usage": usage(reply, prompt)}


def _envelope(kind: str, model: str, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model}
