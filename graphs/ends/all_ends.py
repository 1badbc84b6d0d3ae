"""Where ends and guards are registered: the reasons, the limits of the guards, and the classes.

A new one is a class in a module of its own, a `Reason`, and an entry in one of the lists; a guard
has a limit in `Guards`, too.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ..common.data import MOST, Spec
from .done_token import DoneToken
from .end import BaseEnd
from .guard import BlankReplies, Echo, Guard, RoleFlips, UnreadableVerdicts
from .limits import MaxCalls, MaxCost, MaxMessages, MaxSeconds, MaxTokens
from .no_code_block import NoCodeBlock
from .no_progress import CallErrors, Farewells, SameReplies, SameToolCalls, Standstill, ToolErrors
from .outside import Predicate, StopRequested
from .tool_called import ToolCalled


class Reason(StrEnum):
    """Why a conversation ended, in order of precedence."""

    STOP_REQUESTED = "stop_requested"  # somebody outside asked it to stop
    QUIT = "quit"  # a person left it
    MAX_COST = "max_cost"  # the money is spent
    MAX_TOKENS = "max_tokens"  # the tokens are used up
    MAX_SECONDS = "max_seconds"  # the time is over
    MAX_CALLS = "max_calls"  # the model calls are used up
    CALL_ERRORS = "call_errors"  # too many calls in one turn could not be run
    TOOL_ERRORS = "tool_errors"  # too many calls in one turn failed in the tool
    DONE_TOKEN = "done_token"  # noqa: S105  # a speaker said the done token
    PREDICATE = "predicate"  # a registered function said so
    TOOL_CALLED = "tool_called"  # a tool was called that ends it
    NO_CODE_BLOCK = "no_code_block"  # a speaker whose code is run wrote none
    TERMINATION = "termination"  # a termination message came, and no person wanted to go on
    COMPLETED = "completed"  # the tasks that the mode asks for are complete
    UNREADABLE_VERDICTS = "unreadable_verdicts"  # verdicts in a row could not be read
    ROLE_FLIPS = "role_flips"  # a speaker kept speaking another's part
    BLANK_REPLIES = "blank_replies"  # replies in a row were blank
    SAME_REPLIES = "same_replies"  # a speaker kept giving the same reply
    ECHO = "echo"  # a speaker kept saying what another had just said
    FAREWELLS = "farewells"  # messages in a row were nothing but thanks or farewells
    STANDSTILL = "standstill"  # nobody said anything new any more
    SAME_TOOL_CALLS = "same_tool_calls"  # a speaker kept calling a tool with equal arguments
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"  # automatic replies for a person
    MAX_MESSAGES = "max_messages"  # the message cap is reached
    MAX_ITERATIONS = "max_iterations"  # the round cap is reached


GuardLimit = Annotated[int, Field(strict=True, ge=0, le=MOST)]
"""At how many a guard ends the conversation. 0: never."""


class Guards(Spec):
    """What ends a conversation that goes wrong, each at its own number; 0 switches it off.

    They count what all hear, so not opening answers.
    """

    blank_replies: GuardLimit = 2
    """Blank replies in a row, by any speaker, each after it was asked for again. Fixed texts, and
    what tools and code give, do not count."""
    same_replies: GuardLimit = 3
    """How often one speaker gives the same reply while nobody says anything new: others may say
    again what they said before. A reply is the same if only signs differ, or less than a twentieth
    and no number. Short replies do not count."""
    farewells: GuardLimit = 4
    """Messages in a row that hold nothing but thanks or farewells. With ``standstill`` on they end
    nothing while a question is open, until who asked it goes on, nor where the mode waits for a
    completed task."""
    standstill: GuardLimit = 2
    """Rounds of sentences in which nobody says anything new: all say the same again, or go round in
    a cycle of up to three. Three rounds of short lines count as one, and so do six of short
    questions and answers. One sentence of one speaker counts as one round when it is said six
    times while nobody says anything new but numbers. What people say is always new."""
    role_flips: GuardLimit = 2
    """How often one speaker speaks another's part, each after it was asked to correct it."""
    same_tool_calls: GuardLimit = 5
    """Equal calls in a row, within a turn, by messages of one speaker: of the same tools, with the
    same arguments and the same results. Calls that fail do not count. The last of these messages is
    rejected and asked for again before it counts."""
    echo: GuardLimit = 3
    """Messages in a row of one speaker that say word for word what another has said since its last
    turn, each after it was asked for again. Short lines, moves of a game, thanks and farewells
    do not count, nor does what it was asked to repeat. 0: such a message is not asked for again,
    either."""
    unreadable_verdicts: GuardLimit = 3
    """Verdicts in a row that can't be read."""


ENDS_TO_NAME: Final[tuple[type[BaseEnd], ...]] = (
    DoneToken,
    Predicate,
    ToolCalled,
    NoCodeBlock,
    MaxMessages,
    MaxCalls,
    MaxTokens,
    MaxCost,
    MaxSeconds,
    StopRequested,
)
"""The ends that a conversation may name in ``end_chat.when``."""

GUARDS: Final[tuple[type[Guard], ...]] = (
    CallErrors,
    ToolErrors,
    UnreadableVerdicts,
    RoleFlips,
    BlankReplies,
    SameReplies,
    Echo,
    Farewells,
    Standstill,
    SameToolCalls,
)
"""The guards; the first two are hard stops."""
