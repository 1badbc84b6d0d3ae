"""The messages of the log: LangChain messages, each with a `MessageMetadata` and a place.

A message's id is unique among all conversations. It comes from the model or is random. In the
stream mode ``messages``, LangGraph streams each message that a node writes, unless it has already
streamed a model's tokens under the same id. A message's place is its number in the log. People read
and type places, and messages refer to one another by them. Artifacts of tools and logs of inner
sessions are data that only programs and people read.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from operator import is_
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_args
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
    messages_from_dict,
)
from langchain_core.messages.tool import ToolCall
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ..common.content import (
    Block,
    Content,
    files_of,
    is_inline_file,
    keep_stored,
    make_content,
    text_block,
    text_of,
)
from ..common.content_input import keep_inline
from ..common.sanitize import excerpt, storable as storable
from ..common.validation import check_depth
from ..conversation.conversation import Conversation, restore_conversation
from ..conversation.usage import select_response_metadata
from ..speakers.reply_parts import STOP
from .metadata import (
    AnyMetadata,
    CallOutcome,
    EarlierEnd,
    InnerSession,
    Instruction,
    MessageMetadata,
    ModelOutput,
    PendingAnswer,
    RememberedMessage,
    Source,
    SpeakerReply,
    Speech,
    UnheardReply,
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
    stored = _StoredMetadata(about.model_dump(mode="json", exclude_defaults=True))
    stored.read = cast("AnyMetadata", about)
    return stored


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
    about: CallOutcome,
    call_id: str,
    *,
    files: Sequence[Block] = (),
    artifact: Any = None,  # noqa: ANN401
    id: str | None = None,  # noqa: A002  # as LangChain calls it
) -> ToolMessage:
    """Return the message with the result of a tool call, for the log.

    `files` are its images and other files.
    """
    text = storable(text)
    return ToolMessage(
        make_content(text, files) if files else text,
        id=id or str(uuid4()),
        tool_call_id=call_id,
        status="error" if about.failure else "success",
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


def messages_since_end(log: Sequence[M]) -> Sequence[M]:
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

    def read(self, log: Sequence[T]) -> S:
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


_DEEPEST: Final = 100
"""Maximum depth of an artifact, in levels. Logs of about 200 levels can't be read."""


def parts_of_result(message: ToolMessage) -> tuple[str, list[Block]]:
    """Return a tool's result as text, and its images and other files with their bytes.

    A line of text replaces each part that is not accepted, such as an address. It is never opened.
    """
    content = message.content
    if isinstance(content, str):
        return content, []
    kept = keep_inline(content)
    return text_of(kept), files_of(kept)


def store_artifact(tool: str, artifact: object) -> tuple[Any, str | None]:
    """Return an artifact as a store returns it, or None and the reason why it can't be stored."""
    if artifact is None:
        return None, None
    # Imported here, since the serializer loads LangGraph.
    from ..store.serializer import plain_copy

    try:
        # In a list, so that all values take the same way as within a message.
        (plain,) = plain_copy([artifact])
        check_depth(plain, "it ", _DEEPEST)
    # The artifact may be an object of any type, whose methods may raise any error.
    except Exception as error:
        return None, (
            f"The artifact of {tool} was not stored: {excerpt(str(error))}; return plain data, "
            "such as a dict, a list, text or bytes"
        )
    return plain, None


def describe_artifact(message: BaseMessage, about: MessageMetadata) -> Iterator[str]:
    """Yield a remark about the artifact of a tool's result: its type and size, or its problem."""
    if isinstance(about, CallOutcome) and about.artifact_problem is not None:
        yield about.artifact_problem
    artifact = message.artifact if isinstance(message, ToolMessage) else None
    if artifact is not None:
        size = len(artifact if isinstance(artifact, bytes) else _pack(artifact))
        shown = f"{size:,} bytes" if size < 10_000 else f"{size >> 10:,} KiB"
        yield f"Artifact: {type(artifact).__name__}, {shown}"


def pack_artifact(artifact: object) -> str:
    """Return an artifact as text, from which `unpack_artifact` returns the same value."""
    return b64encode(_pack(artifact)).decode()


def unpack_artifact(packed: str) -> Any:  # noqa: ANN401
    """Return the artifact that `pack_artifact` has packed.

    Raises:
        ValueError: The text is not a packed artifact.
    """
    from ..store.serializer import PlainSerializer

    (artifact,) = PlainSerializer().loads_typed(("msgpack", b64decode(packed, validate=True)))
    return artifact


def _pack(artifact: object) -> bytes:
    from ..store.serializer import PlainSerializer

    return PlainSerializer().dumps_typed([artifact])[1]


_PACKED = "packed_artifact"


def dump_log(log: Iterable[BaseMessage]) -> tuple[dict[str, JsonValue], ...]:
    """Return the messages of a log as plain values, from which `load_log` returns them."""
    return tuple([_dump_message(message) for message in log])


def _dump_message(message: BaseMessage) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"type": message.type}
    if isinstance(message, ToolMessage) and message.artifact is not None:
        # An artifact may contain bytes or other values that are not JSON.
        found[_PACKED] = pack_artifact(message.artifact)
        message = message.model_copy(update={"artifact": None})
    data = message.model_dump(exclude_defaults=True) | {"content": message.content}
    return found | {"data": to_jsonable_python(data, fallback=str)}


def load_log(dumped: Iterable[dict[str, Any]]) -> list[AnyMessage]:
    """Return the messages that `dump_log` has dumped.

    Raises:
        ValueError: They are not messages of a log.
    """
    return [_load_message(one) for one in dumped]


def _load_message(dumped: dict[str, Any]) -> AnyMessage:
    data = dumped.get("data")
    if not isinstance(data, dict):
        raise ValueError("an inner session contains a message without data")
    given: dict[str, Any] = {"type": dumped.get("type"), "data": data}
    message: Any = messages_from_dict([given])[0]
    metadata(message)
    if isinstance(message, ToolMessage) and _PACKED in dumped:
        message.artifact = unpack_artifact(str(dumped[_PACKED]))
    found: AnyMessage = message
    return found


class InnerLog(NamedTuple):
    """An inner session, read from a message of the outer log."""

    conversation: Conversation
    """Its conversation."""
    log: list[AnyMessage]
    """Its whole log."""


def read_inner_log(about: InnerSession) -> InnerLog:
    """Return the inner session that a message of a log contains.

    Raises:
        ValueError: Its values are not valid.
    """
    return InnerLog(restore_conversation({**about.conversation}), load_log(about.log))


def check_inner_session(about: InnerSession, where: str) -> None:
    """Raise a ValueError, which names the field, if an inner session can't be read."""
    try:
        conversation, log = read_inner_log(about)
    except Exception as error:
        raise ValueError(f"{where}: is not an inner session: {excerpt(str(error))}") from error
    for message in log:
        within = metadata(message)
        # The speaker of a remembered message may be of another conversation.
        is_ours = not isinstance(within, RememberedMessage) and within.speaker is not None
        if is_ours and within.speaker not in conversation.names:
            raise ValueError(f"{where}.log: no speaker is called {within.speaker!r}")
        if isinstance(within, InnerSession):
            check_inner_session(within, f"{where}.log")


def count_spoken(log: Sequence[BaseMessage]) -> int:
    """Return the number of messages with text that the speakers of a log have said."""
    return sum(says_something(message, metadata(message)) for message in log)


def inner_session_id(session: str, message: BaseMessage) -> str:
    """Return the id of the inner session that a message of a session contains."""
    return f"{session}.{place_of(message)}"
