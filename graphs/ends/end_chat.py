"""The end of a conversation, as data: the mode, the caps, other end conditions, and the guards.

This module also registers all end conditions and guards. A new one needs a class in its own module
and a `Reason`. A guard also needs a limit in `Guards` and an entry in `GUARDS`.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from ..common.data import MOST, Accepts, AnyCase, Cap, Fields, Spec, default
from . import events as events, limits as limits  # register their end conditions
from .call_guards import TURN_ERRORS, SameToolCalls
from .end import AnyEnd, BaseEnd, End, message_caps
from .guards import (
    BlankReplies,
    Echo,
    Farewells,
    Guard,
    RoleFlips,
    SameReplies,
    Standstill,
    UnreadableVerdicts,
)


class Reason(StrEnum):
    """Reasons for the end of a conversation, in order of precedence."""

    STOP_REQUESTED = "stop_requested"  # a program or person outside requested it
    QUIT = "quit"  # a person left
    MAX_COST = "max_cost"  # the money is spent
    MAX_TOKENS = "max_tokens"  # the tokens are used up
    MAX_SECONDS = "max_seconds"  # the time is over
    MAX_CALLS = "max_calls"  # the model calls are used up
    CALL_ERRORS = "call_errors"  # tool calls in one turn were repeatedly invalid
    TOOL_ERRORS = "tool_errors"  # tools repeatedly failed in one turn
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
    SAME_TOOL_CALLS = "same_tool_calls"  # a speaker's tool calls went round in circles
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
    """Number of consecutive messages of one speaker, within a turn, whose calls repeat at most
    three different ones: the same tools, nearly the same arguments, and the same results. A new
    result begins the count again. Failed calls do not count. The last of these messages counts only
    after a retry."""
    echo: GuardLimit = 3
    """Number of consecutive messages of one speaker that repeat, word for word, a message that
    another speaker has sent since the repeating speaker's last turn. A message counts if it is
    still a repetition after a retry. Short lines, moves of a game, thanks, farewells and text that
    the speaker was asked to repeat do not count. 0 also switches off the retry."""
    unreadable_verdicts: GuardLimit = 3
    """Number of consecutive verdicts that can't be read."""


GUARDS: Final[tuple[type[Guard], ...]] = (
    *TURN_ERRORS,
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


NO_CAP: Final = "none"
"""The spelling of "no cap on rounds" in TOML."""


class EndChatMode(AnyCase):
    """The effect of completed tasks on the end of a conversation; letter case is ignored.

    The round cap applies to every mode (Yacana).
    """

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """Only the round cap ends the conversation, besides ends such as done tokens: no judge can end
    it, and completed tasks have no effect."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends the conversation at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """The conversation ends when every speaker that checks completion has completed its task."""


def end_chat_fields(value: object) -> object:
    """Convert a mode, an end condition or a list of them to the field that it sets."""
    if isinstance(value, str):
        return {"mode": value}
    is_end = "kind" in value if isinstance(value, Mapping) else isinstance(value, BaseEnd | list)
    return {"when": value} if is_end or isinstance(value, tuple) else value


@cache
def _end_reader() -> TypeAdapter[End]:
    return TypeAdapter(End)


def read_bare_end(value: object) -> object:
    """Convert an end alone to the fields that it sets, and a mode to its field."""
    fields = end_chat_fields(value)
    if fields is value or not isinstance(fields, dict) or "when" not in fields:
        return fields
    try:
        end = _end_reader().validate_python(fields["when"])
    except (ValidationError, TypeError):
        # The field's own validation reports this error with its path.
        return fields
    # With an end condition alone, the number of messages is the only cap.
    return {"when": end} | ({"max_iterations": None} if message_caps(end) else {})


class EndChat(Spec):
    """The end conditions of a conversation.

    A plain string sets ``mode``; an end condition alone sets ``when``.
    """

    mode: Accepts[EndChatMode, EndChatMode | str] = default(EndChatMode.MAX_ITERATIONS_ONLY)
    """The effect of completed tasks."""
    max_iterations: Accepts[Cap | None, int | Literal["none"] | None] = default(5)
    """Maximum number of rounds; in one round every speaker speaks once. None means no cap, and is
    allowed only with a `MaxMessages` that alone can end the conversation, or if every round needs a
    person (or an automatic reply for a person, which has its own cap). If ``end_chat`` is an end
    condition alone and contains such a `MaxMessages`, this field is None. TOML has no null; write
    ``"none"`` there."""
    min_iterations: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 0
    """Minimum number of complete rounds before a verdict, a done token, a tool call, a predicate or
    a guard ends the conversation. If one of them is met earlier, the conversation ends after these
    rounds. Budgets, errors, people and stop requests do not wait."""
    allow_unanswered_end: bool = False
    """Whether a model's done token, or a separate judge, may end the conversation before another
    speaker has spoken. If False, the model is asked for its message once more; if it says the token
    again, the conversation ends with a warning. A separate judge is asked later. This field has no
    effect if ``min_iterations`` is set."""
    when: Accepts[End | None, AnyEnd | None] = default(None)
    """Other end conditions, which apply in every mode. A list is met if any item is met."""
    guards: Accepts[Guards, Guards | Fields] = default(Guards())
    """Limits against a conversation that makes no progress."""
    on_guard: Literal["end", "ask"] = "end"
    """The effect of a guard. ``end`` ends the conversation. ``ask`` shows the reason to the person,
    who is asked next; the person's message resets the guard's count. ``ask`` needs two speakers,
    one of whom is always a person."""

    announce_last_words: bool = True
    """Whether the prompt for a speaker's last message says that the message is the last one. Only
    modes that grant such a message, and done tokens with ``answered``, make such prompts."""
    tell_rounds_left: bool = False
    """Whether each prompt in the rounds ends with the number of rounds left before the cap."""

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, value: object) -> object:
        return read_bare_end(value)

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _none_in_toml(cls, given: object) -> object:
        return None if given == NO_CAP else given

    @property
    def is_capped(self) -> bool:
        """Return whether a number of rounds or messages alone can end the conversation."""
        return self.max_iterations is not None or bool(message_caps(self.when))

    @property
    def most_rounds(self) -> int:
        """Return the maximum number of rounds: the cap, or `MOST` if there is none."""
        return self.max_iterations or MOST

    def rounds_left(self, complete: int) -> int | None:
        """Return the number of rounds left after the complete ones, or None if there is no cap."""
        return None if self.max_iterations is None else self.max_iterations - complete

    def for_toml(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in a form that TOML can store."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return fields | ({"max_iterations": NO_CAP} if self.max_iterations is None else {})

    @property
    def waits_for_tasks(self) -> bool:
        """Return whether completed tasks end the conversation."""
        return self.mode is not EndChatMode.MAX_ITERATIONS_ONLY

    @property
    def waits_for_another(self) -> bool:
        """Return whether done tokens and separate judges wait for another speaker's message."""
        return not (self.allow_unanswered_end or self.min_iterations)


AnyEndChat: TypeAlias = EndChat | EndChatMode | AnyEnd
"""The types that callers may pass as ``end_chat``: a mode, its fields, or an end condition alone.
"""
