"""A scripted reply in OpenAI's form: answers, stream events and errors, as pure functions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .script import Prompt, Reply, openai_call

if TYPE_CHECKING:
    import openai

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error in OpenAI's form."""
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def reply_error(reply: Reply) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body and the headers of a reply whose `error` is an HTTP status."""
    status = int(reply.error or 0)
    message = reply.message or f"Scripted error {status}"
    body = error_body(status, message, reply.code) if reply.body is None else reply.body
    headers = {} if reply.retry_after is None else {"Retry-After": f"{reply.retry_after:g}"}
    return body, headers


def client_error(reply: Reply) -> "openai.APIError":
    """Return the exception that OpenAI's client raises for a failed reply after its retries."""
    # Imported here: a script without errors needs no client.
    import httpx2
    import openai

    request = httpx2.Request("POST", "http://scripted/v1/chat/completions")
    if not isinstance(reply.error, int):
        return openai.APIConnectionError(request=request)
    body, headers = reply_error(reply)
    response = httpx2.Response(reply.error, headers=headers, json=body, request=request)
    default = openai.InternalServerError if reply.error >= 500 else openai.APIStatusError
    error_class = {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        403: openai.PermissionDeniedError,
        404: openai.NotFoundError,
        409: openai.ConflictError,
        422: openai.UnprocessableEntityError,
        429: openai.RateLimitError,
    }.get(reply.error, default)
    # The client reads fields the same way: servers send them under "error", or at the top level.
    fields = body.get("error", body)
    message_text = fields.get("message") if isinstance(fields, dict) else fields
    return error_class(
        f"Error code: {reply.error} - {message_text}", response=response, body=fields
    )


def usage(reply: Reply, prompt: Prompt) -> dict[str, int]:
    """Return the token usage of one call, counting words as tokens."""
    read = 0
    for message in prompt:
        if isinstance(message["content"], str):
            read += len(message["content"].split())
        for call in message.get("tool_calls", ()):
            read += len(call["function"]["arguments"].split())
    return {
        "prompt_tokens": read,
        "completion_tokens": reply.words,
        "total_tokens": read + reply.words,
    }


def completion(reply: Reply, prompt: Prompt, model: str, number: int) -> dict[str, Any]:
    """Return the `chat.completion` object of an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.reasoning:
        message[reply.reasoning_field] = reply.reasoning
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [openai_call(c.id, c.name, c.arguments) for c in reply.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": reply.ending, "logprobs": None}
    return {
        **_envelope("chat.completion", model, number),
        "choices": [choice],
        "usage": usage(reply, prompt),
    }


def deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a streamed answer: reasoning, text, refusal and tool calls.

    For a broken connection, yield the first half of the text only.
    """
    if reply.error == "drop":
        yield from ({"content": piece} for piece in reply.pieces[: len(reply.pieces) // 2])
        return
    yield from reply.thoughts
    yield from ({"content": piece} for piece in reply.pieces)
    if reply.refusal is not None:
        yield {"refusal": reply.refusal}
    for index, call in enumerate(reply.tool_calls):
        yield {"tool_calls": [{"index": index, **openai_call(call.id, call.name, "")}]}
        for piece in call.pieces:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def events(
    reply: Reply, prompt: Prompt, model: str, number: int, *, with_usage: bool
) -> Iterator[dict[str, Any]]:
    """Yield the `chat.completion.chunk` objects of a streamed answer, in order.

    If the reply breaks the connection, the objects end in the middle of the answer.
    """
    envelope = _envelope("chat.completion.chunk", model, number)

    def event(delta: dict[str, Any], ending: str | None = None) -> dict[str, Any]:
        return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": ending}]}

    yield event({"role": "assistant", "content": ""})
    yield from map(event, deltas(reply))
    if reply.error == "drop":
        return
    yield event({}, reply.ending)
    if with_usage:
        yield {**envelope, "choices": [], "usage": usage(reply, prompt)}


def _envelope(kind: str, model: str, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model}
