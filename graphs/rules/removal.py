"""Where a conversation is after messages were removed: steps that need them are repeated."""

from collections.abc import Mapping, Sequence
from typing import Final

from langchain_core.messages import BaseMessage

from ..log.kinds import Kind
from ..log.messages import KEY, line
from .position import Phase, Position

_CALLS: Final = tuple(kind for kind in Kind if kind.row.has_calls)

_RESTS_ON: Final[Mapping[Phase, tuple[Kind, ...]]] = {
    Phase.REJECTED: (Kind.DRAFT,),
    Phase.ANSWERED: (Kind.ANSWER,),
    Phase.CALLED: _CALLS,
    Phase.RAN: _CALLS,
    Phase.GIVEN: _CALLS,
    Phase.ASKED: (Kind.QUESTION,),
}
"""Which message the next node reads after a phase, by its kind, with the lines after it."""


def standing(position: Position, log: Sequence[BaseMessage]) -> Position:
    """Give the position, or an earlier one where the next node would read a removed message."""
    if _stands(position.phase, log):
        return position
    again = Phase.SPOKEN if position.phase is Phase.ASKED else Phase.PASSED
    # A removed draft does not count as a reply that was rejected.
    asked_again = position.asked_again and position.phase is not Phase.REJECTED
    return position.model_copy(update={"phase": again, "asked_again": asked_again})


def _stands(phase: Phase, log: Sequence[BaseMessage]) -> bool:
    """Whether all that the next node reads is still there."""
    kinds = _RESTS_ON.get(phase, ())
    for message in reversed(log) if kinds else ():
        is_removed = line(message).kind is Kind.REMOVED
        kind = _first_kind(message)
        if kind in kinds:
            return not is_removed
        if is_removed and kind is not None and kind.row.is_result:
            return False
    return True


def _first_kind(message: BaseMessage) -> Kind | None:
    """What kind of line a message was when it was written."""
    about = message.additional_kwargs.get(KEY, {})
    found = about.get("was", about).get("kind")
    return None if found is None else Kind(found)
