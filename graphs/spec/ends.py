"""How a conversation ends, as data: the end-chat mode, other ends, and guards.

Whether any of it holds at a moment is in `graphs.rules.reasons`, what follows from that in
`graphs.rules.end_chat`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast

from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from ..common.data import MOST, Cap, Data, Kinded, Mark, Name, by_kind

NO_CAP: Final = "none"
"""How TOML says that there is no cap on rounds."""


class EndChatMode(StrEnum):
    """How completed tasks end a conversation. The round cap applies to every mode (Yacana)."""

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """Rounds until the cap; nobody is asked."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends it at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """Goes on until every speaker that stops the chat has completed its task."""


class _End(Kinded):
    """Base of all ends: ``a | b`` holds when one does, ``a & b`` when both do."""

    def __or__(self, other: "_End") -> "AnyOf":
        if not isinstance(other, _End):
            return NotImplemented
        return AnyOf(of=(*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: "_End") -> "AllOf":
        if not isinstance(other, _End):
            return NotImplemented
        return AllOf(of=(*_parts(self, AllOf), *_parts(other, AllOf)))


class DoneToken(_End):
    """A word that ends the conversation when it is said alone (CAMEL's done token).

    Of several speakers' tokens joined by ``&`` each may be said at another time.
    """

    kind: Literal["done_token"] = "done_token"
    """Which end it is."""
    token: Mark
    """It counts only when it is the message, or stands alone on a line of it."""
    by: Name | None = None
    """The speaker who may say it. None: any."""


class Predicate(_End):
    """A registered function says so, after a turn."""

    kind: Literal["predicate"] = "predicate"
    """Which end it is."""
    name: Name
    """The name it is registered by. It is called with the messages said so far, oldest first."""


class EndingTool(_End):
    """A tool was called and has answered without an error."""

    kind: Literal["ending_tool"] = "ending_tool"
    """Which end it is."""
    tool: Name
    """The tool's name."""
    by: Name | None = None
    """The speaker who may end it so. None: any that has the tool."""


class NoCode(_End):
    """A speaker has written no code, though what it writes is run (Lagent's coder)."""

    kind: Literal["no_code"] = "no_code"
    """Which end it is."""
    by: Name
    """The speaker whose message it is. It holds after that message alone."""


class MaxMessages(_End):
    """So many messages were said. Promised last words are spoken all the same."""

    kind: Literal["max_messages"] = "max_messages"
    """Which end it is."""
    limit: Cap
    """Messages of the speakers, opening answers included."""


class MaxCalls(_End):
    """So many model calls were answered; a hard stop."""

    kind: Literal["max_calls"] = "max_calls"
    """Which end it is."""
    limit: Cap
    """Model calls, those of the judge and the task specification included."""


class MaxTokens(_End):
    """So many tokens were used; a hard stop, after the call that reaches it."""

    kind: Literal["max_tokens"] = "max_tokens"
    """Which end it is."""
    limit: Annotated[PositiveInt, Field(le=MOST * MOST)]
    """Tokens of prompts and answers together."""


class MaxCost(_End):
    """So much money was spent, by the price table; a hard stop, after the call that reaches it."""

    kind: Literal["max_cost"] = "max_cost"
    """Which end it is."""
    limit: Annotated[PositiveFloat, Field(allow_inf_nan=False)]
    """In the currency of the price table."""


class MaxSeconds(_End):
    """So much time was spent running; a hard stop, after the step that reaches it."""

    kind: Literal["max_seconds"] = "max_seconds"
    """Which end it is."""
    limit: Annotated[PositiveFloat, Field(allow_inf_nan=False)]
    """Seconds of wall time in which the conversation ran. What lies between a kill and the resume,
    and the time that a person takes, do not count."""


class StopRequested(_End):
    """Somebody outside asked it to stop; a hard stop, after the current turn.

    Every conversation can be stopped so, unless its ends name this one themselves: then they say
    when it counts.
    """

    kind: Literal["stop_requested"] = "stop_requested"
    """Which end it is."""


def _written(given: Any) -> Any:  # noqa: ANN401
    """A list, as files have it, means any of its ends; a kind alone needs no table."""
    if isinstance(given, list | tuple):
        return given[0] if len(given) == 1 else {"kind": "any", "of": given}
    return by_kind(given)


class AnyOf(_End):
    """One of several ends; in Python ``a | b``, in a file a list of them."""

    kind: Literal["any"] = "any"
    """Which end it is."""
    of: Annotated[tuple["End", ...], Field(min_length=1)]
    """The ends."""


class AllOf(_End):
    """Several ends at once; in Python ``a & b``.

    What was said or called before counts on; a predicate must hold now.
    """

    kind: Literal["all"] = "all"
    """Which end it is."""
    of: Annotated[tuple["End", ...], Field(min_length=1)]
    """The ends."""


Leaf: TypeAlias = (
    DoneToken
    | Predicate
    | EndingTool
    | NoCode
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

AnyOf.model_rebuild()
AllOf.model_rebuild()


def _parts(end: _End, whole: type[AnyOf] | type[AllOf]) -> tuple[End, ...]:
    # The base has no other subclasses than the union.
    return end.of if isinstance(end, whole) else (cast("End", end),)


def leaves(end: End | None, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Give the ends that an end is made of."""
    if isinstance(end, AnyOf | AllOf):
        for place, part in enumerate(end.of):
            yield from leaves(part, f"{path}.of.{place}")
    elif end is not None:
        yield path, end


def lone(end: End | None) -> Iterator[Leaf]:
    """Give the ends that are enough alone, since none is joined to another by ``&``."""
    if isinstance(end, AnyOf):
        for part in end.of:
            yield from lone(part)
    elif end is not None and not isinstance(end, AllOf):
        yield end


Limit = Annotated[int, Field(strict=True, ge=0, le=MOST)]
"""At how many a guard ends the conversation. 0: never."""


class Guards(Data):
    """What ends a conversation that goes wrong, each at a number of its own; 0 switches it off.

    They count what all hear: opening answers are left out.
    """

    blank_replies: Limit = 2
    """Blank replies in a row, by whomever, each after it was asked for again."""
    same_replies: Limit = 3
    """How often one speaker gives the same reply: one that differs in signs only, or in less than a
    twentieth and in no number. Short lines are excepted, and the same answer to another number or
    option, which is a move of a game."""
    farewells: Limit = 4
    """Messages in a row that hold nothing but thanks or farewells."""
    role_flips: Limit = 2
    """How often one speaker speaks another's part, each after it was asked to mend it."""
    same_tool_calls: Limit = 3
    """Calls in a row, within a turn, of one tool with equal arguments."""
    unreadable_verdicts: Limit = 3
    """Verdicts in a row that can't be read."""


class EndChat(Data):
    """How the conversation ends."""

    mode: EndChatMode = EndChatMode.MAX_ITERATIONS_ONLY
    """How completed tasks end it."""
    max_iterations: Cap | None = 5
    """The cap, in rounds; in one round every speaker speaks once. None: no cap, which is possible
    only where every round needs a person, or an automatic reply in a person's place, which has a
    cap of its own. In TOML, which has no null, it is written ``"none"``."""
    when: End | None = None
    """What else ends it, whatever the mode. A list means any of its ends."""
    guards: Guards = Guards()
    """What ends it when it goes wrong."""

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _none_in_toml(cls, given: object) -> object:
        return None if given == NO_CAP else given
