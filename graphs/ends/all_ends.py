"""The register of end conditions and guards: reasons, limits of the guards, and classes.

A new end needs a class in its own module, a `Reason`, and an entry in one of the lists. A guard
also needs a limit in `Guards`.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from ..common.data import MOST, Spec
from .done_token import DoneToken
from .end import BaseEnd
from .events import NoCodeBlock, Predicate, StopRequested, ToolCalled
from .guard import BlankReplies, Echo, Guard, RoleFlips, UnreadableVerdicts
from .limits import MaxCalls, MaxCost, MaxMessages, MaxSeconds, MaxTokens
from .no_progress import CallErrors, Farewells, SameReplies, SameToolCalls, Standstill, ToolErrors


class Reason(StrEnum):
    """Reasons for the end of a conversation, in order of precedence."""

    STOP_REQUESTED = "stop_requested"  # a program or person outside requested it
    QUIT = "quit"  # a person left
    MAX_COST = "max_cost"  # the money is spent
    MAX_TOKENS = "max_tokens"  # the tokens are used up
    MAX_SECONDS = "max_seconds"  # the time is over
    MAX_CALLS = "max_calls"  # the model calls are used up
    CALL_ERRORS = "call_errors"  # too many tool calls in one turn were invalid
    TOOL_ERRORS = "tool_errors"  # too many tools failed in one turn
    DONE_TOKEN = "done_token"  # noqa: S105  # a speaker said the done token
    PREDICATE = "predicate"  # a registered function returned true
    TOOL_CALLED = "tool_called"  # a tool was called that ends the conversation
    NO_CODE_BLOCK = "no_code_block"  # a message of a speaker whose code is run had no code
    TERMINATION = "termination"  # a termination message, and no person continued
    COMPLETED = "completed"  # the tasks that the mode requires are complete
    UNREADABLE_VERDICTS = "unreadable_verdicts"  # consecutive verdicts could not be read
    ROLE_FLIPS = "role_flips"  # a speaker repeatedly wrote another's part
    BLANK_REPLIES = "blank_replies"  # consecutive replies were blank
    SAME_REPLIES = "same_replies"  # a speaker repeated its reply
    ECHO = "echo"  # a speaker repeated another speaker's messages
    FAREWELLS = "farewells"  # consecutive messages were only thanks or farewells
    STANDSTILL = "standstill"  # no message was new
    SAME_TOOL_CALLS = "same_tool_calls"  # a speaker repeated a tool call with equal arguments
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"  # the cap on automatic replies
    MAX_MESSAGES = "max_messages"  # the message cap is reached
    MAX_ITERATIONS = "max_iterations"  # the round cap is reached


GuardLimit = Annotated[int, Field(strict=True, ge=0, le=MOST)]
"""The count at which a guard ends the conversation. 0 switches the guard off."""


class Guards(Spec):
    """Limits at which guards end a conversation that makes no progress; 0 switches a guard off.

    Guards count only messages that all speakers hear, so opening answers do not count.
    """

    blank_replies: GuardLimit = 2
    """Number of consecutive blank replies, by any speaker. A reply counts if it is still blank
    after a retry. Fixed texts and the output of tools and code do not count."""
    same_replies: GuardLimit = 3
    """Number of times that one speaker gives the same reply while no message is new. A message is
    new if its speaker has not said the same before. Two replies also count as the same if they
    differ only in punctuation, or in less than a twentieth of the text and in no number. Short
    replies do not count."""
    farewells: GuardLimit = 4
    """Number of consecutive messages that contain only thanks or farewells. If ``standstill`` is
    on, this guard pauses while a question is open, until the speaker that asked it continues, and
    it does nothing if the mode waits for completed tasks."""
    standstill: GuardLimit = 2
    """Number of rounds in which no message is new: all speakers repeat themselves, or go through a
    cycle of up to three messages. These are rounds of whole sentences: three rounds of short lines,
    or six rounds of short questions and answers, count as one round. A sentence that one speaker
    says six times also counts as one round, unless something other than numbers is new meanwhile.
    Messages of people are always new."""
    role_flips: GuardLimit = 2
    """Number of messages in which one speaker writes another speaker's part. A message counts if
    the fault remains after a retry."""
    same_tool_calls: GuardLimit = 5
    """Number of consecutive messages of one speaker, within a turn, with equal calls: the same
    tools, the same arguments and the same results. Failed calls do not count. The last of these
    messages counts only after a retry."""
    echo: GuardLimit = 3
    """Number of consecutive messages of one speaker that repeat, word for word, a message that
    another speaker has sent since the repeating speaker's last turn. A message counts if it is
    still a repetition after a retry. Short lines, moves of a game, thanks, farewells and text that
    the speaker was asked to repeat do not count. 0 also switches off the retry."""
    unreadable_verdicts: GuardLimit = 3
    """Number of consecutive verdicts that can't be read."""


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
"""The end conditions that a conversation may name in ``end_chat.when``."""

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
