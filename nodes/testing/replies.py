"""The answers of a scripted model or server: a reply and its tool calls."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import ToolCall
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...graphs.common.data import Accepts, default


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
