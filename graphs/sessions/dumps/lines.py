"""The messages of a dump, in a form without LangChain's types, and whether its steps fit together.

The dumps themselves are in `graphs.sessions.dumps.dump`, what a speaker remembers in
`graphs.speakers.memory`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from pydantic import Field, JsonValue

from ...log.messages import metadata, place_name, place_of
from ...log.metadata import (
    AnyMetadata,
    EarlierEnd,
    RememberedMessage,
    Speech,
    kind_name,
    original_metadata,
)
from ...log.remembered import what_is_said
from ...rules.end_chat import decide
from ...rules.moves import MOVES
from ...rules.position import Position
from ...speakers.memory import Said
from ...spec.conversation import Conversation
from ...spec.usage import told_of


class Message(Said):
    """A message of the log."""

    id: str
    """Its place in the log, such as ``m0004``."""
    message_id: str | None = None
    """The id that no other message has. None: it is given a new one."""
    metadata: Annotated[AnyMetadata, Field(discriminator="kind")]
    """What kind of message it is, who said it, who hears it, and the rest of its metadata."""
    usage: UsageMetadata | None = None
    """The tokens of the model's answer, as LangChain counts them."""
    model: dict[str, JsonValue] = Field(default_factory=dict)
    """What the model's client said of the answer, such as the model's name."""

    @property
    def answer(self) -> AIMessage:
        """The model's answer, as far as more is known of it than what it says."""
        return AIMessage(
            "", id=self.message_id, usage_metadata=self.usage, response_metadata=self.model
        )


def dumped(message: BaseMessage) -> Message:
    """Write down a message of the log."""
    told: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        told = {"usage": message.usage_metadata, "model": told_of(message)}
    return Message(
        id=place_of(message),
        message_id=message.id,
        metadata=metadata(message),
        **told,
        **what_is_said(message),
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
