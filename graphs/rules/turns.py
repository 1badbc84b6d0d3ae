"""Whose turn comes next, and what is to be asked before it. Pure functions of a position.

What holds there is in `graphs.rules.reasons`, what follows from both in
`graphs.rules.end_chat`.
"""

from typing import NamedTuple

from ..log.stage import ALOUD, Stage
from ..spec.conversation import Conversation
from ..spec.ends import EndChatMode
from ..spec.judges import RoundRobin
from .position import TURN_ENDS, Event, Position


class NextTurn(NamedTuple):
    """A turn that comes."""

    speaker: str
    """Whose it is."""
    stage: Stage
    """The part of the conversation it belongs to."""


def must_check(conversation: Conversation, position: Position) -> bool:
    """Whether predicates are to be asked, after each turn that all hear."""
    return (
        position.event is Event.SPOKEN and position.stage in ALOUD and bool(conversation.predicates)
    )


def must_judge(conversation: Conversation, position: Position) -> bool:
    """Whether it is to be asked if the task of who has just finished a turn is complete.

    Only after turns of stoppers in the rounds, until they have completed their task; on the cap's
    turn too, since the answer changes the reason and the last words.
    """
    return (
        position.event is _turn_is_over(conversation)
        and position.stage is Stage.ROUNDS
        and conversation.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        and position.speaker not in position.completed
        and position.speaker in conversation.stoppers
    )


def _turn_is_over(conversation: Conversation) -> Event:
    """The event after which a turn has nothing more to be asked about but its judge."""
    return Event.CHECKED if conversation.predicates else Event.SPOKEN


def must_choose(conversation: Conversation, position: Position) -> bool:
    """Whether it is to be chosen who speaks next. The first turn and last words have an order."""
    return (
        not isinstance(conversation.turn_order, RoundRobin)
        and position.event in (_turn_is_over(conversation), Event.JUDGED)
        and position.turns > 0
        and not position.owed
    )


def next_turn(conversation: Conversation, position: Position) -> NextTurn:
    """Give the turn that comes next, where it need not be chosen first."""
    if position.owed:
        return NextTurn(position.owed[0], Stage.LAST_WORDS)
    prepared = conversation.secretive
    if position.prepared < len(prepared):
        return NextTurn(prepared[position.prepared], Stage.PRIVATE)
    if conversation.opening.answers and position.opened < len(conversation.names):
        return NextTurn(conversation.names[position.opened], Stage.OPENING)
    return NextTurn(position.chosen or in_turn(conversation, position), Stage.ROUNDS)


def in_turn(conversation: Conversation, position: Position) -> str:
    """Give who speaks next in the rounds where nobody chooses: who stands behind the last one."""
    order = conversation.order
    # Who spoke last in the opening does not count.
    if position.turns == 0 or position.speaker is None:
        return order[0]
    return order[(order.index(position.speaker) + 1) % len(order)]


def code_waits(conversation: Conversation, position: Position) -> bool:
    """Whether who speaks next runs code that stands in the newest message (AutoGen)."""
    if position.event not in TURN_ENDS or position.facts.code_by != position.speaker:
        return False
    following = next_turn(conversation, position).speaker
    # A first message comes before any code.
    is_first = begins(conversation, position, following)
    return not is_first and runs_newest(conversation, position, following)


def runs_newest(conversation: Conversation, position: Position, name: str) -> bool:
    """Whether a speaker runs code that stands in the newest message, which another has said."""
    writer = position.facts.code_by
    return writer is not None and writer != name and conversation.speaker(name).runs_code


def begins(conversation: Conversation, position: Position, name: str) -> bool:
    """Whether a speaker's first message is still to come, which is no reply to anything."""
    given = conversation.speaker(name).first_message is not None
    return given and name not in position.facts.heard_from
