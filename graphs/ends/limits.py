"""Ends at a number of messages, model calls, tokens or seconds, or at an amount of money."""

from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt

from ..common.data import MOST, Cap, Name
from .end import (
    AtEnd,
    BaseEnd,
    ConversationLike,
    Facts,
    Strength,
    check_name,
    count_of,
    leaves,
    listed,
)

_limit_of: Final = attrgetter("limit")


class Limit(BaseEnd):
    """Base of the end conditions that are met when a count in `Facts` reaches their limit."""

    counted: ClassVar[str]
    """The field of `Facts` that contains the count."""
    name: ClassVar[tuple[str, str]]
    """The noun of the unit, and the name of the meter on a page."""

    # Each subclass declares the number's type.
    if TYPE_CHECKING:

        @property
        def limit(self) -> float: ...

    def is_met(self, facts: Facts) -> bool:
        return self.count_in(facts) >= self.limit

    def describe(self) -> str:
        return count_of(self.limit, self.name[0])

    def count_in(self, facts: Facts) -> float:
        """Return the count to which the limit applies."""
        found: float = getattr(facts, self.counted)
        return found

    def meter(self, facts: Facts) -> tuple[str, float, float]:
        return self.name[1], self.count_in(facts), self.limit


class MaxMessages(Limit):
    """An end at a number of messages. Promised last words are still spoken."""

    kind: Literal["max_messages"] = "max_messages"
    """The kind of end."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of messages of the speakers, opening answers included."""

    strength: ClassVar = Strength.CAP
    report: ClassVar = "The message cap was reached"
    explanation: ClassVar = "the message cap was reached"
    allows_final_verdict: ClassVar = True
    counted: ClassVar = "messages"
    name: ClassVar = ("message", "messages")

    @property
    def most_messages(self) -> int:
        return self.limit


class Budget(Limit):
    """Base of the hard stops: limits that end the conversation at once, even within a turn."""

    strength: ClassVar = Strength.HARD
    least: ClassVar[float] = 1e-9
    """The limit if nothing remains. It must be positive, and the first call reaches it."""

    def compute_rest(self, facts: Facts) -> Self:
        """Return the rest of the limit after these facts, as a limit of a whole conversation."""
        return self.model_validate({"limit": max(self.limit - self.count_in(facts), self.least)})


class CallBudget(Budget):
    """Base of the budgets that count the calls of all speakers and judges, or of one speaker.

    The calls of a speaker are those in its turns: for its replies, its tool rounds, its rejected
    tries and the summaries of its history.
    """

    if TYPE_CHECKING:

        @property
        def by(self) -> str | None: ...

    def count_in(self, facts: Facts) -> float:
        if self.by is None:
            return super().count_in(facts)
        counts: dict[str, float] = getattr(facts, f"{self.counted}_by")
        return counts.get(self.by, 0)

    def describe(self) -> str:
        return super().describe() if self.by is None else f"{super().describe()} of {self.by}"

    def check(self, conversation: ConversationLike, path: str) -> None:
        if self.by is None:
            return
        check_name(conversation, f"{path}.by", self.by)
        callers = ("model", "agent", "conversation")
        if not any(reply.kind in callers for reply in conversation.speaker(self.by).replies):
            raise ValueError(
                f"{path}.by: {self.by!r} makes no model calls; name a speaker with a model or an "
                "agent"
            )

    def meter(self, facts: Facts) -> tuple[str, float, float]:
        name = self.name[1] if self.by is None else f"{self.name[1]} of {self.by}"
        return name, self.count_in(facts), self.limit

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        met = at.met_of(cls)
        # A budget of the whole conversation explains more than the budgets of single speakers.
        shown = [min(whole, key=_limit_of)] if (whole := [e for e in met if e.by is None]) else met
        explained = []
        for end in shown:
            whose = "the" if end.by is None else f"{end.by}'s"
            count = end.count_in(at.facts)
            explained.append(cls.explanation.format(whose=whose, count=count, limit=end.limit))
        return listed(explained)


class MaxCalls(CallBudget):
    """A hard stop at a number of answered model calls."""

    kind: Literal["max_calls"] = "max_calls"
    """The kind of end."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of model calls, calls of the judge and for the task specification included."""
    by: Name | None = None
    """The name of the speaker whose own calls count: its replies, tool rounds, rejected tries and
    summaries. If None, all calls count, also those of the judge and for the task specification."""

    report: ClassVar = "The cap on model calls was reached"
    explanation: ClassVar = "{whose} cap on model calls was reached ({count} calls)"
    counted: ClassVar = "calls"
    name: ClassVar = ("call", "model calls")
    least: ClassVar = 1

    @property
    def most_calls(self) -> int | None:
        # The calls of one speaker do not bound those of the others.
        return self.limit if self.by is None else None


class MaxTokens(CallBudget):
    """A hard stop at a number of tokens, after the call that reaches this number."""

    kind: Literal["max_tokens"] = "max_tokens"
    """The kind of end."""
    limit: PositiveInt = Field(le=MOST * MOST, kw_only=False)
    """Maximum number of tokens of prompts and answers together."""
    by: Name | None = None
    """The name of the speaker whose own calls count, as for `MaxCalls`. All calls if None."""

    report: ClassVar = "The token cap was reached"
    explanation: ClassVar = "{whose} token cap was reached ({count} tokens)"
    counted: ClassVar = "tokens"
    name: ClassVar = ("token", "tokens")
    least: ClassVar = 1


class MaxCost(CallBudget):
    """A hard stop at an amount of money, after the call that reaches this amount."""

    kind: Literal["max_cost"] = "max_cost"
    """The kind of end."""
    limit: PositiveFloat = Field(allow_inf_nan=False, kw_only=False)
    """Maximum cost, in the currency of the conversation's ``prices``. Without prices, in US
    dollars, by the table of the package genai-prices."""
    by: Name | None = None
    """The name of the speaker whose own calls count, as for `MaxCalls`. All calls if None."""

    report: ClassVar = "The cost cap was reached"
    explanation: ClassVar = "{whose} cost cap was reached ({count:.6g} of {limit:g})"
    counted: ClassVar = "cost"
    name: ClassVar = ("cost", "cost")

    def describe(self) -> str:
        return f"a cost of {self.limit:g}{'' if self.by is None else f' by {self.by}'}"

    def check(self, conversation: ConversationLike, path: str) -> None:
        super().check(conversation, path)
        if conversation.is_free:
            raise ValueError(
                f"{path}: is never reached, as all prices are 0; remove it or set prices"
            )


class MaxSeconds(Budget):
    """A hard stop at a running time, after the step that reaches this time."""

    kind: Literal["max_seconds"] = "max_seconds"
    """The kind of end."""
    limit: PositiveFloat = Field(allow_inf_nan=False, kw_only=False)
    """Maximum seconds of wall time while the conversation runs. The time between a kill and the
    resume, and the time until a person answers, do not count."""

    report: ClassVar = "The time limit was reached"
    explanation: ClassVar = "the time limit was reached ({facts.seconds:.1f} s)"
    counted: ClassVar = "seconds"
    name: ClassVar = ("second", "seconds")


def ends_by_money(end: BaseEnd | None) -> bool:
    """Return whether one of the end conditions is a `MaxCost`."""
    return any(isinstance(leaf, MaxCost) for _, leaf in leaves(end))
