"""The log of an inner session as plain values, which a message of the outer log contains."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage, BaseMessage, ToolMessage, messages_from_dict
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ..common.sanitize import excerpt
from ..conversation.conversation import Conversation, restore_conversation
from .artifacts import pack_artifact, unpack_artifact
from .messages import metadata, place_of, says_something
from .metadata import InnerSession, RememberedMessage

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
