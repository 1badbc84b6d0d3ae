"""Where a conversation is: what has just happened, and what is true of all that was said."""

from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from ..common.data import Data
from ..log.stage import Stage
from ..spec.conversation import Conversation


class Event(StrEnum):
    """What has just happened."""

    STARTED = "started"
    """The task stands; nobody has spoken."""
    SPOKEN = "spoken"
    """The speaker's turn is over."""
    PASSED = "passed"
    """The person who speaks for the speaker has nothing to say; what stands behind replies."""
    LEFT = "left"
    """A person has ended it instead of speaking."""
    SUMMARISED = "summarised"
    """The older part of the speaker's history is summarised; it has not spoken yet."""
    REJECTED = "rejected"
    """The speaker's reply broke a rule; it is asked for once more."""
    ANSWERED = "answered"
    """What the speaker says is there; its hooks have not seen it yet."""
    CALLED = "called"
    """The speaker called tools, which have not run yet."""
    RAN = "ran"
    """The tools have run; the speaker's hooks have not seen what they gave yet."""
    RETURNED = "returned"
    """The tools it called have answered."""
    GIVEN = "given"
    """What the tools or the code gave is what the speaker says; it has not said it yet."""
    CHECKED = "checked"
    """The predicates have said whether they hold."""
    ASKED = "asked"
    """The speaker has said what is left to do, not yet whether it is done."""
    JUDGED = "judged"
    """The speaker's task is judged."""
    CHOSEN = "chosen"
    """It is decided who speaks next."""


TURN_ENDS: Final = (Event.SPOKEN, Event.CHECKED, Event.JUDGED, Event.CHOSEN)
"""After these events a turn is over, or about to be."""

BETWEEN_TURNS: Final = (Event.STARTED, *TURN_ENDS)
"""After these events, where nothing else comes first, somebody's turn begins."""


class Leaving(Data):
    """How a person has ended a conversation instead of speaking."""

    by: str | None
    """The speaker that the person speaks for. None: a person who takes no other part."""
    reason: Literal["quit", "termination", "max_consecutive_auto_reply"]
    """``quit``: by leaving. The others: by saying nothing to a termination message, or where no
    automatic reply may be given."""


class Facts(Data):
    """What is true of all that was said and used so far. `graphs.rules.facts` finds it out."""

    messages: NonNegativeInt = 0
    """Messages said by the speakers."""
    calls: NonNegativeInt = 0
    """Answered model calls."""
    tokens: NonNegativeInt = 0
    """Tokens of prompts and answers."""
    cost: NonNegativeFloat = 0
    """Money spent, by the price table."""
    seconds: NonNegativeFloat = 0
    """Seconds spent running."""
    stop_requested: bool = False
    """Whether somebody outside asked it to stop."""
    tokens_said: tuple[tuple[str, str], ...] = ()
    """The done tokens that were said, each with who said it."""
    predicates: tuple[str, ...] = ()
    """The predicates that held after the latest turn."""
    tools_called: tuple[tuple[str, str], ...] = ()
    """The tools that answered without an error, each with who called it."""
    code_by: str | None = None
    """Who said the newest message, where code that can be run stands in it."""
    no_code_by: str | None = None
    """Who said the newest message, where none stands in it."""
    said_by: str | None = None
    """Who said the newest message that all hear. This and the next three are looked at only where
    people take part."""
    heard_from: tuple[str, ...] = ()
    """Who has said something that all hear."""
    terminated: tuple[str, ...] = ()
    """Whom the newest message tells that it is over, by the word that they look for."""
    auto_replies: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """How many replies in a row nobody has given for those whom people speak for."""
    call_errors: NonNegativeInt = 0
    """The calls of this turn that no tool could be run for."""
    tool_errors: NonNegativeInt = 0
    """The calls of this turn in which a tool failed."""
    blank_replies: NonNegativeInt = 0
    """The latest replies that were blank."""
    same_replies: NonNegativeInt = 0
    """How often the speaker gave its latest reply."""
    farewells: NonNegativeInt = 0
    """The latest messages that were nothing but thanks or farewells."""
    role_flips: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """How often each speaker spoke another's part, even when asked again."""
    same_tool_calls: NonNegativeInt = 0
    """The latest calls of this turn that were equal."""
    unreadable_verdicts: NonNegativeInt = 0
    """The latest verdicts that could not be read."""


class Position(Data):
    """Where a conversation is, after the latest event."""

    event: Event = Event.STARTED
    """What has just happened."""
    stage: Stage = Stage.ROUNDS
    """The part it happened in."""
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
    """Whether a reply of this turn was rejected already; it is asked for again once."""
    left: Leaving | None = None
    """How a person has ended it."""
    facts: Facts = Facts()
    """What is true of all that was said and used."""

    def rounds(self, conversation: Conversation) -> int:
        """How many rounds are complete."""
        return self.turns // len(conversation.speakers)


def restored_position(data: dict[str, Any]) -> Position:
    """Make a position out of a stored one, of this or an older version."""
    retired = ("said_done", "role_flips")
    return Position.model_validate(
        {key: value for key, value in data.items() if key not in retired}
    )
