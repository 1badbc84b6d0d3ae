"""How a conversation moves: who acts after each phase, and what may follow it or end it there.

`graphs.rules.transitions` decides by this table; the tests draw it for the documentation.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ..conversation.conversation import Conversation
from ..conversation.limits import most_messages, most_tool_rounds
from ..ends.end import Strength
from ..log.metadata import (
    CodeCalls,
    Draft,
    JudgeQuestion,
    MessageMetadata,
    Reflection,
    ToolCalls,
    ToolResult,
    UnheardReply,
    UnheardResult,
)
from .position import Phase


class Actor(StrEnum):
    """Who acts after a phase."""

    SPEAKER = "the speaker"  # the one whose turn it is
    TOOLS = "the tools"  # in the tool executor
    JUDGE = "the judge"  # with its second question, or once more
    NEXT = "the judge if due, else the next speaker"  # as `graphs.rules.turns.due` says
    NOBODY = "nobody"  # the conversation is over


class Reads(NamedTuple):
    """Which lines of the log the next node reads: the newest of some kinds, and all after it."""

    first: tuple[
        type[MessageMetadata], ...
    ] = ()  # what kind the first of them is. (): it reads none of these
    newest: tuple[type[MessageMetadata], ...] = ()  # what kind the newest is


class Move(NamedTuple):
    """What comes after a phase."""

    actor: Actor  # who acts
    ends: Strength | None  # the weakest end that may end the conversation here. None: none does.
    then: tuple[Phase, ...]  # what may follow; of what is due between turns, the first one does
    times: Callable[[Conversation], int]  # how many steps it takes in a turn, at most
    reads: Reads = Reads()  # what who acts reads of the log, beside the speaker's view


def _once(conversation: Conversation) -> int:
    return 1


def _never(conversation: Conversation) -> int:
    return 0


def _with_people(conversation: Conversation) -> int:
    return int(bool(conversation.people))


def _with_more_asked(conversation: Conversation) -> int:
    return int(conversation.asks_for_more)


def _with_summaries(conversation: Conversation) -> int:
    return int(any(map(conversation.sums_up, conversation.speakers)))


def _each_answer(conversation: Conversation) -> int:
    return most_tool_rounds(conversation) + 1


def _each_call(conversation: Conversation) -> int:
    """A person may be shown the calls, and decide on them, in a step each."""
    speakers = conversation.speakers
    shown = any(speaker.human and speaker.human.sees_calls for speaker in speakers)
    decided = any(speaker.interrupt_on for speaker in speakers)
    return most_tool_rounds(conversation) * (1 + shown + decided)


_DRAFT = Reads((Draft,), (Draft,))
_CALLS = (ToolCalls, CodeCalls)

_ACCEPTED = (Phase.ANSWERED, Phase.CALLED, Phase.SPOKEN)
"""What a reply may be that is asked for no more."""

_REPLY = (Phase.CUT_OFF, Phase.REJECTED, *_ACCEPTED)
"""What a speaker's reply may be."""

_TURN = (Phase.PASSED, Phase.SUMMARISED, *_REPLY, Phase.LEFT)
"""What a turn may begin with."""

_CHECK = (Phase.ASKED, Phase.UNREAD, Phase.JUDGED)
"""What may come of asking whether a task is complete."""

MOVES: Final[Mapping[Phase, Move]] = {
    Phase.STARTED: Move(Actor.NEXT, Strength.HARD, _TURN, _never),
    # Within a turn.
    Phase.PASSED: Move(Actor.SPEAKER, Strength.HARD, (Phase.SUMMARISED, *_REPLY), _with_people),
    Phase.SUMMARISED: Move(Actor.SPEAKER, Strength.HARD, _REPLY, _with_summaries),
    Phase.CUT_OFF: Move(
        Actor.SPEAKER, Strength.HARD, (Phase.REJECTED, *_ACCEPTED), _with_more_asked, _DRAFT
    ),
    Phase.REJECTED: Move(Actor.SPEAKER, Strength.HARD, (Phase.CUT_OFF, *_ACCEPTED), _once, _DRAFT),
    # What is answered already is said before anything ends.
    Phase.ANSWERED: Move(
        Actor.SPEAKER,
        None,
        (Phase.CALLED, Phase.SPOKEN),
        _each_answer,
        Reads((UnheardReply,), (UnheardReply,)),
    ),
    # Ends that stop calls end it here, too, but for last words.
    Phase.CALLED: Move(
        Actor.TOOLS,
        Strength.HARD,
        # A guard may end the turn, for a person to speak.
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
    # It takes the place of the last `RETURNED`.
    Phase.GIVEN: Move(
        Actor.SPEAKER,
        None,
        (Phase.ANSWERED, Phase.SPOKEN),
        _never,
        Reads(_CALLS, (ToolResult, UnheardResult)),
    ),
    # Between turns.
    Phase.SPOKEN: Move(
        Actor.NEXT,
        Strength.CAP,
        (Phase.CHECKED, *_CHECK, Phase.CHOSEN, *_TURN),
        _once,
    ),
    Phase.CHECKED: Move(Actor.NEXT, Strength.CAP, (*_CHECK, Phase.CHOSEN, *_TURN), _once),
    Phase.ASKED: Move(
        Actor.JUDGE,
        Strength.HARD,
        (Phase.UNREAD, Phase.JUDGED),
        _once,
        Reads((JudgeQuestion,), (Reflection,)),
    ),
    Phase.UNREAD: Move(
        Actor.JUDGE,
        Strength.HARD,
        (Phase.JUDGED,),
        _once,
        Reads((JudgeQuestion,), (Reflection,)),
    ),
    Phase.JUDGED: Move(Actor.NEXT, Strength.CAP, (Phase.CHOSEN, *_TURN), _once),
    Phase.CHOSEN: Move(Actor.NEXT, Strength.CAP, _TURN, _once),
    # Once in a conversation.
    Phase.LEFT: Move(Actor.NOBODY, Strength.CAP, (), _never),
}

BETWEEN_TURNS: Final = tuple(phase for phase, move in MOVES.items() if move.actor is Actor.NEXT)
"""After these phases, where nothing else is due, somebody's turn begins."""

TURN_ENDS: Final = tuple(phase for phase in BETWEEN_TURNS if phase is not Phase.STARTED)
"""After these phases a turn is over, or about to be."""


def max_steps(conversation: Conversation) -> int:
    """Return the most steps of the graph that a conversation can take: two for the task."""
    turn = sum(move.times(conversation) for move in MOVES.values())
    return 2 + most_messages(conversation) * turn + _with_people(conversation)
