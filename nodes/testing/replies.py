"""What a scripted model or server answers: one reply, and the calls of tools in it."""

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
        args: The arguments, or raw text that is sent as it is (so it may be broken JSON).
        id: The call's id, which the tool's result refers to; unique within a conversation.
        chunks: The pieces the arguments stream in; they must join to `arguments`. None: in halves.
        type: Always `"tool_call"`, as in LangChain's dicts.
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
        """The arguments as they are sent: JSON, or the raw text."""
        return self.args if isinstance(self.args, str) else json.dumps(self.args)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The arguments in the pieces they stream in, none of them empty."""
        raw = self.arguments
        halves = (raw[: len(raw) // 2], raw[len(raw) // 2 :])
        return tuple(filter(None, self.chunks or halves))


class Reply(BaseModel):
    """One scripted answer, or one scripted failure.

    Attributes:
        text: What the model says.
        tool_calls: The tools it calls, in order.
        chunks: The pieces the text streams in; they must join to `text`. None: word by word.
        error: Answer with this HTTP status (400 to 599) instead, or `"drop"`: break the
            connection halfway through the answer.
        retry_after: Seconds, sent as the `Retry-After` header; only with an error status.
        message: The error's text; only with an error status. "": a general one.
        code: OpenAI's error code, such as `rate_limit_exceeded`; only with an error status.
        body: The whole body of the error, for a server whose errors look unlike OpenAI's; only
            with an error status, and instead of `message` and `code`.
        delay: Seconds to wait before the answer begins.
        finish_reason: Why the model stopped, `"length"` for instance. With tool calls the
            default, `"stop"`, is sent as `"tool_calls"`.
        refusal: The text with which the model refuses to answer.
        reasoning: What the model thinks, beside the text.
        reasoning_field: Where that stands in the message.

    Raises:
        pydantic.ValidationError: The chunks don't join to the text; or `retry_after`, `message`,
            `code` or `body` are given without an error status, or `body` with `message` or `code`.
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
        _check_joined(self.chunks, self.text, "text is")
        described = bool(self.message) or self.code is not None
        if isinstance(self.error, int):
            if not 400 <= self.error <= 599:
                raise ValueError(f"error is {self.error}, but an HTTP error is 400 to 599")
        elif described or self.retry_after is not None or self.body is not None:
            raise ValueError(
                "retry_after, message, code and body need an error status, such as 429"
            )
        if described and self.body is not None:
            raise ValueError("body is the whole error: leave out message and code")
        return self

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text in the pieces it streams in, none of them empty."""
        return tuple(filter(None, _words(self.text) if self.chunks is None else self.chunks))

    @property
    def thoughts(self) -> tuple[dict[str, str], ...]:
        """What the model thinks, in the pieces it streams in."""
        return tuple({self.reasoning_field: piece} for piece in _words(self.reasoning) if piece)

    @property
    def ending(self) -> str:
        """The finish reason as it is sent."""
        by_calls = self.tool_calls and self.finish_reason == "stop"
        return "tool_calls" if by_calls else self.finish_reason

    @property
    def words(self) -> int:
        """The words of the text, the thought and the arguments, which stand for its tokens."""
        spoken = len(f"{self.text or self.refusal or ''} {self.reasoning}".split())
        return spoken + sum(len(call.arguments.split()) for call in self.tool_calls)


def _words(text: str) -> list[str]:
    return re.split(r"(?<=\s)(?=\S)", text)


def _check_joined(chunks: tuple[str, ...] | None, whole: str, what: str) -> None:
    if chunks is not None and "".join(chunks) != whole:
        raise ValueError(f"chunks join to {''.join(chunks)!r}, but {what} {whole!r}")
