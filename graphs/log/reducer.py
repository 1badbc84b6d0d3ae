"""The reducer of the log: how what is written to it changes it. Pure functions."""

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
"""Marks a removal of ours that leaves nothing."""


_REPLIES: Final = {
    kind_name(kind) for kind in get_args(AnyMetadata) if issubclass(kind, SpeakerReply)
}
"""The stored names of the kinds of replies."""


def append(log: Sequence[Any], writes: Sequence[Any]) -> list[AnyMessage]:
    """Reduce writes to messages: append, replace the message of the same id, or remove.

    A message in the place of another one keeps what stands beside that, unless it brings its own;
    where the words of a reply are others, it is marked as still to be read.

    A removed line of the log stays, marked, so that an answer is never taken for another one's;
    `graphs.log.state.hide_removed` then moves it out of `messages`. A message that was only
    kept is dropped. An id that is not known removes nothing: an error here would make a thread
    that holds such a write unreadable, which is why `read_messages` refuses bad ones before they
    are written.

    Applying two batches one after the other gives the same as applying them at once, which
    LangGraph's delta channel needs.
    """
    new: list[Any] = [one if isinstance(one, BaseMessage) else _message(one) for one in log]
    slots = _slots(new)
    for write in writes:
        parts = write if isinstance(write, list) else [write]
        # What no stream shows stands within one more list.
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
                    # Not at random: the log is made of its writes again whenever it is read.
                    made = uuid5(_IDS, f"{len(new)} {message.text}")
                    message = message.model_copy(update={"id": str(made)})
                slots[message.id] = len(new)
                new.append(message)
    return new


def _instead(known: AnyMessage, write: AnyMessage) -> AnyMessage:
    """Give what stands in the place of a message when one of the same id is written."""
    was, new = stored_metadata(known), stored_metadata(write)
    if was.get("kind") == REMOVED and not new:
        # As with `add_messages`, a message that is written after its removal stays.
        return _instead(_restore(known), write)
    if was.get("kind", INPUT) == INPUT and new:
        # Whoever gave it finds their own marks on what is said with it.
        extra = {**known.additional_kwargs, **write.additional_kwargs}
        return write.model_copy(update={"additional_kwargs": extra})
    if was and new.get("kind", INPUT) == INPUT and write.text == known.text:
        # Clients and parents give back messages that they were given, without our marks.
        return known
    return _edited(known, write)


_IDS: Final = UUID("8e7bb9c2-9c55-4d39-9f37-6d1ab0a4a1f5")


def _edited(old: AnyMessage, new: AnyMessage) -> AnyMessage:
    """A message in the place of an older one, as when a person edits it."""
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
    """Read a write to a channel of messages, in any form that LangGraph's `add_messages` takes.

    Each message gets an id. Messages that the same write removes again are dropped.

    Raises:
        SpecError: A part is not a message. The write must not be stored then, since the reducer
            would fail whenever the thread is read.
    """
    if given is None:
        raise SpecError(f"{field}: is None; give a list of messages, or leave the field out")
    # As in `add_messages`, a tuple alone is a pair of role and text.
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
            f"{field}: {excerpt(repr(part), 100)} is not a message; give a text, a pair of a role "
            "and a text, or a dict with 'role' and 'content'"
        ) from error
    if isinstance(message, BaseMessageChunk):
        message = message_chunk_to_message(message)
    extra = message.additional_kwargs
    if type(extra.get(PLACE, 0)) is not int:
        # Not our mark; the log is sorted by places.
        extra = {name: one for name, one in extra.items() if name != PLACE}
        message = message.model_copy(update={"additional_kwargs": extra})
    if not message.id:
        message = message.model_copy(update={"id": str(uuid4())})
    return cast("AnyMessage", message)


def take_back(message_id: str) -> AnyMessage:
    """Return the write that takes a message away, with nothing left of it: its place is free."""
    write = RemoveMessage(id=message_id, additional_kwargs={TAKEN_BACK: True})
    return cast("AnyMessage", write)  # LangChain knows it as none


@cache
def _dumped() -> TypeAdapter[AnyMessage]:
    return TypeAdapter(AnyMessage)


def _message(given: Any) -> Any:  # noqa: ANN401  # a message; LangChain knows RemoveMessage as none
    """Read a message in any form LangChain reads."""
    if isinstance(given, BaseMessage):
        return given
    if isinstance(given, dict) and "role" not in given:
        # As messages write themselves: LangChain's own reading drops broken calls of tools.
        try:
            return _dumped().validate_python(given)
        # A TypeError: LangChain's validators expect calls of tools in its own form.
        except (ValidationError, TypeError):
            pass
    return convert_to_messages([given])[0]


def _remove(messages: list[AnyMessage], wanted: str) -> None:
    """Mark a message and its consequences as removed; drop a message that is no line of the log."""
    from langgraph.graph.message import REMOVE_ALL_MESSAGES  # takes long to import

    is_all = wanted == REMOVE_ALL_MESSAGES
    if is_all or any(one.id == wanted for one in messages):
        left = [one for one in messages if not ((is_all or one.id == wanted) and _is_kept(one))]
        marked = [_marked(one) if is_all or one.id == wanted else one for one in left]
        messages[:] = without_removed(marked)


def _is_kept(message: AnyMessage) -> bool:
    return stored_metadata(message).get("kind") == INPUT


def _marked(message: AnyMessage) -> AnyMessage:
    was = stored_metadata(message)
    if was.get("kind") == REMOVED:
        return message
    about: dict[str, Any] = {"kind": REMOVED, "audience": list(NOBODY)}
    if was:
        about["was"] = was
    extra = {**message.additional_kwargs, KEY: about}
    return message.model_copy(update={"additional_kwargs": extra})


def _restore(message: AnyMessage) -> AnyMessage:
    """Return a removed message as it was before."""
    extra = {name: one for name, one in message.additional_kwargs.items() if name != KEY}
    if was := stored_metadata(message).get("was"):
        extra[KEY] = was
    return message.model_copy(update={"additional_kwargs": extra})


def without_removed(log: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Mark in a log what was made of removed messages as removed, too."""
    gone = {
        place
        for message in log
        if (about := stored_metadata(message)).get("kind") == REMOVED
        for place in _made_of(message, about.get("was") or {}, log)
    }
    return [_marked(message) if place in gone else message for place, message in enumerate(log)]


def _made_of(message: AnyMessage, said: dict[str, Any], log: Sequence[AnyMessage]) -> Iterator[int]:
    """The places of what says the same once more, or is heard only together with a message."""
    calls: set[str | None] = set()
    if isinstance(message, AIMessage):
        calls = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    is_opening = said.get("stage") == Stage.OPENING
    for place, other in enumerate(log):
        about = stored_metadata(other)
        is_result = isinstance(other, ToolMessage) and other.tool_call_id in calls
        # A hook's version of it. Other messages that this version replaced are heard in their
        # own words again.
        is_remade = place_of(message) in (about.get("instead_of") or ())
        is_handed_on = (
            is_opening
            and about.get("kind") == kind_name(OpeningAnswer)
            and about.get("speaker") == said.get("speaker")
            and other.text == message.text
        )
        if is_result or is_remade or is_handed_on:
            yield place
