"""The messages of a dump: what is said, in a form of our own without anything of LangChain's.

The dumps themselves are in `graphs.sessions.dumps.dump`.
"""

from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    InvalidToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall
from pydantic import Field, JsonValue

from ...common.data import Data
from ...log.messages import About, beside, line, place_of, said, storable
from ...spec.usage import told_of


class DumpedCall(Data):
    """A call of a tool."""

    name: str
    """The tool."""
    args: dict[str, JsonValue]
    """Its arguments."""
    id: str | None = None
    """Its id, by which its result is found."""


class BrokenCall(Data):
    """A call of a tool whose arguments are not JSON."""

    name: str | None = None
    """The tool."""
    args: str | None = None
    """Its arguments, as the model wrote them."""
    id: str | None = None
    """Its id."""
    error: str | None = None
    """What is wrong with them."""


class Said(Data):
    """What a message says, whoever says it."""

    text: str
    """Its text."""
    tool_calls: tuple[DumpedCall, ...] = ()
    """The tools it calls."""
    invalid_tool_calls: tuple[BrokenCall, ...] = ()
    """Calls whose arguments are not JSON."""
    call_id: str | None = None
    """The id of the call that it answers, where it is a tool's answer."""
    failed: bool = False
    """Whether that call failed."""


class Message(Said):
    """A message of the log."""

    id: str
    """Its place in the log, such as ``m0004``."""
    message_id: str | None = None
    """The id that no other message has. None: it is given a new one."""
    line: About
    """What stands beside it: who said it, who hears it, what it is."""
    usage: UsageMetadata | None = None
    """The tokens of the model's answer, as LangChain counts them."""
    model: dict[str, JsonValue] = Field(default_factory=dict)
    """What the model's client said of the answer, such as the model's name."""


class Remembered(Said):
    """Something that a speaker remembers."""

    speaker: str | None = None
    """Who said it. None: the conversation itself."""
    to: str | None = None
    """Whom it is meant for, where others hear it too."""
    parsed: JsonValue = None
    """What it says by the speaker's output format, as plain values."""
    to_user: dict[str, str] = Field(default_factory=dict)
    """What of the text it said by an argument of its calls, by their ids."""

    def with_call_ids(self, change: Callable[[str], str]) -> Self:
        """Give the same with other ids of calls."""

        def changed(one: str | None) -> str | None:
            return None if one is None else change(one)

        return self.model_copy(
            update={
                "tool_calls": tuple(
                    call.model_copy(update={"id": changed(call.id)}) for call in self.tool_calls
                ),
                "invalid_tool_calls": tuple(
                    call.model_copy(update={"id": changed(call.id)})
                    for call in self.invalid_tool_calls
                ),
                "call_id": changed(self.call_id),
                "to_user": {change(key): text for key, text in self.to_user.items()},
            }
        )


def dumped(message: BaseMessage) -> Message:
    """Write down a message of the log."""
    told: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        told = {"usage": message.usage_metadata, "model": told_of(message)}
    return Message(
        id=place_of(message),
        message_id=message.id,
        line=line(message),
        **told,
        **_said(message),
    )


def remembered_by(speaker: str, message: BaseMessage) -> Remembered:
    """Write down a message of the log as something that a speaker remembers."""
    about = line(message)
    says: dict[str, Any] = {"text": message.text}
    if about.speaker == speaker:
        says = {**_said(message), "to_user": about.to_user}
    return Remembered(speaker=about.speaker, to=about.to, parsed=about.parsed, **says)


def _said(message: BaseMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"text": message.text}
    if isinstance(message, ToolMessage):
        found |= {"call_id": message.tool_call_id, "failed": message.status == "error"}
    if isinstance(message, AIMessage):
        found["tool_calls"] = [
            DumpedCall(name=call["name"], args=call["args"], id=call["id"])
            for call in message.tool_calls
        ]
        found["invalid_tool_calls"] = [
            BrokenCall(name=call["name"], args=call["args"], id=call["id"], error=call["error"])
            for call in message.invalid_tool_calls
        ]
    return found


def message_of(says: Said, number: int, about: About, message_id: str | None = None) -> AnyMessage:
    """Make the message at this place of the log out of what was written down."""
    message_id = message_id or str(uuid4())
    if says.call_id is not None:
        return ToolMessage(
            storable(says.text),
            id=message_id,
            tool_call_id=says.call_id,
            status="error" if says.failed else "success",
            additional_kwargs=beside(about, number),
        )
    answer = AIMessage("")
    if isinstance(says, Message):
        answer = AIMessage("", usage_metadata=says.usage, response_metadata=says.model)
    return said(
        number,
        says.text,
        about.was or about,
        id=message_id,
        answer=answer,
        tool_calls=[
            ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
            for call in says.tool_calls
        ],
        invalid_tool_calls=[
            InvalidToolCall(
                name=call.name,
                args=call.args,
                id=call.id,
                error=call.error,
                type="invalid_tool_call",
            )
            for call in says.invalid_tool_calls
        ],
    ).model_copy(update={"additional_kwargs": beside(about, number)})
