"""The reducer of the log: how what is written to it changes it. Pure functions."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from pydantic import TypeAdapter, ValidationError

from .kinds import Kind
from .messages import KEY, NOBODY
from .stage import Stage


def append(log: Sequence[Any], writes: Sequence[Any]) -> list[AnyMessage]:
    """Reduce writes to the log: append, replace the message of the same id, or remove.

    A removed message stays in its place, marked, since ids are places and an answer must not be
    taken for another one's. An id that is not in the log removes nothing: an error here would make
    a thread that holds such a write unreadable.

    Applying two batches one after the other gives the same log as applying them at once, which
    LangGraph's delta channel needs.
    """
    new: list[Any] = [one if isinstance(one, BaseMessage) else _message(one) for one in log]
    places = {message.id: place for place, message in enumerate(new) if message.id is not None}
    for write in writes:
        for given in write if isinstance(write, list) else [write]:
            message = _message(given)
            if isinstance(message, RemoveMessage):
                _remove(new, str(message.id), places)
            elif message.id is not None and message.id in places:
                new[places[message.id]] = message
            else:
                if message.id is not None:
                    places[message.id] = len(new)
                new.append(message)
    return new


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
        except ValidationError:
            pass
    return convert_to_messages([given])[0]


def _remove(log: list[AnyMessage], wanted: str, places: dict[str, int]) -> None:
    """Mark the message of this id, and what was made of it, as removed."""
    if wanted == REMOVE_ALL_MESSAGES:
        log[:] = map(_marked, log)
    elif wanted in places:
        place = places[wanted]
        message = log[place]
        for other in [place, *_made_of(message, log)]:
            log[other] = _marked(log[other])


def _marked(message: AnyMessage) -> AnyMessage:
    was = _beside(message)
    if was.get("kind") == Kind.REMOVED:
        return message
    about: dict[str, Any] = {"kind": Kind.REMOVED.value, "audience": list(NOBODY)}
    if was:
        about["was"] = was
    extra = {**message.additional_kwargs, KEY: about}
    return message.model_copy(update={"additional_kwargs": extra})


def _made_of(message: AnyMessage, log: Sequence[AnyMessage]) -> Iterator[int]:
    """The places of what says the same once more, or is heard only together with a message."""
    calls: set[str | None] = set()
    if isinstance(message, AIMessage):
        calls = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    said = _beside(message)
    is_opening = said.get("stage") == Stage.OPENING
    for place, other in enumerate(log):
        about = _beside(other)
        is_result = isinstance(other, ToolMessage) and other.tool_call_id in calls
        # A hook's version of it. Other messages that this version replaced are heard in their
        # own words again.
        is_remade = about.get("kind") == Kind.HEARD and message.id in about.get("instead_of", ())
        is_handed_on = (
            is_opening
            and about.get("kind") == Kind.SHIFT
            and about.get("speaker") == said.get("speaker")
            and other.text == message.text
        )
        if is_result or is_remade or is_handed_on:
            yield place


def _beside(message: BaseMessage) -> dict[str, Any]:
    """What stands beside a message, as plain values: what is damaged must not raise here."""
    found = message.additional_kwargs.get(KEY)
    return found if isinstance(found, dict) else {}
