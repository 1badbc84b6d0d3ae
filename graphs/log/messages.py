"""The messages of the log: LangChain messages, each with a `MessageMetadata` and a place.

A message's id is unique among all conversations. It comes from the model or is random. In the
stream mode ``messages``, LangGraph streams each message that a node writes, unless it has already
streamed a model's tokens under the same id. A message's place is its number in the log. People read
and type places, and messages refer to one another by them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import is_
from typing import Any, Final, Generic, TypeVar, get_args
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall
from pydantic import JsonValue

from ..common.content import Block, Content, is_inline_file, keep_stored, make_content, text_block
from ..common.sanitize import storable as storable
from ..conversation.usage import select_response_metadata
from ..speakers.call_settings import DecisionType
from ..speakers.reply_parts import STOP
from .metadata import (
    NOBODY,
    AnyMetadata,
    EarlierEnd,
    Failure,
    Instruction,
    MessageMetadata,
    ModelOutput,
    PendingAnswer,
    Source,
    SpeakerReply,
    Speech,
    ToolResult,
    UnheardReply,
    UnheardResult,
    kind_name,
)

M = TypeVar("M", bound=BaseMessage)
T = TypeVar("T")

KEY: Final = "duologue"
"""The key of a message's metadata in its ``additional_kwargs``."""

PLACE: Final = "duologue_place"
"""The key of a message's place in its ``additional_kwargs``. Places are counted from 0."""

_FROM_ELSEWHERE: Final = Instruction()
"""The metadata that is assumed for a message without metadata."""

_KINDS: Final[dict[str, type[AnyMetadata]]] = {
    kind_name(kind): kind for kind in get_args(AnyMetadata)
}
"""The class of each kind of message, by the kind's name."""


class _StoredMetadata(dict[str, Any]):
    """Metadata as plain values, which every store can store. It is parsed only once."""

    @cached_property
    def read(self) -> AnyMetadata:
        return read_metadata(self)


def read_metadata(stored: object) -> AnyMetadata:
    """Parse metadata from its stored form.

    Raises:
        ValueError: The stored value is not in the form in which duologue stores metadata.
    """
    name = stored.get("kind") if isinstance(stored, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"{KEY}.kind: {name!r} is not a kind of message")
    return kind.model_validate(stored)


def metadata(message: BaseMessage) -> AnyMetadata:
    """Return a log message's metadata. A message without metadata counts as an instruction to all.

    Raises:
        ValueError: The metadata is not in the form in which duologue stores it.
    """
    found = message.additional_kwargs.get(KEY)
    if found is None:
        return _FROM_ELSEWHERE
    if isinstance(found, _StoredMetadata):
        return found.read
    # The store returns a plain dict. From here on, the parsed metadata stays with the message.
    read = read_metadata(found)
    kept = message.additional_kwargs[KEY] = _StoredMetadata(found)
    kept.read = read
    return read


def stored_metadata(message: BaseMessage) -> dict[str, Any]:
    """Return a message's metadata as stored. Damaged metadata counts as empty."""
    found = message.additional_kwargs.get(KEY)
    return found if isinstance(found, dict) else {}


def metadata_kwargs(about: MessageMetadata, number: int) -> dict[str, Any]:
    """Return the ``additional_kwargs`` of a message at this place in the log."""
    return {KEY: stored_form(about), PLACE: number}


def stored_form(about: MessageMetadata) -> dict[str, Any]:
    """Return metadata as plain values, without the fields that have their default."""
    return _StoredMetadata(about.model_dump(mode="json", exclude_defaults=True))


def make_message(
    number: int,
    content: Content,
    about: MessageMetadata,
    *,
    id: str | None = None,  # noqa: A002  # as LangChain calls it
    answer: AIMessage | None = None,
    tool_calls: Sequence[ToolCall] = (),
    invalid_tool_calls: Sequence[InvalidToolCall] = (),
) -> AnyMessage:
    """Build a message for the log, with `number` as its place.

    A message that comes from a model's answer keeps the answer's id, usage, response metadata, and
    the reason why the model stopped.
    """
    stop = answer.additional_kwargs.get(STOP) if answer else None
    if isinstance(about, ModelOutput) and stop is not None:
        about = about.model_copy(update={"stop": stop})
    text = storable(content) if isinstance(content, str) else storable_content(content)
    message_id = id or (answer.id if answer else None) or str(uuid4())
    by_person = isinstance(about, SpeakerReply) and about.source is Source.HUMAN
    if about.speaker is None or by_person:
        extra = metadata_kwargs(about, number)
        return HumanMessage(text, id=message_id, name=about.speaker, additional_kwargs=extra)
    return AIMessage(
        text,
        id=message_id,
        name=about.speaker,
        additional_kwargs=metadata_kwargs(about, number),
        usage_metadata=answer.usage_metadata if answer else None,
        response_metadata=select_response_metadata(answer) if answer else {},
        tool_calls=list(tool_calls),
        invalid_tool_calls=list(invalid_tool_calls),
    )


def make_tool_message(
    number: int,
    text: str,
    *,
    files: Sequence[Block] = (),
    speaker: str,
    call_id: str,
    failure: Failure | None = None,
    arguments: dict[str, Any] | None = None,
    tool: str | None = None,
    decision: DecisionType | None = None,
    refusal: str | None = None,
    parsed: JsonValue = None,
    artifact: Any = None,  # noqa: ANN401
    artifact_problem: str | None = None,
    tool_round: int | None = None,
    final: bool = True,
    id: str | None = None,  # noqa: A002  # as LangChain calls it
) -> ToolMessage:
    """Return the message with the result of a tool call, for the log.

    `files` are its images and other files. If `final` is True, the speaker who called the tool
    hears it. Otherwise hooks see it first, or
    the speaker reports it in a message.
    """
    kind: type[ToolResult | UnheardResult] = ToolResult if final else UnheardResult
    about = kind(
        speaker=speaker,
        audience=(speaker,) if final else NOBODY,
        failure=failure,
        arguments=arguments,
        tool=tool,
        decision=decision,
        refusal=refusal,
        parsed=parsed,
        artifact_problem=artifact_problem,
        tool_round=tool_round,
    )
    text = storable(text)
    return ToolMessage(
        make_content(text, files) if files else text,
        id=id or str(uuid4()),
        tool_call_id=call_id,
        status="error" if failure else "success",
        artifact=artifact,
        additional_kwargs=metadata_kwargs(about, number),
    )


def storable_content(content: Content) -> Content:
    """Return content that can be stored: its texts, encodable, and its files."""
    if isinstance(content, str):
        return storable(content)
    kept = keep_stored(content)
    if isinstance(kept, str):
        return storable(kept)
    return [
        one
        if is_inline_file(one)
        else text_block(storable(one if isinstance(one, str) else str(one.get("text") or "")))
        for one in kept
    ]


_PLACE_NAME = "m{:04d}"


def place_name(number: int) -> str:
    """Return the name of a place in the log, as people read and type it, such as ``m0004``."""
    return _PLACE_NAME.format(number)


def number_of(place: str) -> int:
    """Return the number of a place from its name."""
    return int(place.removeprefix("m"))


def place_of(message: BaseMessage) -> str:
    """Return the name of a message's place, or its id if it has no place."""
    number = message.additional_kwargs.get(PLACE)
    return str(message.id) if number is None else _PLACE_NAME.format(number)


def speeches(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages that the speakers said in their turns, oldest first."""
    return [message for message in log if isinstance(metadata(message), Speech)]


def since_end(log: Sequence[M]) -> Sequence[M]:
    """Return the messages after the last earlier end of the conversation, or all messages."""
    for place in reversed(range(len(log))):
        if isinstance(metadata(log[place]), EarlierEnd):
            return log[place + 1 :]
    return log


def says_something(message: BaseMessage, about: MessageMetadata) -> bool:
    """Return whether a speaker says text with a message: in its turn, or with its tool calls."""
    speaks = about.is_spoken and isinstance(about, SpeakerReply)
    if isinstance(about, Speech) and about.is_delivered:
        return False
    return speaks and (not about.has_calls or bool(message.text.strip()))


def thought_text(about: MessageMetadata) -> str:
    """Return the thought before a message, for people. Empty if no speaker hears the message."""
    if not isinstance(about, ModelOutput) or isinstance(about, UnheardReply | PendingAnswer):
        return ""
    return "" if about.thought is None else about.thought.text


def newest_calls(log: Sequence[BaseMessage]) -> AIMessage:
    """Return the newest message that calls tools or runs code; results may come after it."""
    return next(
        message
        for message in reversed(log)
        if isinstance(message, AIMessage)
        and metadata(message).has_calls
        and (message.tool_calls or message.invalid_tool_calls)
    )


S = TypeVar("S")


class Fold(Generic[S, T]):
    """A value that is computed from a log, message by message.

    If the next log continues the previous log, only its new messages are read. Any other log, such
    as one from which a message was removed, is read from its beginning.
    """

    def __init__(self, begin: Callable[[], S], add: Callable[[S, T], object]) -> None:
        self._begin = begin
        self._add = add
        self._read: list[T] = []
        self._state = begin()

    def of(self, log: Sequence[T]) -> S:
        """Return the value for a log. The next call changes it in place."""
        if not continues_log(self._read, log):
            self._read, self._state = [], self._begin()
        for one in log[len(self._read) :]:
            self._add(self._state, one)
            self._read.append(one)
        return self._state


def continues_log(before: Sequence[object], log: Sequence[object]) -> bool:
    """Return whether a log begins with another one. Messages are never changed, only replaced."""
    return len(before) <= len(log) and all(map(is_, before, log))
