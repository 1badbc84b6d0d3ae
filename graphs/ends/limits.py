"""Ends at a number of messages, model calls, tokens or seconds, or at an amount of money."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from ..common.data import MOST, Cap
from ..speakers.speaker import Speaker
from .end import AtEnd, BaseEnd, Dialogue, Strength, count_of, leaves
from .facts import Facts


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
        count: float = getattr(facts, self.counted)
        return count >= self.limit

    def describe(self) -> str:
        return count_of(self.limit, self.name[0])

    def meter(self, facts: Facts) -> tuple[str, float, float]:
        return self.name[1], getattr(facts, self.counted), self.limit

    def foresee(self, speaker: Speaker, facts: Facts) -> tuple[Facts, bool]:
        return facts.model_copy(update={self.counted: self.limit}), False


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


class MaxCalls(Budget):
    """A hard stop at a number of answered model calls."""

    kind: Literal["max_calls"] = "max_calls"
    """The kind of end."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of model calls, calls of the judge and for the task specification included."""

    report: ClassVar = "The cap on model calls was reached"
    explanation: ClassVar = "the cap on model calls was reached ({facts.calls} calls)"
    counted: ClassVar = "calls"
    name: ClassVar = ("call", "model calls")

    @property
    def most_calls(self) -> int:
        return self.limit


class MaxTokens(Budget):
    """A hard stop at a number of tokens, after the call that reaches this number."""

    kind: Literal["max_tokens"] = "max_tokens"
    """The kind of end."""
    limit: PositiveInt = Field(le=MOST * MOST, kw_only=False)
    """Maximum number of tokens of prompts and answers together."""

    report: ClassVar = "The token cap was reached"
    explanation: ClassVar = "the token cap was reached ({facts.tokens} tokens)"
    counted: ClassVar = "tokens"
    name: ClassVar = ("token", "tokens")


class MaxCost(Budget):
    """A hard stop at an amount of money, after the call that reaches this amount."""

    kind: Literal["max_cost"] = "max_cost"
    """The kind of end."""
    limit: PositiveFloat = Field(allow_inf_nan=False, kw_only=False)
    """Maximum cost, in the currency of the conversation's ``prices``. Without prices, in US
    dollars, by the table of the package genai-prices."""

    report: ClassVar = "The cost cap was reached"
    counted: ClassVar = "cost"
    name: ClassVar = ("cost", "cost")

    def describe(self) -> str:
        return f"a cost of {self.limit:g}"

    def check(self, dialogue: Dialogue, path: str) -> None:
        if dialogue.is_free:
            raise ValueError(
                f"{path}: is never reached, as all prices are 0; remove it or set prices"
            )

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        limit = min(end.limit for end in at.met_of(MaxCost))
        return f"the cost cap was reached ({at.facts.cost:.6g} of {limit:g})"


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
