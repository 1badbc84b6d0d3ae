"""What ends a conversation, as data: the ends and the reasons they give.

When each of them holds, and its words, are in `graphs.rules.ends`.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeAlias,
    Union,
    cast,
)

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from ..common.data import MOST, Accepts, Cap, Fields, Kinded, Mark, Name, Named, Thing, by_kind
from ..text.done_words import Match, default_match


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


class BaseEnd(Kinded):
    """Base of all ends: ``a | b`` holds when one does, ``a & b`` when both do."""

    def __or__(self, other: "BaseEnd") -> "AnyOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AnyOf(of=(*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: "BaseEnd") -> "AllOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AllOf(of=(*_parts(self, AllOf), *_parts(other, AllOf)))

    def __bool__(self) -> NoReturn:
        """Raise an error: Python reads ``a or b`` as ``a``, and ``b`` would be lost.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{type(self).__name__} is neither true nor false; use '|' instead of 'or', "
            "'&' instead of 'and', and 'is None' instead of 'not'"
        )


class DoneToken(BaseEnd):
    """A word that ends the conversation when a speaker says it (CAMEL's done token).

    In code, a question, a thought, or a quotation that a sentence talks about it is not said.
    Others hear the message without it. Tokens joined by ``&`` may be said at different times.
    """

    kind: Literal["done_token"] = "done_token"
    """Which end it is."""
    token: Mark = Field(kw_only=False)
    """The word. Its case does not matter if it is the whole message or its whole last line."""
    match: Match | None = None
    """Where it counts. ``alone``: it is the message or its last line, decorated or not, or alone on
    another line. ``last``: it is the message or its last line, or ends a last sentence that does
    not talk about it, as in "Thank you! ###STOP###". ``anywhere``: it counts at any place.
    ``last`` if None and it has a character that is neither letter nor digit, else ``alone``."""
    by: Name | None = None
    """The speaker who may say it. None: any."""
    answered: bool = False
    """Whether it counts only once the next other speaker has replied, after its tool calls. That
    reply is the last message, and it is spoken even past a cap."""

    @property
    def counts(self) -> Match:
        """The effective match mode: ``match``, or the default of the token."""
        return self.match or default_match(self.token)


class Predicate(BaseEnd):
    """A registered function says so, after a turn."""

    kind: Literal["predicate"] = "predicate"
    """Which end it is."""
    name: Named = Field(kw_only=False)
    """The name it is registered by. It is called with the messages said so far, oldest first."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...


class ToolCalled(BaseEnd):
    """A tool was called and has answered without an error."""

    kind: Literal["tool_called"] = "tool_called"
    """Which end it is."""
    tool: Accepts[Named, Thing] = Field(kw_only=False)
    """The tool: its name, or in Python the tool or function itself."""
    by: Name | None = None
    """The speaker whose call counts. None: any speaker that has the tool."""


class NoCodeBlock(BaseEnd):
    """A speaker's message holds no code, where its code is run (Lagent's coder)."""

    kind: Literal["no_code_block"] = "no_code_block"
    """Which end it is."""
    by: Name = Field(kw_only=False)
    """The speaker. The end holds only right after such a message."""


class MaxMessages(BaseEnd):
    """This many messages were said. Promised last words are still spoken."""

    kind: Literal["max_messages"] = "max_messages"
    """Which end it is."""
    limit: Cap = Field(kw_only=False)
    """Messages of the speakers, opening answers included."""


class MaxCalls(BaseEnd):
    """This many model calls were answered; a hard stop."""

    kind: Literal["max_calls"] = "max_calls"
    """Which end it is."""
    limit: Cap = Field(kw_only=False)
    """Model calls, those of the judge and the task specification included."""


class MaxTokens(BaseEnd):
    """This many tokens were used; a hard stop, after the call that reaches it."""

    kind: Literal["max_tokens"] = "max_tokens"
    """Which end it is."""
    limit: PositiveInt = Field(le=MOST * MOST, kw_only=False)
    """Tokens of prompts and answers together."""


class MaxCost(BaseEnd):
    """This much money was spent, by price table; a hard stop, after the call that reaches it."""

    kind: Literal["max_cost"] = "max_cost"
    """Which end it is."""
    limit: PositiveFloat = Field(allow_inf_nan=False, kw_only=False)
    """In the currency of the conversation's ``prices``. Where it has none: US dollars, by the table
    of the package genai-prices."""


class MaxSeconds(BaseEnd):
    """The conversation ran this long; a hard stop, after the step that reaches it."""

    kind: Literal["max_seconds"] = "max_seconds"
    """Which end it is."""
    limit: PositiveFloat = Field(allow_inf_nan=False, kw_only=False)
    """Seconds of wall time spent running. The time between a kill and the resume, and the time that
    a person takes, do not count."""


class StopRequested(BaseEnd):
    """Somebody outside asked it to stop; a hard stop, after the current turn.

    It always works. Where a conversation's ends name it, it counts only as they say.
    """

    kind: Literal["stop_requested"] = "stop_requested"
    """Which end it is."""


def _written(given: object) -> object:
    """A list, as files have it, means any of its ends; a kind alone needs no table."""
    if isinstance(given, list | tuple):
        return given[0] if len(given) == 1 else {"kind": "any", "of": given}
    return by_kind(given)


class AnyOf(BaseEnd):
    """One of several ends; in Python ``a | b``, in a file a list of them."""

    kind: Literal["any"] = "any"
    """Which end it is."""
    of: Accepts[tuple["End", ...], Sequence["End | str | Fields"]] = Field(
        min_length=1, kw_only=False
    )
    """The ends."""


class AllOf(BaseEnd):
    """Several ends at once; in Python ``a & b``.

    What was said or called earlier still counts; a predicate must hold at that moment.
    """

    kind: Literal["all"] = "all"
    """Which end it is."""
    of: Accepts[tuple["End", ...], Sequence["End | str | Fields"]] = Field(
        min_length=1, kw_only=False
    )
    """The ends."""


Leaf: TypeAlias = (
    DoneToken
    | Predicate
    | ToolCalled
    | NoCodeBlock
    | MaxMessages
    | MaxCalls
    | MaxTokens
    | MaxCost
    | MaxSeconds
    | StopRequested
)
"""An end that is not made of others."""

End: TypeAlias = Annotated[
    Union[Leaf, AnyOf, AllOf],  # noqa: UP007
    Field(discriminator="kind"),
    BeforeValidator(_written),
]
"""Any end."""

AnyEnd: TypeAlias = End | str | Fields | Sequence[End | str | Fields]
"""What may be given where an end stands, by type."""

AnyOf.model_rebuild()
AllOf.model_rebuild()


def _parts(end: BaseEnd, whole: type[AnyOf] | type[AllOf]) -> tuple[End, ...]:
    # The base has no other subclasses than the union.
    return end.of if isinstance(end, whole) else (cast("End", end),)


def leaves(end: End | None, path: str = "") -> Sequence[tuple[str, Leaf]]:
    """Return the ends that an end is made of, each with its path in the spec."""
    if not isinstance(end, AnyOf | AllOf):
        return () if end is None else ((path, end),)
    parts = enumerate(end.of)
    return [leaf for place, part in parts for leaf in leaves(part, f"{path}.of.{place}")]


def ends_by_money(end: End | None) -> bool:
    """Whether money spent is among the ends."""
    return any(isinstance(leaf, MaxCost) for _, leaf in leaves(end))


def lone(end: End | None) -> Iterator[Leaf]:
    """Give the ends that are enough by themselves: those not joined to another by ``&``."""
    if isinstance(end, AnyOf):
        for part in end.of:
            yield from lone(part)
    elif end is not None and not isinstance(end, AllOf):
        yield end
