"""Where a conversation is after messages were removed or edited: what needs them is repeated."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from ..log.messages import metadata
from ..log.metadata import Instruction, MessageMetadata, Reflection, RemovedMessage
from ..spec.conversation import Conversation
from ..spec.judges import SeparateJudge
from .moves import MOVES
from .position import Phase, Position


def standing(position: Position, log: Sequence[BaseMessage]) -> Position:
    """Give the position, or an earlier one where the next node would read a removed message."""
    if _stands(position.phase, log):
        return position
    is_judged = position.phase in (Phase.ASKED, Phase.UNREAD)
    again = Phase.SPOKEN if is_judged else Phase.PASSED
    # A removed draft does not count as a reply that was rejected, or cut off.
    asked_again = position.asked_again and position.phase is not Phase.REJECTED
    cut_off = position.cut_off and position.phase is not Phase.CUT_OFF
    update = {"phase": again, "asked_again": asked_again, "cut_off": cut_off}
    return position.model_copy(update=update)


def unjudged(
    conversation: Conversation, position: Position, behind: Sequence[BaseMessage]
) -> Position:
    """Give the position right after the newest turn, by what stands behind it in the log."""
    update: dict[str, object] = {"phase": Phase.SPOKEN, "chosen": None}
    judged = (about for about in map(metadata, behind) if isinstance(about, Reflection))
    verdicts = (about.verdict for about in judged)
    if any(verdict is not None and verdict.complete for verdict in verdicts):
        is_separate = isinstance(conversation.judge, SeparateJudge)
        others = (name for name in position.completed if name != position.speaker)
        update |= {"completed": () if is_separate else tuple(others), "owed": ()}
    return position.model_copy(update=update)


def first_read(phase: Phase, log: Sequence[BaseMessage]) -> int:
    """Give the place of the first line that the next node reads; the log's end where it is none."""
    kinds = MOVES[phase].reads.first
    places = reversed(range(len(log))) if kinds else ()
    return next(
        (place for place in places if isinstance(_first_metadata(log[place]), kinds)), len(log)
    )


def _stands(phase: Phase, log: Sequence[BaseMessage]) -> bool:
    """Whether all that the next node reads is still there: a line, and what came of it."""
    read = log[first_read(phase, log) :]
    removed = (one for one in read if isinstance(metadata(one), RemovedMessage))
    return not any(one is read[0] or _first_metadata(one).is_consequence for one in removed)


def _first_metadata(message: BaseMessage) -> MessageMetadata:
    """Return the metadata with which a message was written."""
    about = metadata(message)
    return (about.was or Instruction()) if isinstance(about, RemovedMessage) else about
