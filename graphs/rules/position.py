"""Position of a conversation: its phases, and the data that the next step depends on."""

from enum import StrEnum
from typing import Literal

from pydantic import NonNegativeInt

from ..common.data import Data
from ..conversation.conversation import Conversation
from ..ends.facts import Facts
from ..log.metadata import Stage


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

    def rounds(self, conversation: Conversation) -> int:
        """Return the number of complete rounds."""
        return self.turns // len(conversation.speakers)

    def may_end(self, conversation: Conversation) -> bool:
        """Return whether the minimum of rounds is complete."""
        return self.rounds(conversation) >= conversation.end_chat.min_iterations
