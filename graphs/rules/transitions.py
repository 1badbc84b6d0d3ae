"""The position after each phase; nodes write it."""

from ..log.stage import Stage
from ..spec.conversation import Conversation
from ..spec.judges import SeparateJudge
from .end_chat import Decision
from .position import Leaving, Phase, Position
from .turns import in_turn, is_judged, last_words


def spoke(conversation: Conversation, position: Position, turn: Decision) -> Position:
    """Give the position after the speaker whose turn it is has finished it."""
    return after_turn(conversation, position, turn.speaker, turn.stage)


def after_turn(
    conversation: Conversation, position: Position, speaker: str, stage: Stage
) -> Position:
    """Give the position after a turn of any speaker, in any part."""
    after = position.model_copy(
        update={
            "phase": Phase.SPOKEN,
            "stage": stage,
            "speaker": speaker,
            "turns": position.turns + (stage is Stage.ROUNDS),
            "prepared": position.prepared + (stage is Stage.PRIVATE),
            "opened": position.opened + (stage is Stage.OPENING),
            "owed": position.owed[1:] if stage is Stage.LAST_WORDS else position.owed,
            "chosen": None,
            "tool_rounds": 0,
            "asked_again": False,
            "cut_off": False,
            "capped": False,
        }
    )
    waited = after.may_end(conversation) and not position.may_end(conversation)
    if not (waited and position.completed):
        return after
    # A task was complete before enough rounds were: now last words are due.
    return after.model_copy(update={"owed": last_words(conversation, speaker)})


def paused(
    position: Position, turn: Decision, phase: Phase, *, succeeded: bool = False
) -> Position:
    """Give the position after a phase within a turn; `succeeded` counts a round of tools."""
    return position.model_copy(
        update={
            "phase": phase,
            "stage": turn.stage,
            "speaker": turn.speaker,
            "tool_rounds": position.tool_rounds + succeeded,
            "asked_again": position.asked_again or phase is Phase.REJECTED,
            "cut_off": position.cut_off or phase is Phase.CUT_OFF,
        }
    )


def left(position: Position, turn: Decision, leaving: Leaving) -> Position:
    """Give the position after a person ended it instead of speaking."""
    return paused(position, turn, Phase.LEFT).model_copy(update={"left": leaving})


def reopened(position: Position) -> Position:
    """Give the position of a conversation that goes on after its end: its caps count anew."""
    anew = {"turns": 0, "completed": (), "owed": (), "chosen": None, "left": None}
    return position.model_copy(update=anew)


def checked(position: Position) -> Position:
    """Give the position after the predicates were asked whether they hold."""
    return position.model_copy(update={"phase": Phase.CHECKED})


def asked(position: Position) -> Position:
    """Give the position after the first of the judge's two questions."""
    return position.model_copy(update={"phase": Phase.ASKED})


def unread(conversation: Conversation, position: Position) -> Position:
    """Give the position after a verdict that can't be read, where it is asked for once more."""
    capped = not is_judged(conversation, position)
    return position.model_copy(update={"phase": Phase.UNREAD, "capped": capped})


def judged(conversation: Conversation, position: Position, *, complete: bool) -> Position:
    """Give the position after it was judged whether a task is complete."""
    capped = not is_judged(conversation, position)
    if not complete or position.speaker is None:
        return position.model_copy(update={"phase": Phase.JUDGED, "capped": capped})
    separate = isinstance(conversation.judge, SeparateJudge)
    done = conversation.stoppers if separate else (position.speaker,)
    return position.model_copy(
        update={
            "phase": Phase.JUDGED,
            "completed": tuple(dict.fromkeys((*position.completed, *done))),
            "owed": last_words(conversation, position.speaker)
            if position.may_end(conversation)
            else (),
        }
    )


def chose(conversation: Conversation, position: Position, name: str | None) -> Position:
    """Give the position after it was chosen who speaks next."""
    chosen = name or in_turn(conversation, position)
    return position.model_copy(update={"phase": Phase.CHOSEN, "chosen": chosen})
