"""Data in the log that only programs and people read: artifacts of tools, logs of inner sessions.

An artifact is the second part of a result in LangChain's format ``content_and_artifact``. No model
and no speaker receives either.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AnyMessage, BaseMessage, ToolMessage, messages_from_dict
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ..common.content import Block, files_of, text_of
from ..common.content_input import keep_inline
from ..common.errors import check_depth
from ..common.sanitize import excerpt
from ..conversation.conversation import Conversation, restore_conversation
from ..store.serializer import PlainSerializer, plain_copy
from .messages import metadata, place_of, says_something
from .metadata import CallOutcome, InnerSession, MessageMetadata, RememberedMessage

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
    (artifact,) = PlainSerializer().loads_typed(("msgpack", b64decode(packed, validate=True)))
    return artifact


def _pack(artifact: object) -> bytes:
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
