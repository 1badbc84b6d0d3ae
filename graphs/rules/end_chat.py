"""When a conversation ends and who speaks next.

`decide` says what comes next, by the table in `graphs.rules.moves`. It has two callers, the node
that has just acted and the edge after it; both give it the same position, so they agree.
"""

from enum import StrEnum
from typing import Any, Final

from ..common.data import Data
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge
from ..ends.all_ends import Reason
from ..ends.end import Strength
from ..log.metadata import Stage
from .met_ends import ENDS, MetEnd, is_answer_due, is_promised, met_ends, reasons_of
from .moves import MOVES, TURN_ENDS, Actor
from .position import Phase, Position
from .turns import NextTurn, code_waits, due, next_turn


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
    due: Phase | None = None
    """At the completion judge, what it does: ask predicates, judge, or choose who is next."""
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
    met = met_ends(conversation, position)
    turn = NextTurn(position.speaker or conversation.order[0], position.stage)
    if _is_over(conversation, position, met):
        if _is_judged_once_more(conversation, position, met):
            return _at(Node.COMPLETION_JUDGE, turn, due=Phase.JUDGED)
        return _at(Node.END, turn, reasons=reasons_of(_as_it_ended(position, met)))
    match MOVES[position.phase].actor:
        case Actor.SPEAKER:
            return _at(_agent(conversation, turn), turn)
        case Actor.TOOLS:
            return _at(Node.TOOL_EXECUTOR, turn)
        case Actor.JUDGE:
            return _at(Node.COMPLETION_JUDGE, turn, due=Phase.JUDGED)
        case _:
            comes = due(conversation, position)
            if comes is not None:
                return _at(Node.COMPLETION_JUDGE, turn, due=comes)
            turn = next_turn(conversation, position)
            return _at(_agent(conversation, turn), turn)


def _at(node: Node, turn: NextTurn, **more: Any) -> Decision:
    return Decision(node=node, speaker=turn.speaker, stage=turn.stage, **more)


def _as_it_ended(position: Position, met: list[MetEnd]) -> list[MetEnd]:
    """Put the cap first if the final verdict was requested only because that cap was reached."""
    return sorted(met, key=lambda one: position.capped and one.strength is not Strength.CAP)


def _agent(conversation: Conversation, turn: NextTurn) -> Node:
    first = turn.speaker == conversation.names[0]
    return Node.USER_AGENT if first else Node.ASSISTANT_AGENT


_STOP_CALLS: Final = {reason for reason, end in ENDS.items() if end.stops_calls}


def _is_over(conversation: Conversation, position: Position, met: list[MetEnd]) -> bool:
    """Return whether the met ends, the strongest first, end it here."""
    if not met:
        return False
    if position.phase in TURN_ENDS:
        return _is_over_between_turns(conversation, position, met)
    before_calls = position.phase is Phase.CALLED and not is_promised(conversation, position)
    if before_calls and any(one.reasons & _STOP_CALLS for one in met):
        return True
    weakest = MOVES[position.phase].ends
    return weakest is not None and met[0].strength <= weakest


def _is_over_between_turns(
    conversation: Conversation, position: Position, met: list[MetEnd]
) -> bool:
    comes = due(conversation, position)
    if comes is Phase.CHECKED:
        # Predicates may be one more reason.
        return False
    if met[0].strength is Strength.HARD:
        return True
    if code_waits(conversation, position):
        # Code beside a word that ends it is run first.
        met = [one for one in met if one.strength > Strength.SAID]
    if met and met[0].strength is Strength.SAID:
        return True
    # What is promised is spoken whatever else holds, and a verdict may change the reason.
    is_owed = bool(position.owed) or is_answer_due(conversation, position)
    return bool(met) and not is_owed and comes is not Phase.JUDGED


_FINAL_VERDICT_AT: Final = {reason for reason, end in ENDS.items() if end.allows_final_verdict}


def _is_judged_once_more(conversation: Conversation, position: Position, met: list[MetEnd]) -> bool:
    """Whether a separate judge is still asked, at a cap, about what was not judged yet."""
    judge = conversation.judge
    at_cap = met[0].strength is Strength.CAP and not _FINAL_VERDICT_AT.isdisjoint(reasons_of(met))
    unjudged = Phase.JUDGED in MOVES[position.phase].then
    return isinstance(judge, SeparateJudge) and judge.final_verdict and at_cap and unjudged
