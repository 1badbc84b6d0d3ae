"""The reducer of the log: the changes that a write makes to it. Pure functions."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, cast, get_args
from uuid import UUID, uuid4, uuid5

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from pydantic import TypeAdapter, ValidationError

from ..common.errors import SpecError
from ..common.sanitize import excerpt
from .messages import KEY, PLACE, place_of, stored_metadata
from .metadata import (
    INPUT,
    NOBODY,
    REMOVED,
    AnyMetadata,
    OpeningAnswer,
    SpeakerReply,
    Stage,
    kind_name,
)

TAKEN_BACK = "duologue_taken_back"
"""Marks a removal by duologue that leaves no trace of the message."""


_REPLIES: Final = {
    kind_name(kind) for kind in get_args(AnyMetadata) if issubclass(kind, SpeakerReply)
}
"""The stored names of the kinds of replies."""


def append(log: Sequence[Any], writes: Sequence[Any]) -> list[AnyMessage]:
    """Apply writes to messages: append one, replace the one with the same id, or remove one.

    A message that replaces another one inherits its metadata, unless it has metadata itself. If it
    changes the text of a reply, the reply is marked to be parsed again.

    A removed message of the log stays, with a mark, so that an answer is never assigned to the
    wrong request. `graphs.log.state.hide_removed` then moves it out of `messages`. A message that
    is not part of the log, such as a run's input, is dropped. An unknown id removes nothing. An
    error here would make a thread with such a write unreadable, so `read_messages` refuses invalid
    messages before they are written.

    Two batches applied one after the other have the same result as both applied at once, as
    LangGraph's delta channel requires.
    """
    new: list[Any] = [one if isinstance(one, BaseMessage) else _message(one) for one in log]
    slots = _slots(new)
    for write in writes:
        parts = write if isinstance(write, list) else [write]
        # Messages that no stream shows are nested in one more list.
        flat = [one for part in parts for one in (part if isinstance(part, list) else [part])]
        for given in flat:
            message = _message(given)
            if isinstance(message, RemoveMessage) and TAKEN_BACK in message.additional_kwargs:
                new = [one for one in new if one.id != message.id]
                slots = _slots(new)
            elif isinstance(message, RemoveMessage):
                _remove(new, str(message.id))
                slots = _slots(new)
            elif message.id is not None and message.id in slots:
                slot = slots[message.id]
                new[slot] = _instead(new[slot], message)
            else:
                if message.id is None:
                    # Not random: the log is computed again from its writes whenever it is read.
                    made = uuid5(_IDS, f"{len(new)} {message.text}")
                    message = message.model_copy(update={"id": str(made)})
                slots[message.id] = len(new)
                new.append(message)
    return new


def _instead(known: AnyMessage, write: AnyMessage) -> AnyMessage:
    """Return the message that replaces a known one when a message with the same id is written."""
    was, new = stored_metadata(known), stored_metadata(write)
    if was.get("kind") == REMOVED and not new:
        # As with `add_messages`, a message that is written again after its removal stays.
        return _instead(_restore(known), write)
    if was.get("kind", INPUT) == INPUT and new:
        # Keep the caller's marks: whoever sent the input finds them on the message made from it.
        extra = {**known.additional_kwargs, **write.additional_kwargs}
        return write.model_copy(update={"additional_kwargs": extra})
    if was and new.get("kind", INPUT) == INPUT and write.text == known.text:
        # Clients and parent graphs send back messages that they received, without duologue's
        # metadata.
        return known
    return _edited(known, write)


_IDS: Final = UUID("8e7bb9c2-9c55-4d39-9f37-6d1ab0a4a1f5")


def _edited(old: AnyMessage, new: AnyMessage) -> AnyMessage:
    """Return the message that replaces an older one, as when a person edits it."""
    about = stored_metadata(new) or stored_metadata(old)
    if not about:
        return new
    if about.get("kind") in _REPLIES and new.text != old.text:
        about = {**about, "edited": True}
    kept = {PLACE: old.additional_kwargs[PLACE]} if PLACE in old.additional_kwargs else {}
    extra = {**kept, **new.additional_kwargs, KEY: about}
    return new.model_copy(update={"additional_kwargs": extra, "name": new.name or old.name})


def _slots(messages: Sequence[AnyMessage]) -> dict[str, int]:
    return {message.id: slot for slot, message in enumerate(messages) if message.id is not None}


def read_messages(given: object, field: str = "messages") -> list[AnyMessage]:
    """Read a write to a channel of messages, in any form that LangGraph's `add_messages` accepts.

    Each message gets an id. Messages that the same write removes again are dropped.

    Raises:
        SpecError: A part is not a message. Such a write must not be stored, since the reducer would
            then fail whenever the thread is read.
    """
    if given is None:
        raise SpecError(f"{field}: is None; pass a list of messages, or leave the field out")
    # As in `add_messages`, a tuple is a pair of role and text.
    parts = given if isinstance(given, list) else [given]
    found: list[AnyMessage] = []
    for place, part in enumerate(parts):
        message = _read_message(part, f"{field}.{place}" if parts is given else field)
        if isinstance(message, RemoveMessage):
            from langgraph.graph.message import REMOVE_ALL_MESSAGES  # takes long to import

            is_all = message.id == REMOVE_ALL_MESSAGES
            found = [] if is_all else [one for one in found if one.id != message.id]
        found.append(message)
    return found


def _read_message(part: object, field: str) -> AnyMessage:
    try:
        message = _message(part)
    # LangChain raises errors of many types here.
    except Exception as error:
        raise SpecError(
            f"{field}: {excerpt(repr(part), 100)} is not a message; pass a text, a pair of a role "
            "and a text, or a dict with 'role' and 'content'"
        ) from error
    if isinstance(message, BaseMessageChunk):
        message = message_chunk_to_message(message)
    extra = message.additional_kwargs
    if type(extra.get(PLACE, 0)) is not int:
        # A place must be an integer, because the log is sorted by places. This value was not
        # written by duologue.
        extra = {name: one for name, one in extra.items() if name != PLACE}
        message = message.model_copy(update={"additional_kwargs": extra})
    if not message.id:
        message = message.model_copy(update={"id": str(uuid4())})
    return cast("AnyMessage", message)


def take_back(message_id: str) -> AnyMessage:
    """Return the write that removes a message without a trace, so that its place is free."""
    write = RemoveMessage(id=message_id, additional_kwargs={TAKEN_BACK: True})
    return cast("AnyMessage", write)  # LangChain's AnyMessage does not include RemoveMessage


@cache
def _dumped() -> TypeAdapter[AnyMessage]:
    return TypeAdapter(AnyMessage)


def _message(given: Any) -> Any:  # noqa: ANN401  # a message; LangChain knows RemoveMessage as none
    """Read a message in any form that LangChain accepts."""
    if isinstance(given, BaseMessage):
        return given
    if isinstance(given, dict) and "role" not in given:
        # The form of a dumped message. LangChain's own parser would drop invalid tool calls.
        try:
            return _dumped().validate_python(given)
        # TypeError: LangChain's validators expect tool calls in LangChain's form.
        except (ValidationError, TypeError):
            pass
    return convert_to_messages([given])[0]


def _remove(messages: list[AnyMessage], wanted: str) -> None:
    """Mark a message and its consequences as removed; drop it if it is not part of the log."""
    from langgraph.graph.message import REMOVE_ALL_MESSAGES  # takes long to import

    is_all = wanted == REMOVE_ALL_MESSAGES
    if is_all or any(one.id == wanted for one in messages):
        left = [
            one
            for one in messages
            if not (is_all or one.id == wanted) or stored_metadata(one).get("kind") != INPUT
        ]
        marked = [mark_removed(one) if is_all or one.id == wanted else one for one in left]
        messages[:] = without_removed(marked)


def mark_removed(message: AnyMessage) -> AnyMessage:
    """Return a message as a removed one. Its metadata before the removal is kept."""
    was = stored_metadata(message)
    if was.get("kind") == REMOVED:
        return message
    about: dict[str, Any] = {"kind": REMOVED, "audience": list(NOBODY)}
    if was:
        about["was"] = was
    extra = {**message.additional_kwargs, KEY: about}
    return message.model_copy(update={"additional_kwargs": extra})


def _restore(message: AnyMessage) -> AnyMessage:
    """Return a removed message as it was before the removal."""
    extra = {name: one for name, one in message.additional_kwargs.items() if name != KEY}
    if was := stored_metadata(message).get("was"):
        extra[KEY] = was
    return message.model_copy(update={"additional_kwargs": extra})


def without_removed(log: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return a log in which the consequences of removed messages are marked as removed, too."""
    gone = {
        place
        for message in log
        if (about := stored_metadata(message)).get("kind") == REMOVED
        for place in _made_of(message, about.get("was") or {}, log)
    }
    return [
        mark_removed(message) if place in gone else message for place, message in enumerate(log)
    ]


def _made_of(message: AnyMessage, said: dict[str, Any], log: Sequence[AnyMessage]) -> Iterator[int]:
    """Yield the places of messages that repeat a message or are heard only together with it."""
    calls: set[str | None] = set()
    if isinstance(message, AIMessage):
        calls = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    is_opening = said.get("stage") == Stage.OPENING
    for place, other in enumerate(log):
        about = stored_metadata(other)
        is_result = isinstance(other, ToolMessage) and other.tool_call_id in calls
        # A hook's version of the message. If the version replaced other messages, too, these are
        # heard again.
        is_remade = place_of(message) in (about.get("instead_of") or ())
        is_handed_on = (
            is_opening
            and about.get("kind") == kind_name(OpeningAnswer)
            and about.get("speaker") == said.get("speaker")
            and other.text == message.text
        )
        if is_result or is_remade or is_handed_on:
            yield place
