"""What a scripted model or server says: replies, scripts, and the tape that plays them.

Here are the data and the rules both sides share, so that one script behaves the same in
`scripted.py` (a LangChain model) and in `scripted_server.py` (an HTTP server). Neither LangChain
models nor HTTP are here.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from pydantic import BaseModel, ConfigDict, Field, model_validator

Prompt: TypeAlias = list[dict[str, Any]]
"""A request's messages as OpenAI writes them: `{"role": …, "content": …}` and, where they apply,
`name`, `tool_calls` and `tool_call_id`. `content` is a string, `""` where there is none, and a
list only where it holds more than text."""

_SHOWN = 300  # characters of each message in an error


class ScriptExhaustedError(AssertionError):
    """More calls were made than the script has replies. Names both numbers and the last prompt."""


class ScriptedToolCall(BaseModel):
    """One tool call inside a reply. LangChain's own `ToolCall` dicts are accepted in its place.

    Attributes:
        name: The tool's name.
        args: The arguments, or raw text that is sent as it is (so it may be broken JSON).
        id: The call's id, which the tool's result refers to; unique within a conversation.
        chunks: The pieces the arguments stream in; they must join to `arguments`. None: in halves.
        type: Only there so that LangChain's dicts fit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    args: dict[str, Any] | str = Field(default_factory=dict)
    id: str
    type: Literal["tool_call"] = "tool_call"
    chunks: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _joins(self) -> "ScriptedToolCall":
        if self.chunks is not None and "".join(self.chunks) != self.arguments:
            raise ValueError(
                f"chunks join to {''.join(self.chunks)!r}, but the arguments are {self.arguments!r}"
            )
        return self

    @property
    def pieces(self) -> tuple[str, ...]:
        """The arguments in the pieces they stream in, none of them empty."""
        raw = self.arguments
        halves = (raw[: len(raw) // 2], raw[len(raw) // 2 :])
        return tuple(piece for piece in self.chunks or halves if piece)

    @property
    def arguments(self) -> str:
        """The arguments as they go over the wire: JSON text, or the raw text."""
        return self.args if isinstance(self.args, str) else json.dumps(self.args)


class Reply(BaseModel):
    """One scripted answer, or one scripted failure.

    Attributes:
        text: What the model says.
        tool_calls: The tools it asks for, in order.
        chunks: The pieces the text streams in; they must join to `text`. None: by words.
        error: Answer with this HTTP status (400 to 599) instead, or `"drop"`: break the
            connection halfway through the answer.
        retry_after: Seconds, sent as the `Retry-After` header; only with an error status.
        message: The error's text; only with an error status. "": a general one.
        code: OpenAI's error code, such as `rate_limit_exceeded`; only with an error status.
        body: The whole body of the error, for a server whose errors look unlike OpenAI's; only
            with an error status, and in the place of `message` and `code`.
        delay: Seconds to wait before the answer begins.
        finish_reason: Why the model stopped, `"length"` for instance. With tool calls the
            default, `"stop"`, is sent as `"tool_calls"`.
        refusal: The model's refusal to answer, in its words.

    Raises:
        pydantic.ValidationError: The chunks don't join to the text, or `retry_after`, `message`,
            `code` or `body` stand without an error status, or `body` beside what it replaces.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    chunks: tuple[str, ...] | None = None
    error: int | Literal["drop"] | None = None
    retry_after: float | None = Field(default=None, ge=0)
    message: str = ""
    code: str | None = None
    body: dict[str, Any] | None = None
    delay: float = Field(default=0, ge=0)
    finish_reason: str = "stop"
    refusal: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "Reply":
        if self.chunks is not None and "".join(self.chunks) != self.text:
            raise ValueError(f"chunks join to {''.join(self.chunks)!r}, but text is {self.text!r}")
        if isinstance(self.error, int):
            if not 400 <= self.error <= 599:
                raise ValueError(f"error is {self.error}, but an HTTP error is 400 to 599")
        elif self.retry_after is not None or self._has_error:
            raise ValueError(
                "retry_after, message, code and body need an error status, such as 429"
            )
        if self.body is not None and (self.message or self.code is not None):
            raise ValueError("body is the whole error: leave out message and code")
        return self

    @property
    def _has_error(self) -> bool:
        return bool(self.message) or self.code is not None or self.body is not None

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text in the pieces it streams in, none of them empty."""
        pieces = re.split(r"(?<=\s)(?=\S)", self.text) if self.chunks is None else self.chunks
        return tuple(piece for piece in pieces if piece)

    @property
    def ending(self) -> str:
        """The finish reason as it is sent."""
        return (
            "tool_calls" if self.tool_calls and self.finish_reason == "stop" else self.finish_reason
        )

    @property
    def words(self) -> int:
        """The answer's length, for usage: words of the text and of the calls' arguments."""
        spoken = len((self.text or self.refusal or "").split())
        return spoken + sum(len(call.arguments.split()) for call in self.tool_calls)


Line: TypeAlias = str | Reply | BaseModel | Mapping[str, Any] | Exception
"""One answer in a script. A pydantic object or a mapping is said as its JSON text."""

Script: TypeAlias = Sequence[Line] | Callable[[Prompt], Line]
"""Either answers, in the order of the calls, or a function from a request's messages to its answer.
The function makes a transcript independent of the order in which calls arrive; it may be called
from several threads at once."""


def as_reply(line: Line) -> Reply:
    """Turns one line of a script into a reply.

    Args:
        line: Text, a reply, or an object whose JSON is said.

    Returns:
        The reply.

    Raises:
        Exception: The line itself, where the line is an exception.
        TypeError: The line is nothing that can be said.
    """
    if isinstance(line, Exception):
        raise line
    if isinstance(line, Reply):
        return line
    if isinstance(line, str):
        return Reply(text=line)
    if isinstance(line, BaseModel):
        return Reply(text=line.model_dump_json())
    if isinstance(line, Mapping):
        return Reply(text=json.dumps(dict(line), ensure_ascii=False))
    raise TypeError(
        f"A script answers with str, Reply, a pydantic object, a dict or an exception, "
        f"not {type(line).__name__}"
    )


def as_prompt(messages: Sequence[BaseMessage | Mapping[str, Any]]) -> Prompt:
    """Brings messages into the one shape that scripts see.

    Args:
        messages: LangChain messages, or messages from the body of an OpenAI request.

    Returns:
        New dicts, safe to change, that are equal for a LangChain message and for what
        `ChatOpenAI` sends for it.
    """
    return [
        _normal(_to_openai(message) if isinstance(message, BaseMessage) else message)
        for message in messages
    ]


def _to_openai(message: BaseMessage) -> dict[str, Any]:
    made: dict[str, Any] = convert_to_openai_messages([message], text_format="block")[0]
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        # The converter leaves these out, the real client sends them.
        made["tool_calls"] = [
            *made.get("tool_calls", ()),
            *(
                {
                    "type": "function",
                    "id": call["id"],
                    "function": {"name": call["name"], "arguments": call["args"]},
                }
                for call in message.invalid_tool_calls
            ),
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


def count_words(prompt: Prompt) -> int:
    """Counts a prompt's words, which stand for its tokens.

    Args:
        prompt: The messages as `as_prompt` gives them.

    Returns:
        The words of every text and of every tool call's arguments.
    """
    total = 0
    for message in prompt:
        if isinstance(message["content"], str):
            total += len(message["content"].split())
        for call in message.get("tool_calls", ()):
            total += len(call["function"]["arguments"].split())
    return total


CallT = TypeVar("CallT")


class Tape(Generic[CallT]):
    """Plays a script and keeps what was asked; safe to share between threads and tasks.

    Args:
        script: The script to play. A sequence is read once, here.

    Attributes:
        calls: Every call so far, in the order in which they were numbered.

    Raises:
        TypeError: The script is neither a sequence of lines nor a function.
        pydantic.ValidationError: A line is not a valid reply.
    """

    def __init__(self, script: Script) -> None:
        self.calls: list[CallT] = []
        self._lock = threading.Lock()
        self._function: Callable[[Prompt], Line] | None = None
        self._lines: tuple[Line, ...] = ()
        if callable(script):
            self._function = script
        elif isinstance(script, str) or not isinstance(script, Sequence):
            raise TypeError(
                f"A script is a list of replies or a function, not {type(script).__name__}; "
                f"for one reply write [reply]"
            )
        else:
            # A wrong line is reported where the script is written, not at some later call.
            self._lines = tuple(x if isinstance(x, Exception) else as_reply(x) for x in script)

    def record(self, call: CallT) -> int:
        """Keeps one call.

        Args:
            call: What to keep.

        Returns:
            The call's number, from 0; in a sequence it is answered by the line of that number.
        """
        with self._lock:
            self.calls.append(call)
            return len(self.calls) - 1

    def answer(self, number: int, prompt: Prompt) -> Reply:
        """Gives the reply to one recorded call.

        Args:
            number: What `record` returned.
            prompt: The call's messages.

        Returns:
            The reply.

        Raises:
            ScriptExhaustedError: The sequence has no line for this call.
            Exception: Whatever the script says, or its function raises.
        """
        if self._function is not None:
            return as_reply(self._function(deepcopy(prompt)))
        if number < len(self._lines):
            return as_reply(self._lines[number])
        raise ScriptExhaustedError(
            f"The script has {len(self._lines)} replies, but this is call number {number + 1}. "
            f"Its prompt was:\n{_shown(prompt)}"
        )


def _shown(prompt: Prompt) -> str:
    lines = []
    for message in prompt:
        said = str(message["content"] or message.get("tool_calls", ""))
        lines.append(f"  {message.get('role')}: {said[:_SHOWN]}{'…' * (len(said) > _SHOWN)}")
    return "\n".join(lines)
