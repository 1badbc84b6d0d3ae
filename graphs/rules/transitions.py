"""Transitions of a conversation: the next node, the end, and the position after each step.

`decide` returns the next step by the table in `graphs.rules.position`. Two callers use it: the node
that has just acted, and the edge after it. Both pass the same position, so they agree.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import BaseMessage

from ..common.data import Data
from ..conversation.conversation import Conversation
from ..conversation.judges import Concurrent, SeparateJudge
from ..ends.end import Strength
from ..ends.end_chat import Reason
from ..log.messages import metadata
from ..log.metadata import MessageMetadata, Reflection, RemovedMessage, Stage, original_metadata
from .met_ends import ENDS, MetEnd, is_answer_due, is_promised, met_ends, reasons_of
from .position import MOVES, TURN_ENDS, Actor, Leaving, Phase, Position
from .turns import Dialogue, NextTurn, last_words


class Node(StrEnum):
    """The five nodes of the graph, and its end."""

    TASK_SPECIFICATION = "task_specification"
    USER_AGENT = "user_agent"
    ASSISTANT_AGENT = "assistant_agent"
    TOOL_EXECUTOR = "tool_executor"
    COMPLETION_JUDGE = "completion_judge"
    END = "__end__"


class Decision(Data):
    """The next step: a node with its speaker, or the end."""

    node: Node
    """The next node."""
    speaker: str
    """The name of the speaker whose turn it is. At the end, the last speaker, or the first speaker
    of the order if no one has spoken."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the turn belongs to."""
    due: Phase | None = None
    """The task of the completion judge: to evaluate predicates, to judge, or to choose the next
    speaker. None for other nodes."""
    reasons: tuple[Reason, ...] = ()
    """All reasons for the end, the strongest first. Empty before the end."""


def decide(dialogue: Dialogue) -> Decision:
    """Return the next node and its speaker, or the end with its reasons."""
    met = met_ends(dialogue)
    conversation, position = dialogue.conversation, dialogue.position
    turn = NextTurn(position.speaker or conversation.order[0], position.stage)
    if _is_over(dialogue, met):
        if _is_judged_once_more(dialogue, met):
            return _make_decision(Node.COMPLETION_JUDGE, turn, due=Phase.JUDGED)
        # The cap comes first if the final verdict was requested only because of that cap.
        met.sort(key=lambda one: position.capped and one.strength is not Strength.CAP)
        return _make_decision(Node.END, turn, reasons=reasons_of(met))
    match MOVES[position.phase].actor:
        case Actor.SPEAKER:
            return _make_decision(_agent(conversation, turn), turn)
        case Actor.TOOLS:
            return _make_decision(Node.TOOL_EXECUTOR, turn)
        case Actor.JUDGE:
            task = Phase.CHOSEN if position.phase is Phase.UNCHOSEN else Phase.JUDGED
            return _make_decision(Node.COMPLETION_JUDGE, turn, due=task)
        case _:
            comes = dialogue.due()
            if comes is not None:
                return _make_decision(Node.COMPLETION_JUDGE, turn, due=comes)
            turn = dialogue.next_turn()
            return _make_decision(_agent(conversation, turn), turn)


def _make_decision(node: Node, turn: NextTurn, **more: Any) -> Decision:
    return Decision(node=node, speaker=turn.speaker, stage=turn.stage, **more)


def _agent(conversation: Conversation, turn: NextTurn) -> Node:
    first = turn.speaker == conversation.names[0]
    return Node.USER_AGENT if first else Node.ASSISTANT_AGENT


_STOP_CALLS: Final = {reason for reason, end in ENDS.items() if end.stops_calls}


def _is_over(dialogue: Dialogue, met: list[MetEnd]) -> bool:
    """Return whether the met end conditions, sorted by strength, end the conversation here."""
    if not met:
        return False
    phase = dialogue.position.phase
    if phase in TURN_ENDS:
        return _is_over_between_turns(dialogue, met)
    before_calls = phase is Phase.CALLED and not is_promised(dialogue)
    if before_calls and any(one.reasons & _STOP_CALLS for one in met):
        return True
    weakest = MOVES[phase].ends
    if weakest is Strength.SAID and isinstance(dialogue.conversation.turn_order, Concurrent):
        # The other speakers of the round are heard before an ending tool takes effect.
        weakest = Strength.HARD
    return weakest is not None and met[0].strength <= weakest


def _is_over_between_turns(dialogue: Dialogue, met: list[MetEnd]) -> bool:
    if dialogue.is_in_round():
        return False
    comes = dialogue.due()
    if comes is Phase.CHECKED:
        # The predicates may add a reason.
        return False
    if met[0].strength is Strength.HARD:
        return True
    if dialogue.code_waits():
        # Code in a message that ends the conversation runs first.
        met = [one for one in met if one.strength > Strength.SAID]
    if met and met[0].strength is Strength.SAID:
        return True
    # Promised messages are spoken whatever other end is met, and a verdict may change the reason.
    is_owed = bool(dialogue.position.owed) or is_answer_due(dialogue)
    return bool(met) and not is_owed and comes is not Phase.JUDGED


_FINAL_VERDICT_AT: Final = {reason for reason, end in ENDS.items() if end.allows_final_verdict}


def _is_judged_once_more(dialogue: Dialogue, met: list[MetEnd]) -> bool:
    """Return whether a separate judge is asked for a final verdict because a cap was reached."""
    judge = dialogue.conversation.judge
    at_cap = met[0].strength is Strength.CAP and not _FINAL_VERDICT_AT.isdisjoint(reasons_of(met))
    unjudged = Phase.JUDGED in MOVES[dialogue.position.phase].then
    return isinstance(judge, SeparateJudge) and judge.final_verdict and at_cap and unjudged


def record_turn(dialogue: Dialogue, turn: Decision | NextTurn) -> Position:
    """Return the position after a turn of any speaker, in any part of the conversation."""
    position, stage = dialogue.position, turn.stage
    after = position.model_copy(
        update={
            "phase": Phase.SPOKEN,
            "stage": stage,
            "speaker": turn.speaker,
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
    waited = not dialogue.may_end and Dialogue(dialogue.conversation, after).may_end
    if not (waited and position.completed):
        return after
    # A task was complete before the minimum of rounds was. Last words are due now.
    return after.model_copy(update={"owed": last_words(dialogue.conversation, turn.speaker)})


def record_pause(
    position: Position, turn: Decision, phase: Phase, *, succeeded: bool = False
) -> Position:
    """Return the position after a phase within a turn; `succeeded` counts a tool round."""
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


def record_leaving(position: Position, turn: Decision, leaving: Leaving) -> Position:
    """Return the position after a person has ended the conversation instead of speaking."""
    return record_pause(position, turn, Phase.LEFT).model_copy(update={"left": leaving})


def record_reopening(position: Position) -> Position:
    """Return the position of an ended conversation that continues: its caps count from 0 again."""
    anew = {"turns": 0, "completed": (), "owed": (), "chosen": None, "left": None}
    return position.model_copy(update=anew)


def record_phase(position: Position, phase: Phase) -> Position:
    """Return the position after a step of the judge that changes only the phase."""
    return position.model_copy(update={"phase": phase})


def record_unread_verdict(dialogue: Dialogue) -> Position:
    """Return the position after an unreadable verdict, when another one is requested."""
    capped = not dialogue.is_judged()
    return dialogue.position.model_copy(update={"phase": Phase.UNREAD, "capped": capped})


def record_verdict(dialogue: Dialogue, *, complete: bool) -> Position:
    """Return the position after a verdict about a task."""
    conversation, position = dialogue.conversation, dialogue.position
    if not complete or position.speaker is None:
        capped = not dialogue.is_judged()
        return position.model_copy(update={"phase": Phase.JUDGED, "capped": capped})
    separate = isinstance(conversation.judge, SeparateJudge)
    done = conversation.stoppers if separate else (position.speaker,)
    return position.model_copy(
        update={
            "phase": Phase.JUDGED,
            "completed": tuple(dict.fromkeys((*position.completed, *done))),
            "owed": last_words(conversation, position.speaker) if dialogue.may_end else (),
        }
    )


def record_choice(dialogue: Dialogue, name: str | None) -> Position:
    """Return the position after the choice of the next speaker."""
    chosen = name or dialogue.next_in_order()
    return dialogue.position.model_copy(update={"phase": Phase.CHOSEN, "chosen": chosen})


def position_after_removals(position: Position, log: Sequence[BaseMessage]) -> Position:
    """Return the position, or an earlier one if the next node would read a removed message."""
    read = log[first_read(position.phase, log) :]
    removed = (one for one in read if isinstance(metadata(one), RemovedMessage))
    if not any(one is read[0] or _read_original(one).is_consequence for one in removed):
        return position
    is_judged = position.phase in (Phase.ASKED, Phase.UNREAD)
    again = Phase.SPOKEN if is_judged else Phase.PASSED
    # A removed draft no longer counts as rejected or cut off.
    asked_again = position.asked_again and position.phase is not Phase.REJECTED
    cut_off = position.cut_off and position.phase is not Phase.CUT_OFF
    update = {"phase": again, "asked_again": asked_again, "cut_off": cut_off}
    return position.model_copy(update=update)


def forget_verdicts(dialogue: Dialogue, behind: Sequence[BaseMessage]) -> Position:
    """Return the position right after the newest turn, without later verdicts and choices."""
    position = dialogue.position
    update: dict[str, object] = {"phase": Phase.SPOKEN, "chosen": None}
    judged = (about for about in map(metadata, behind) if isinstance(about, Reflection))
    verdicts = (about.verdict for about in judged)
    if any(verdict is not None and verdict.complete for verdict in verdicts):
        is_separate = isinstance(dialogue.conversation.judge, SeparateJudge)
        others = (name for name in position.completed if name != position.speaker)
        update |= {"completed": () if is_separate else tuple(others), "owed": ()}
    return position.model_copy(update=update)


def first_read(phase: Phase, log: Sequence[BaseMessage]) -> int:
    """Return the index of the first message that the next node reads, or the length of the log."""
    kinds = MOVES[phase].reads.first
    places = reversed(range(len(log))) if kinds else ()
    found = (place for place in places if isinstance(_read_original(log[place]), kinds))
    return next(found, len(log))


def _read_original(message: BaseMessage) -> MessageMetadata:
    return original_metadata(metadata(message))
