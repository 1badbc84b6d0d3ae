"""Positions of a conversation, and its moves: who acts after each phase, and which may follow.

`graphs.rules.transitions` decides by the table of moves. A test draws it for the documentation.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from pydantic import NonNegativeInt

from ..common.data import Data
from ..conversation.conversation import Conversation
from ..conversation.judges import Concurrent, Moderator
from ..conversation.limits import most_messages, most_tool_rounds
from ..ends.end import Facts, Strength
from ..log.metadata import (
    CodeCalls,
    Draft,
    JudgeQuestion,
    MessageMetadata,
    PendingAnswer,
    Reflection,
    Stage,
    ToolCalls,
    ToolResult,
    UnheardReply,
    UnheardResult,
)


class Phase(StrEnum):
    """The latest event in a conversation. Each event is a step of the graph."""

    STARTED = "started"  # the task is ready; no speaker has spoken
    PASSED = "passed"  # a person gave no message; the speaker's other kinds of reply are used
    SUMMARISED = "summarised"  # the older part of the speaker's history was summarised
    REQUESTED = "requested"  # the answers of all models that speak at once are in the log
    REJECTED = "rejected"  # the speaker's reply broke a rule; another one is requested
    CUT_OFF = "cut_off"  # the reply was cut off; its rest, or a shorter one, is requested
    ANSWERED = "answered"  # the speaker's reply is there; its hooks have not seen it yet
    CALLED = "called"  # the speaker called tools, or runs code; nothing has run yet
    RAN = "ran"  # the tools have run; the speaker's hooks have not seen the results
    RETURNED = "returned"  # the results are ready; the speaker answers them next
    GIVEN = "given"  # the results are ready; they become the speaker's message
    SPOKEN = "spoken"  # the speaker's turn is over
    CHECKED = "checked"  # the predicates were evaluated
    ASKED = "asked"  # the speaker answered the judge's first question; the second follows
    UNREAD = "unread"  # the verdict can't be read; another one is requested
    JUDGED = "judged"  # the task of the speaker was judged
    UNCHOSEN = "unchosen"  # the choice of the next speaker can't be read; another one is requested
    CHOSEN = "chosen"  # the next speaker was chosen
    LEFT = "left"  # a person ended the conversation


class Leaving(Data):
    """A person's decision to end the conversation instead of speaking."""

    by: str | None
    """The name of the speaker whose replies the person writes. None for any other person."""
    reason: Literal["quit", "termination", "max_consecutive_auto_reply"]
    """``quit`` if the person left. ``termination`` after an empty answer to a termination message.
    ``max_consecutive_auto_reply`` after an empty answer when no automatic reply was left."""


class Position(Data):
    """The position of a conversation: its latest phase, its turn, and its counts."""

    phase: Phase = Phase.STARTED
    """The latest phase."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the latest phase belongs to."""
    speaker: str | None = None
    """The name of the speaker of the latest turn. None before the first turn."""
    turns: NonNegativeInt = 0
    """Number of finished turns in the rounds, without opening answers and last words."""
    prepared: NonNegativeInt = 0
    """Number of answered private prompts."""
    opened: NonNegativeInt = 0
    """Number of opening answers so far."""
    completed: tuple[str, ...] = ()
    """The names of the speakers who completed their tasks, in order of completion."""
    owed: tuple[str, ...] = ()
    """The names of the speakers who may still send a message (their last words) after a task is
    complete, in order.
    """
    chosen: str | None = None
    """The name of the speaker that was chosen to speak next. None if none was chosen."""
    tool_rounds: NonNegativeInt = 0
    """Number of tool rounds in this turn in which a call succeeded."""
    asked_again: bool = False
    """Whether a reply of this turn was rejected. Only one reply per turn is rejected."""
    cut_off: bool = False
    """Whether a reply of this turn was cut off and more was requested."""
    capped: bool = False
    """Whether a cap has ended the conversation, so that the requested verdict is final."""
    left: Leaving | None = None
    """A person's decision to end the conversation. None if no person has ended it."""
    facts: Facts = Facts()
    """The facts that end conditions look at."""


class Actor(StrEnum):
    """The part of the graph that acts after a phase."""

    SPEAKER = "the speaker"  # the speaker of the current turn
    TOOLS = "the tools"  # in the tool executor
    JUDGE = "the judge"  # with its second question, or a repeated one
    NEXT = "the judge if due, else the next speaker"  # as `graphs.rules.turns.due` decides
    NO_ONE = "no one"  # the conversation is over


class Reads(NamedTuple):
    """The log messages that the next node reads: the newest one of some kinds, and all after it."""

    first: tuple[type[MessageMetadata], ...] = ()
    """The kinds that the first of these messages may have. Empty if the node reads no messages."""
    newest: tuple[type[MessageMetadata], ...] = ()
    """The kinds that the newest of these messages may have."""


class Move(NamedTuple):
    """The step after a phase, and the phases that it may lead to."""

    actor: Actor
    """The actor after the phase."""
    ends: Strength | None
    """The weakest strength with which an end condition ends the conversation here. None if no end
    condition does.
    """
    then: tuple[Phase, ...]
    """The phases that may follow. Between turns, the first one that is due follows."""
    times: Callable[[Conversation], int] = lambda _: 1
    """Returns the maximum number of steps with this phase in one turn."""
    reads: Reads = Reads()
    """The log messages that the actor reads in addition to the speaker's view."""


def _allow_none(conversation: Conversation) -> int:
    return 0


def _with_people(conversation: Conversation) -> int:
    return int(bool(conversation.people))


def _each_call(conversation: Conversation) -> int:
    """Return the maximum number of steps for calls. People who see or approve calls add steps."""
    speakers = conversation.speakers
    shown = any(speaker.human and speaker.human.sees_calls for speaker in speakers)
    decided = any(speaker.interrupt_on for speaker in speakers)
    return most_tool_rounds(conversation) * (1 + shown + decided)


_DRAFT = Reads((Draft,), (Draft,))
_CALLS = (ToolCalls, CodeCalls)

_ACCEPTED = (Phase.ANSWERED, Phase.CALLED, Phase.SPOKEN)
"""The phases after an accepted reply."""

_REPLY = (Phase.CUT_OFF, Phase.REJECTED, *_ACCEPTED)
"""The phases after a speaker's reply."""

_TURN = (Phase.PASSED, Phase.SUMMARISED, Phase.REQUESTED, *_REPLY, Phase.LEFT)
"""The phases that a turn may begin with."""

CALL_OF_SPEAKER: Final = frozenset(_TURN)
"""The phases after which the model calls of a step belong to the speaker of the turn."""

_CHOICE = (Phase.UNCHOSEN, Phase.CHOSEN)
"""The phases after the question who speaks next."""

_CHECK = (Phase.ASKED, Phase.UNREAD, Phase.JUDGED)
"""The phases after the question whether a task is complete."""

MOVES: Final[Mapping[Phase, Move]] = {
    Phase.STARTED: Move(Actor.NEXT, Strength.HARD, _TURN, _allow_none),
    # Within a turn.
    Phase.PASSED: Move(
        Actor.SPEAKER,
        Strength.HARD,
        # Answers that were removed are requested again.
        (Phase.SUMMARISED, Phase.REQUESTED, *_REPLY),
        _with_people,
    ),
    Phase.SUMMARISED: Move(
        Actor.SPEAKER, Strength.HARD, _REPLY, lambda one: int(any(map(one.sums_up, one.speakers)))
    ),
    # The answers were paid for together, so they are used before any end applies.
    Phase.REQUESTED: Move(
        Actor.SPEAKER,
        None,
        (Phase.CUT_OFF, Phase.REJECTED, Phase.CALLED, Phase.SPOKEN),
        lambda one: int(isinstance(one.turn_order, Concurrent)),
        Reads((PendingAnswer,), (PendingAnswer,)),
    ),
    Phase.CUT_OFF: Move(
        Actor.SPEAKER,
        Strength.HARD,
        (Phase.REJECTED, *_ACCEPTED),
        lambda one: int(one.asks_for_more),
        _DRAFT,
    ),
    Phase.REJECTED: Move(Actor.SPEAKER, Strength.HARD, (Phase.CUT_OFF, *_ACCEPTED), reads=_DRAFT),
    # A finished answer is said before any end applies.
    Phase.ANSWERED: Move(
        Actor.SPEAKER,
        None,
        (Phase.CALLED, Phase.SPOKEN),
        lambda one: most_tool_rounds(one) + 1,
        Reads((UnheardReply,), (UnheardReply,)),
    ),
    # An end that stops calls applies here, too, unless the current turn was promised.
    Phase.CALLED: Move(
        Actor.TOOLS,
        Strength.HARD,
        # A guard may end the turn, so that a person speaks next.
        (Phase.RAN, Phase.RETURNED, Phase.GIVEN, Phase.SPOKEN, Phase.LEFT),
        _each_call,
        Reads(_CALLS, _CALLS),
    ),
    Phase.RAN: Move(
        Actor.TOOLS,
        None,
        (Phase.RETURNED, Phase.GIVEN),
        most_tool_rounds,
        Reads(_CALLS, (UnheardResult,)),
    ),
    Phase.RETURNED: Move(Actor.SPEAKER, Strength.SAID, _REPLY, most_tool_rounds),
    # This phase replaces the last `RETURNED` of a turn.
    Phase.GIVEN: Move(
        Actor.SPEAKER,
        None,
        (Phase.ANSWERED, Phase.SPOKEN),
        _allow_none,
        Reads(_CALLS, (ToolResult, UnheardResult)),
    ),
    # Between turns.
    Phase.SPOKEN: Move(Actor.NEXT, Strength.CAP, (Phase.CHECKED, *_CHECK, *_CHOICE, *_TURN)),
    Phase.CHECKED: Move(Actor.NEXT, Strength.CAP, (*_CHECK, *_CHOICE, *_TURN)),
    Phase.ASKED: Move(
        Actor.JUDGE,
        Strength.HARD,
        (Phase.UNREAD, Phase.JUDGED),
        reads=Reads((JudgeQuestion,), (Reflection,)),
    ),
    Phase.UNREAD: Move(
        Actor.JUDGE,
        Strength.HARD,
        (Phase.JUDGED,),
        reads=Reads((JudgeQuestion,), (Reflection,)),
    ),
    Phase.JUDGED: Move(Actor.NEXT, Strength.CAP, (*_CHOICE, *_TURN)),
    Phase.UNCHOSEN: Move(
        Actor.JUDGE,
        Strength.HARD,
        (Phase.CHOSEN,),
        lambda one: int(isinstance(one.turn_order, Moderator)),
    ),
    Phase.CHOSEN: Move(
        Actor.NEXT, Strength.CAP, tuple(phase for phase in _TURN if phase is not Phase.REQUESTED)
    ),
    # Once in a conversation.
    Phase.LEFT: Move(Actor.NO_ONE, Strength.CAP, (), _allow_none),
}

BETWEEN_TURNS: Final = tuple(phase for phase, move in MOVES.items() if move.actor is Actor.NEXT)
"""The phases after which a turn begins if nothing else is due."""

TURN_ENDS: Final = tuple(phase for phase in BETWEEN_TURNS if phase is not Phase.STARTED)
"""The phases after which a turn is over or almost over."""


def max_steps(conversation: Conversation) -> int:
    """Return the maximum number of graph steps of a conversation, including two for the task."""
    turn = sum(move.times(conversation) for move in MOVES.values())
    return 2 + most_messages(conversation) * turn + _with_people(conversation)
