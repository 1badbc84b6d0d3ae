"""Where a conversation is, by what still stands in its log. Pure functions.

Messages may be removed in mid-turn. Then the step that needs them is repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from langchain_core.messages import BaseMessage

from ..log.messages import KEY, Kind, line_kind
from .position import Event, Position

_CALLS: Final = (Kind.TOOL_CALLS, Kind.CODE)

_RESTS_ON: Final[Mapping[Event, tuple[Kind, ...]]] = {
    Event.REJECTED: (Kind.DRAFT,),
    Event.ANSWERED: (Kind.ANSWER,),
    Event.CALLED: _CALLS,
    Event.RAN: _CALLS,
    Event.GIVEN: _CALLS,
    Event.ASKED: (Kind.QUESTION,),
}
"""What the next node reads after an event: the newest message of these kinds, and behind it what
came of it."""

_CAME_OF_IT: Final = (Kind.ANSWER, Kind.TOOL_RESULT, Kind.REFLECTION)


def standing(position: Position, log: Sequence[BaseMessage]) -> Position:
    """Give where a conversation is, as far as that does not rest on removed messages."""
    if _stands(position.event, log):
        return position
    again = Event.SPOKEN if position.event is Event.ASKED else Event.PASSED
    # A removed draft does not count as a reply that was rejected.
    asked_again = position.asked_again and position.event is not Event.REJECTED
    return position.model_copy(update={"event": again, "asked_again": asked_again})


def _stands(event: Event, log: Sequence[BaseMessage]) -> bool:
    """Whether what the next node reads was not removed."""
    kinds = _RESTS_ON.get(event, ())
    for message in reversed(log) if kinds else ():
        is_removed = line_kind(message) == Kind.REMOVED
        kind = _first_kind(message)
        if kind in kinds:
            return not is_removed
        if is_removed and kind in _CAME_OF_IT:
            return False
    return True


def _first_kind(message: BaseMessage) -> str | None:
    """What kind of line a message was when it was written."""
    about = message.additional_kwargs.get(KEY, {})
    found: str | None = about.get("was", about).get("kind")
    return found
