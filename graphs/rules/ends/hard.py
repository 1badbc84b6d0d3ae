"""Hard stops: they take effect at once and cancel promised last words."""

from collections.abc import Callable
from typing import ClassVar, Final

from langchain_core.messages import BaseMessage

from ...log.metadata import Failure, MessageMetadata, ToolResult
from ...spec.conversation import Conversation
from ...spec.ends import MaxCalls, MaxCost, MaxSeconds, MaxTokens, Reason, StopRequested, leaves
from ..moves import Strength
from ..position import Facts, Position
from .end import AtEnd, EndRule, Guard, Named
from .tally import Tally


class StopWasRequested(Named[StopRequested]):
    """Somebody outside asked it to stop."""

    reason = Reason.STOP_REQUESTED
    strength = Strength.HARD
    because = "it was asked to stop"

    def holds(self, conversation: Conversation, position: Position) -> bool:
        if not position.facts.stop_requested:
            return False
        # If the spec names it, it counts only as the spec says.
        ends = leaves(conversation.end_chat.when)
        return not any(isinstance(end, StopRequested) for _, end in ends)

    def is_met(self, end: StopRequested, facts: Facts) -> bool:
        return facts.stop_requested


class Quit(EndRule):
    """A person left the conversation."""

    reason = Reason.QUIT
    strength = Strength.HARD

    def holds(self, conversation: Conversation, position: Position) -> bool:
        return position.left is not None and position.left.reason == self.reason

    def words(self, at: AtEnd) -> str:
        return f"{self.by(at) or 'a person'} left"

    def by(self, at: AtEnd) -> str | None:
        return at.position.left.by if at.position.left else None


class CostReached(Named[MaxCost]):
    """The money is spent."""

    reason = Reason.MAX_COST
    strength = Strength.HARD

    def is_met(self, end: MaxCost, facts: Facts) -> bool:
        return facts.cost >= end.limit

    def words(self, at: AtEnd) -> str:
        limit = min(end.limit for end in at.those(MaxCost))
        return f"the money is spent ({at.facts.cost:.6g} of {limit:g})"


class TokensReached(Named[MaxTokens]):
    """The tokens are used up."""

    reason = Reason.MAX_TOKENS
    strength = Strength.HARD
    because = "the token cap was reached ({facts.tokens} tokens)"

    def is_met(self, end: MaxTokens, facts: Facts) -> bool:
        return facts.tokens >= end.limit


class SecondsReached(Named[MaxSeconds]):
    """The time is over."""

    reason = Reason.MAX_SECONDS
    strength = Strength.HARD
    because = "the time is over ({facts.seconds:.1f} s)"

    def is_met(self, end: MaxSeconds, facts: Facts) -> bool:
        return facts.seconds >= end.limit


class CallsReached(Named[MaxCalls]):
    """The model calls are used up."""

    reason = Reason.MAX_CALLS
    strength = Strength.HARD
    because = "the cap on model calls was reached ({facts.calls} calls)"

    def is_met(self, end: MaxCalls, facts: Facts) -> bool:
        return facts.calls >= end.limit


class InTurn(Tally):
    """How many results of calls, in one turn, are what a test looks for."""

    count = 0

    def __init__(self, test: Callable[[MessageMetadata], bool]) -> None:
        self._test = test

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if about.ends_turn:
            self.count = 0
        elif isinstance(about, ToolResult):
            self.count += self._test(about)


class _Errors(Guard):
    """Calls of one turn that gave no result."""

    strength = Strength.HARD
    failure: ClassVar[Failure]

    def tally(self, conversation: Conversation) -> InTurn:
        return InTurn(self.counts)

    def limit(self, conversation: Conversation) -> int:
        limit: int = getattr(conversation, f"max_{self.reason}")
        return limit

    def counts(self, about: MessageMetadata) -> bool:
        return isinstance(about, ToolResult) and about.failure is self.failure


class CallErrors(_Errors):
    """Too many calls in one turn named an unknown tool or had arguments that do not fit."""

    reason = Reason.CALL_ERRORS
    failure = Failure.CALL
    because = "{count} calls of tools by {by} in one turn could not be run"
    counted = "a call of a tool that can't be run"


class ToolErrors(_Errors):
    """Too many calls in one turn failed in the tool."""

    reason = Reason.TOOL_ERRORS
    failure = Failure.TOOL
    because = "{count} calls of tools by {by} in one turn failed"
    counted = "a tool that failed"


HARD: Final = (
    StopWasRequested(),
    Quit(),
    CostReached(),
    TokensReached(),
    SecondsReached(),
    CallsReached(),
    CallErrors(),
    ToolErrors(),
)
