"""The position of a conversation, and how each phase and each removal changes it."""

from enum import StrEnum
from typing import Literal

from pydantic import NonNegativeInt

from ..common.data import Data
from ..conversation.conversation import Conversation
from ..ends.facts import Facts
from ..log.metadata import Stage


class Phase(StrEnum):
    """What has just happened; each is a step of the graph of its own."""

    STARTED = "started"  # the task stands; nobody has spoken
    PASSED = "passed"  # a person left the turn to what else gives the speaker's replies
    SUMMARISED = "summarised"  # the older part of the speaker's history was summarised
    REJECTED = "rejected"  # the speaker's reply broke a rule; it is asked for again
    CUT_OFF = "cut_off"  # its end is missing; the rest of it, or a shorter one, is asked for
    ANSWERED = "answered"  # the speaker's reply is there; its hooks have not seen it yet
    CALLED = "called"  # the speaker called tools, or runs code; nothing has run yet
    RAN = "ran"  # the tools have run; the speaker's hooks have not seen the results yet
    RETURNED = "returned"  # the results are there for the speaker to answer
    GIVEN = "given"  # the results are what the speaker says next
    SPOKEN = "spoken"  # the speaker's turn is over
    CHECKED = "checked"  # the predicates were asked whether they hold
    ASKED = "asked"  # the speaker said what is left to do; whether it is done is asked next
    UNREAD = "unread"  # the verdict can't be read; it is asked for once more
    JUDGED = "judged"  # it was judged whether the speaker's task is complete
    CHOSEN = "chosen"  # it was chosen who speaks next
    LEFT = "left"  # a person ended the conversation


class Leaving(Data):
    """How a person ended a conversation instead of speaking."""

    by: str | None
    """The speaker that the person speaks for. None: a person who speaks for nobody."""
    reason: Literal["quit", "termination", "max_consecutive_auto_reply"]
    """``quit``: by leaving. The others: by an empty answer to a termination message, or where no
    automatic reply may be given."""


class Position(Data):
    """Where a conversation is: its latest phase, and what is counted."""

    phase: Phase = Phase.STARTED
    """What has just happened."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation it happened in."""
    speaker: str | None = None
    """Whose turn it was, or still is. None before anyone has spoken."""
    turns: NonNegativeInt = 0
    """Turns finished in the rounds; opening answers and last words do not count."""
    prepared: NonNegativeInt = 0
    """Private prompts answered."""
    opened: NonNegativeInt = 0
    """Opening answers given."""
    completed: tuple[str, ...] = ()
    """Who has completed its task, in the order it happened."""
    owed: tuple[str, ...] = ()
    """Who still has last words to say, in order."""
    chosen: str | None = None
    """Who was chosen to speak next."""
    tool_rounds: NonNegativeInt = 0
    """Rounds of tool calls in this turn in which one succeeded."""
    asked_again: bool = False
    """Whether a reply of this turn was rejected already; that happens once a turn."""
    cut_off: bool = False
    """Whether a reply of this turn was cut off, and more was asked for."""
    capped: bool = False
    """Whether a cap has ended it, and the verdict that was asked for then is a final one."""
    left: Leaving | None = None
    """How a person ended it."""
    facts: Facts = Facts()
    """What was said, counted and used so far."""

    def rounds(self, conversation: Conversation) -> int:
        """How many rounds are complete."""
        return self.turns // len(conversation.speakers)

    def may_end(self, conversation: Conversation) -> bool:
        """Whether enough rounds are complete for any end."""
        return self.rounds(conversation) >= conversation.end_chat.min_iterations
