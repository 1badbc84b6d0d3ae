"""When a conversation ends and who speaks next.

`decide` says what comes next, by the table in `graphs.rules.moves`. It has two callers, the node
that has just acted and the edge after it; both give it the same position, so they agree. The
functions below it give the position after a phase.
"""

from enum import StrEnum
from typing import Final

from ..common.data import Data
from ..log.stage import Stage
from ..spec.conversation import Conversation
from ..spec.ends import EndChatMode, Reason
from ..spec.judges import SeparateJudge
from ..spec.limits import most_messages
from .ends.holding import ENDS, HeldEnd, holding, reasons_of
from .moves import MOVES, TURN_ENDS, Actor, Strength
from .position import Leaving, Phase, Position
from .turns import NextTurn, code_waits, due, in_turn, next_turn


class Node(StrEnum):
    """The five nodes of the graph, and its end."""

    TASK_SPECIFICATION = "task_specification"
    USER_AGENT = "user_agent"
    ASSISTANT_AGENT = "assistant_agent"
    TOOL_EXECUTOR = "tool_executor"
    COMPLETION_JUDGE = "completion_judge"
    END = "__end__"


class Decision(Data):
    """What comes next: a node for a speaker, or the end."""

    node: Node
    """Where to go."""
    speaker: str
    """Whose turn it is there; at the end, who spoke last, or would have spoken first."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the turn belongs to."""
    reasons: tuple[Reason, ...] = ()
    """At the end, every reason that holds; the first is the reason."""


def decide(conversation: Conversation, position: Position) -> Decision:
    """Say what comes next.

    Args:
        conversation: The spec.
        position: Where it is.

    Returns:
        The node that comes next and whose turn it is there, or the end and its reasons.
    """
    held = holding(conversation, position)
    turn = NextTurn(position.speaker or conversation.order[0], position.stage)
    if _is_over(conversation, position, held):
        return _at(Node.END, turn, reasons_of(held))
    match MOVES[position.phase].actor:
        case Actor.SPEAKER:
            return _at(_agent(conversation, turn), turn)
        case Actor.TOOLS:
            return _at(Node.TOOL_EXECUTOR, turn)
        case Actor.NEXT if due(conversation, position) is None:
            turn = next_turn(conversation, position)
            return _at(_agent(conversation, turn), turn)
        case _:
            return _at(Node.COMPLETION_JUDGE, turn)


def _at(node: Node, turn: NextTurn, reasons: tuple[Reason, ...] = ()) -> Decision:
    return Decision(node=node, speaker=turn.speaker, stage=turn.stage, reasons=reasons)


def _agent(conversation: Conversation, turn: NextTurn) -> Node:
    first = turn.speaker == conversation.names[0]
    return Node.USER_AGENT if first else Node.ASSISTANT_AGENT


_STOP_CALLS: Final = {reason for reason, end in ENDS.items() if end.stops_calls}


def _is_over(conversation: Conversation, position: Position, held: list[HeldEnd]) -> bool:
    """Whether what holds, the strongest first, ends it here."""
    if not held:
        return False
    if position.phase in TURN_ENDS:
        return _is_over_between_turns(conversation, position, held)
    before_calls = position.phase is Phase.CALLED and position.stage is not Stage.LAST_WORDS
    if before_calls and any(one.reasons & _STOP_CALLS for one in held):
        return True
    weakest = MOVES[position.phase].ends
    return weakest is not None and held[0].strength <= weakest


def _is_over_between_turns(
    conversation: Conversation, position: Position, held: list[HeldEnd]
) -> bool:
    comes = due(conversation, position)
    if comes is Phase.CHECKED:
        # Predicates may be one more reason.
        return False
    if held[0].strength is Strength.HARD:
        return True
    if code_waits(conversation, position):
        # Code beside a word that ends it is run first.
        held = [one for one in held if one.strength > Strength.SAID]
    if held and held[0].strength is Strength.SAID:
        return True
    # Promised last words are spoken whatever else holds, and a verdict may change the reason.
    return bool(held) and not position.owed and comes is not Phase.JUDGED


def max_steps(conversation: Conversation) -> int:
    """Give the most steps of the graph that a conversation can take: two for the task."""
    turn = sum(move.times(conversation) for move in MOVES.values())
    can_leave = any(speaker.human for speaker in conversation.speakers)
    return 2 + most_messages(conversation) * turn + can_leave


def spoke(position: Position, turn: Decision) -> Position:
    """Give the position after the speaker whose turn it is has finished it."""
    return after_turn(position, turn.speaker, turn.stage)


def after_turn(position: Position, speaker: str, stage: Stage) -> Position:
    """Give the position after a turn of any speaker, in any part."""
    return position.model_copy(
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
        }
    )


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
        }
    )


def left(position: Position, turn: Decision, leaving: Leaving) -> Position:
    """Give the position after a person ended it instead of speaking."""
    return paused(position, turn, Phase.LEFT).model_copy(update={"left": leaving})


def checked(position: Position) -> Position:
    """Give the position after the predicates were asked whether they hold."""
    return position.model_copy(update={"phase": Phase.CHECKED})


def asked(position: Position) -> Position:
    """Give the position after the first of the judge's two questions."""
    return position.model_copy(update={"phase": Phase.ASKED})


def judged(conversation: Conversation, position: Position, *, complete: bool) -> Position:
    """Give the position after it was judged whether a task is complete."""
    if not complete or position.speaker is None:
        return position.model_copy(update={"phase": Phase.JUDGED})
    separate = isinstance(conversation.judge, SeparateJudge)
    done = conversation.stoppers if separate else (position.speaker,)
    return position.model_copy(
        update={
            "phase": Phase.JUDGED,
            "completed": tuple(dict.fromkeys((*position.completed, *done))),
            "owed": last_words(conversation, position.speaker),
        }
    )


def last_words(conversation: Conversation, speaker: str) -> tuple[str, ...]:
    """Give who has last words, and in which order, once a task is complete after a turn."""
    order = conversation.order
    after = order.index(speaker) + 1
    following = order[after:] + order[:after]
    match conversation.end_chat.mode:
        case EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION:
            return following[:1]
        case EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION:
            return following
        case _:
            return ()


def chose(conversation: Conversation, position: Position, name: str | None) -> Position:
    """Give the position after it was chosen who speaks next."""
    chosen = name or in_turn(conversation, position)
    return position.model_copy(update={"phase": Phase.CHOSEN, "chosen": chosen})
