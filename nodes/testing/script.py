"""Scripts of a scripted model or server: their replies, also in OpenAI's form, and the player.

The chat model and the server share them, so a script behaves the same in either.
"""

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, convert_to_openai_messages
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...graphs.common.data import Accepts, default

if TYPE_CHECKING:
    import openai


class ScriptedToolCall(BaseModel):
    """One tool call in a reply. LangChain's own `ToolCall` dicts are accepted too.

    Attributes:
        name: The tool's name.
        args: The arguments. A string is sent unchanged, so it may be broken JSON.
        id: The call's id, which the tool result refers to. Unique within a conversation.
        chunks: The pieces in which the arguments are streamed. They must join to `arguments`. If
            None, the arguments are streamed in two halves.
        type: Always `"tool_call"`, as in LangChain's dicts.

    Raises:
        pydantic.ValidationError: The chunks do not join to the arguments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    args: dict[str, Any] | str = Field(default_factory=dict)
    id: str
    type: Literal["tool_call"] = "tool_call"
    chunks: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _check_chunks(self) -> "ScriptedToolCall":
        _check_joined(self.chunks, self.arguments, "the arguments are")
        return self

    @property
    def arguments(self) -> str:
        """The arguments as sent: JSON, or the raw text."""
        return self.args if isinstance(self.args, str) else json.dumps(self.args)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The streamed pieces of the arguments, without empty pieces."""
        raw = self.arguments
        halves = (raw[: len(raw) // 2], raw[len(raw) // 2 :])
        return tuple(filter(None, self.chunks or halves))


class Reply(BaseModel):
    """One scripted answer, or one scripted failure.

    Attributes:
        text: The text of the model's message.
        tool_calls: The tool calls, in order: `ScriptedToolCall` objects, or dicts with `name`,
            `args` and `id`.
        chunks: The pieces in which the text is streamed. They must join to `text`. If None, the
            text is streamed word by word.
        error: The failure to answer with, if any: an HTTP status (400 to 599), or `"drop"`, which
            closes the connection halfway through the answer.
        retry_after: The value of the `Retry-After` header in seconds. Only with an error status.
        message: The error's text. Only with an error status. If empty, a general text is sent.
        code: OpenAI's error code, such as `rate_limit_exceeded`. Only with an error status.
        body: The whole body of the error, for a server whose errors differ from OpenAI's. Only with
            an error status, and instead of `message` and `code`.
        delay: The wait before the answer begins, in seconds.
        finish_reason: The reason why the model stopped, such as `"length"`. With tool calls the
            default, `"stop"`, is sent as `"tool_calls"`.
        refusal: The text with which the model refuses to answer. None if it does not refuse.
        reasoning: The model's reasoning, sent separately from the text.
        reasoning_field: The field of the message that contains the reasoning.

    Raises:
        pydantic.ValidationError: The chunks do not join to the text, `error` is not an HTTP error
            status, `retry_after`, `message`, `code` or `body` is set without an error status, or
            `body` is set together with `message` or `code`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    tool_calls: Accepts[
        tuple[ScriptedToolCall, ...], Sequence[ScriptedToolCall | ToolCall | Mapping[str, Any]]
    ] = default(())
    chunks: Accepts[tuple[str, ...] | None, Sequence[str] | None] = default(None)
    error: int | Literal["drop"] | None = None
    retry_after: float | None = Field(default=None, ge=0)
    message: str = ""
    code: str | None = None
    body: dict[str, Any] | None = None
    delay: float = Field(default=0, ge=0)
    finish_reason: str = "stop"
    refusal: str | None = None
    reasoning: str = ""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"

    @model_validator(mode="after")
    def _check(self) -> "Reply":
        _check_joined(self.chunks, self.text, "the text is")
        described = bool(self.message) or self.code is not None
        if isinstance(self.error, int):
            if not 400 <= self.error <= 599:
                raise ValueError(f"error: {self.error} is not an HTTP error status; use 400 to 599")
        elif described or self.retry_after is not None or self.body is not None:
            raise ValueError(
                "retry_after, message, code and body need an error status; set error as well, as "
                "in error=429"
            )
        if described and self.body is not None:
            raise ValueError("body: contains the whole error; leave out message and code")
        return self

    @property
    def pieces(self) -> tuple[str, ...]:
        """The streamed pieces of the text, without empty pieces."""
        return tuple(filter(None, _words(self.text) if self.chunks is None else self.chunks))

    @property
    def thoughts(self) -> tuple[dict[str, str], ...]:
        """The streamed pieces of the reasoning, as deltas in OpenAI's form."""
        return tuple({self.reasoning_field: piece} for piece in _words(self.reasoning) if piece)

    @property
    def ending(self) -> str:
        """The finish reason as sent."""
        by_calls = self.tool_calls and self.finish_reason == "stop"
        return "tool_calls" if by_calls else self.finish_reason

    @property
    def words(self) -> int:
        """The number of words in text, reasoning and arguments, which usage counts as tokens."""
        spoken = len(f"{self.text or self.refusal or ''} {self.reasoning}".split())
        return spoken + sum(len(call.arguments.split()) for call in self.tool_calls)


def _words(text: str) -> list[str]:
    return re.split(r"(?<=\s)(?=\S)", text)


def _check_joined(chunks: tuple[str, ...] | None, whole: str, what: str) -> None:
    if chunks is not None and "".join(chunks) != whole:
        raise ValueError(
            f"chunks: together they are {''.join(chunks)!r}, but {what} {whole!r}; make them equal"
        )


Prompt: TypeAlias = list[dict[str, Any]]
"""A request's messages in OpenAI's form: `{"role": …, "content": …}`, with `name`, `tool_calls` and
`tool_call_id` if the message has them. `content` is a string: `""` if there is no content, and a
list only if the message contains more than text.
"""

_SHOWN = 300  # characters of each message in an error


class ScriptExhaustedError(AssertionError):
    """A call for which the script has no reply left.

    The message contains the number of replies, the number of the call and the call's prompt.
    """


Line: TypeAlias = str | Reply | BaseModel | Mapping[str, Any] | Exception
"""One answer in a script. A pydantic object or a mapping becomes JSON text. A model raises an
exception; a server answers it with an HTTP error.
"""

Script: TypeAlias = Sequence[Line] | Callable[[Prompt], Line] | Callable[[Prompt, Any], Line]
"""A sequence of answers, in the order of the calls, or a function from a request's messages to its
answer. If the function requires a second argument, it receives the recorded call. With a function,
a transcript does not depend on the order in which calls arrive. Several threads may call the
function at once.
"""


def as_reply(line: Line) -> Reply:
    """Return a line of a script as a reply. Raise the line if it is an exception.

    Raises:
        TypeError: The line has none of the accepted types.
    """
    if isinstance(line, Exception):
        raise line
    if isinstance(line, Reply):
        return line
    if isinstance(line, str):
        return Reply(text=line)
    if isinstance(line, BaseMessage):
        raise TypeError("script: an answer is no message; pass its text, or Reply(tool_calls=…)")
    if isinstance(line, BaseModel):
        return Reply(text=line.model_dump_json())
    if isinstance(line, Mapping):
        return Reply(text=json.dumps(dict(line), ensure_ascii=False))
    raise TypeError(
        f"script: an answer is a str, a Reply, a pydantic object, a dict or an exception, not "
        f"{type(line).__name__}"
    )


def as_prompt(messages: Sequence[BaseMessage | Mapping[str, Any]]) -> Prompt:
    """Return LangChain's or OpenAI's messages as new dicts, in the form that scripts receive."""
    return [
        _normal(_to_openai(message) if isinstance(message, BaseMessage) else message)
        for message in messages
    ]


def openai_call(call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    """Return a tool call in OpenAI's form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _to_openai(message: BaseMessage) -> dict[str, Any]:
    made: dict[str, Any] = convert_to_openai_messages([message], text_format="block")[0]
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        # The converter leaves these out, the real client sends them.
        made["tool_calls"] = [
            *made.get("tool_calls", ()),
            *(openai_call(c["id"], c["name"], c["args"]) for c in message.invalid_tool_calls),
        ]
    return made


def _normal(message: Mapping[str, Any]) -> dict[str, Any]:
    normal: dict[str, Any] = {k: deepcopy(v) for k, v in message.items() if v is not None}
    content = normal.get("content", "")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "".join(part["text"] for part in content)
    normal["content"] = content
    if normal.get("role") == "tool":
        normal.pop("name", None)  # OpenAI has no such field, and the real client drops it
    return normal


CallT = TypeVar("CallT")


class Tape(Generic[CallT]):
    """A script being played, with a record of all calls. Threads and tasks can share it.

    Raises:
        TypeError: The script is neither a sequence of answers nor a function, or one of its answers
            has a type that no script accepts.
    """

    def __init__(self, script: Script) -> None:
        self.calls: list[CallT] = []
        self._lock = threading.Lock()
        self._function: Callable[[Prompt, CallT], Line] | None = None
        self._lines: tuple[Line, ...] = ()
        if callable(script):
            self._function = _with_call_parameter(script)
        elif isinstance(script, str) or not isinstance(script, Sequence):
            raise TypeError(
                f"script: expected a list of replies or a function, not {type(script).__name__}; "
                f"for one reply write [reply]"
            )
        else:
            # Report a wrong line when the script is created, not at some later call.
            self._lines = tuple(x if isinstance(x, Exception) else as_reply(x) for x in script)

    def record(self, call: CallT) -> int:
        """Record a call and return its number, counted from 0."""
        with self._lock:
            self.calls.append(call)
            return len(self.calls) - 1

    def answer(self, number: int, prompt: Prompt) -> Reply:
        """Return the reply to a recorded call.

        Raises:
            ScriptExhaustedError: The script has no reply for this call.
            Exception: An exception in the script, or one that its function raises.
        """
        if self._function is not None:
            return as_reply(self._function(deepcopy(prompt), self.calls[number]))
        if number < len(self._lines):
            return as_reply(self._lines[number])
        raise ScriptExhaustedError(
            f"the script has {len(self._lines)} replies, but call {number + 1} was made; add a "
            f"reply, or end the conversation earlier. Its prompt was:\n{_show(prompt)}"
        )


def _with_call_parameter(function: Callable[..., Line]) -> Callable[[Prompt, Any], Line]:
    """Return the script's function with two parameters, the prompt and the call.

    A function that requires only one argument is called without the call.
    """
    with suppress(ValueError):  # raised for some built-in functions
        required = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
        ]
        if len(required) > 1:
            return function
    return lambda prompt, _: function(prompt)


def _show(prompt: Prompt) -> str:
    lines = []
    for message in prompt:
        content = str(message["content"] or message.get("tool_calls", ""))
        lines.append(f"  {message.get('role')}: {content[:_SHOWN]}{'…' * (len(content) > _SHOWN)}")
    return "\n".join(lines)


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
