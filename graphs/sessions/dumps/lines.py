"""The messages of a dump, in a form without LangChain's types, and whether its steps fit together.

The dumps themselves are in `graphs.sessions.dumps.dump`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol
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
from ...log.messages import (
    make_message,
    metadata,
    metadata_kwargs,
    number_of,
    place_name,
    place_of,
    storable,
)
from ...log.metadata import (
    AnyMetadata,
    EarlierEnd,
    RememberedMessage,
    Speech,
    kind_name,
    original_metadata,
)
from ...rules.end_chat import decide
from ...rules.moves import MOVES
from ...rules.position import Position
from ...spec.conversation import Conversation
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
    """The reason why they could not be read."""


class Message(Data):
    """A message of the log."""

    id: str
    """Its place in the log, such as ``m0004``."""
    text: str
    """Its text."""
    tool_calls: tuple[DumpedCall, ...] = ()
    """The tools it calls."""
    invalid_tool_calls: tuple[BrokenCall, ...] = ()
    """Calls whose arguments are not JSON."""
    call_id: str | None = None
    """The id of the call that it answers, if it is a tool's result."""
    failed: bool = False
    """Whether that call failed."""
    message_id: str | None = None
    """The id that no other message has. None: it is given a new one."""
    metadata: Annotated[AnyMetadata, Field(discriminator="kind")]
    """What kind of message it is, who said it, who hears it, and the rest of its metadata."""
    usage: UsageMetadata | None = None
    """The tokens of the model's answer, as LangChain counts them."""
    model: dict[str, JsonValue] = Field(default_factory=dict)
    """What the model's client said of the answer, such as the model's name."""

    def restore(self) -> AnyMessage:
        """Return the message of the log."""
        extra = metadata_kwargs(self.metadata, number_of(self.id))
        if self.call_id is not None:
            return ToolMessage(
                storable(self.text),
                id=self.message_id or str(uuid4()),
                tool_call_id=self.call_id,
                status="error" if self.failed else "success",
                additional_kwargs=extra,
            )
        # A removed message is of the type that it had before.
        made = make_message(
            number_of(self.id),
            self.text,
            original_metadata(self.metadata),
            answer=AIMessage(
                "", id=self.message_id, usage_metadata=self.usage, response_metadata=self.model
            ),
            tool_calls=[
                ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
                for call in self.tool_calls
            ],
            invalid_tool_calls=[
                InvalidToolCall(
                    name=call.name,
                    args=call.args,
                    id=call.id,
                    error=call.error,
                    type="invalid_tool_call",
                )
                for call in self.invalid_tool_calls
            ],
        )
        return made.model_copy(update={"additional_kwargs": extra})


def dumped(message: BaseMessage) -> Message:
    """Return a message of the log as a dump contains it."""
    known: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        known = {
            "usage": message.usage_metadata,
            "model": told_of(message),
            "tool_calls": [
                DumpedCall(name=call["name"], args=call["args"], id=call["id"])
                for call in message.tool_calls
            ],
            "invalid_tool_calls": [
                BrokenCall(name=call["name"], args=call["args"], id=call["id"], error=call["error"])
                for call in message.invalid_tool_calls
            ],
        }
    if isinstance(message, ToolMessage):
        known = {"call_id": message.tool_call_id, "failed": message.status == "error"}
    return Message(
        id=place_of(message),
        message_id=message.id,
        text=message.text,
        metadata=metadata(message),
        **known,
    )


class _Step(Protocol):
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def position(self) -> Position | None: ...
    @property
    def spec(self) -> Conversation | None: ...


def check_steps(steps: Sequence[_Step], spec: Conversation) -> None:
    """Make sure that a session can go on from any of its steps."""
    names = spec.names
    log: dict[str, Message] = {}
    for number, step in enumerate(steps):
        where = f"steps.{number}"
        if step.spec is not None and step.spec.names != names:
            raise ValueError(f"{where}.spec.speakers: they differ from those of the spec")
        for place, message in enumerate(step.messages):
            _check_message(f"{where}.messages.{place}", message, log, names)
            log[message.id] = message
        ids = [one.message_id for one in log.values() if one.message_id is not None]
        if len({*ids}) < len(ids):
            raise ValueError(f"{where}.messages: two of the log have the same message_id")
        if step.position is not None:
            _check_position(f"{where}.position", step.position, [*log.values()], names)
    if steps and steps[-1].position is not None:
        _check_end(f"steps.{len(steps) - 1}.position", spec, steps[-1].position)


def _check_end(where: str, spec: Conversation, position: Position) -> None:
    try:
        decide(spec, position)
    except Exception as error:
        raise ValueError(f"{where}: nothing can follow it: {error}") from error


def _check_message(
    where: str, message: Message, log: dict[str, Message], names: Sequence[str]
) -> None:
    free = place_name(len(log))
    if message.id not in log and message.id != free:
        raise ValueError(f"{where}.id: must be {free!r}, the next one, not {message.id!r}")
    about = message.metadata
    # What is remembered of another conversation may be a stranger's.
    is_ours = not isinstance(about, RememberedMessage) and about.speaker is not None
    if is_ours and about.speaker not in names:
        raise ValueError(f"{where}.metadata.speaker: nobody is called {about.speaker!r}")


def _check_position(
    where: str, position: Position, log: Sequence[Message], names: Sequence[str]
) -> None:
    some = (position.speaker, position.chosen, *position.completed, *position.owed)
    for name in some:
        if name is not None and name not in names:
            raise ValueError(f"{where}: nobody is called {name!r}")
    # What was removed since then is counted as it was.
    were = [original_metadata(one.metadata) for one in log]
    # What ended once is counted anew from there.
    ends = (place for place, line in enumerate(were) if isinstance(line, EarlierEnd))
    first = 1 + max(ends, default=-1)
    said = sum(isinstance(line, Speech) for line in were[first:])
    removed = said - sum(isinstance(one.metadata, Speech) for one in log[first:])
    counted = position.facts.messages
    if not said - removed <= counted <= said:
        raise ValueError(f"{where}: {counted} messages were said, and {said} stand")
    reads = MOVES[position.phase].reads
    if reads.newest and not (were and isinstance(were[-1], reads.newest)):
        kinds = " or ".join(map(kind_name, reads.newest))
        raise ValueError(f"{where}: the newest message must be of the kind {kinds}")
    reads_calls = any(kind.has_calls for kind in reads.first)
    if reads_calls and not any(one.tool_calls or one.invalid_tool_calls for one in log):
        raise ValueError(f"{where}: there are no calls that could run")
