"""The outcome: why, when and by whom a conversation ended, and what it used."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage
from pydantic import Field, NonNegativeInt

from ..common.data import Data
from ..log.messages import line, speeches
from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, EndingTool, Leaf, MaxCost, Predicate
from ..spec.judges import SeparateJudge, Verdict
from ..spec.usage import Usage, total
from .position import Position
from .reasons import Reason, doers, holding


class Outcome(Data):
    """Why, when and by whom a conversation ended, and what it used."""

    reasons: tuple[Reason, ...] = Field(min_length=1)
    """Every reason that held at that moment; the first is *the* reason."""
    because: tuple[str, ...] = ()
    """For each reason, what held, in a few words."""
    by: str | None = None
    """The speaker whose words, calls or completed task ended it. None: nobody's did."""
    message: str | None = None
    """The id of the last message that was said."""
    rounds: NonNegativeInt
    """Complete rounds."""
    messages: NonNegativeInt
    """Messages said by the speakers, opening answers and last words included."""
    completed: tuple[str, ...] = ()
    """Who completed its task, in the order it happened."""
    seconds: float = Field(default=0, ge=0)
    """Seconds of wall time in which it ran."""
    verdicts: tuple[Verdict, ...] = ()
    """What was judged, oldest first."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """What was used, by model."""
    warnings: tuple[str, ...] = ()
    """What should be known of how it ran, such as code without a sandbox."""

    @property
    def reason(self) -> Reason:
        """The reason: the first of those that held."""
        return self.reasons[0]

    @property
    def total(self) -> Usage:
        """What all models used together."""
        return total(self.usage.values())

    def sentence(self) -> str:
        """Say in one line why it ended."""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        messages = "1 message" if self.messages == 1 else f"{self.messages} messages"
        why = self.because[0] if self.because else self._why()
        return f"Ended after {rounds} and {messages}: {why}."

    def _why(self) -> str:
        """Say why in the words of an older release, which did not store them."""
        match self.reason:
            case Reason.DONE_TOKEN if self.by:
                return f"{self.by} said the done token"
            case Reason.COMPLETED if self.completed:
                return _have_completed(self.completed)
            case Reason.ROLE_FLIPS if self.by:
                return f"{self.by} kept speaking another's part"
            case Reason.MAX_ITERATIONS:
                return "the round cap was reached"
            case _:
                return self.reason.value.replace("_", " ")


def outcome(
    conversation: Conversation,
    position: Position,
    reasons: tuple[Reason, ...],
    log: Sequence[BaseMessage],
    usage: dict[str, Usage],
) -> Outcome:
    """Make the outcome of a conversation that has just ended."""
    said = speeches(log)
    verdicts = (line(message).verdict for message in log)
    held = [end for one in holding(conversation, position) for end in one.ends]
    words = _Words(conversation, position, held)
    return Outcome(
        reasons=reasons,
        because=tuple(words.because(reason) for reason in reasons),
        by=words.by(reasons[0]),
        message=said[-1].id if said else None,
        rounds=position.rounds(conversation),
        messages=len(said),
        completed=position.completed,
        seconds=position.facts.seconds,
        verdicts=tuple(verdict for verdict in verdicts if verdict is not None),
        usage=usage,
        warnings=conversation.sandbox.warnings,
    )


_BY_THE_LATEST = (
    Reason.BLANK_REPLIES,
    Reason.SAME_REPLIES,
    Reason.FAREWELLS,
    Reason.SAME_TOOL_CALLS,
    Reason.UNREADABLE_VERDICTS,
    Reason.CALL_ERRORS,
    Reason.TOOL_ERRORS,
    Reason.NO_CODE,
)


_BECAUSE = {
    Reason.STOP_REQUESTED: "it was asked to stop",
    Reason.QUIT: "{left}",
    Reason.MAX_COST: "the money is spent ({facts.cost:.6g} of {most_cost:g})",
    Reason.MAX_TOKENS: "the token cap was reached ({facts.tokens} tokens)",
    Reason.MAX_SECONDS: "the time is over ({facts.seconds:.1f} s)",
    Reason.MAX_CALLS: "the cap on model calls was reached ({facts.calls} calls)",
    Reason.CALL_ERRORS: "{facts.call_errors} calls of tools by {by} in one turn could not be run",
    Reason.TOOL_ERRORS: "{facts.tool_errors} calls of tools by {by} in one turn failed",
    Reason.DONE_TOKEN: "{said} said the done token",
    Reason.PREDICATE: "the predicate {predicates} says so",
    Reason.ENDING_TOOL: "{called} called the tool {tool}",
    Reason.NO_CODE: "{by} wrote no more code",
    Reason.TERMINATION: "{by} ended it with a termination message",
    Reason.COMPLETED: "{completed}",
    Reason.UNREADABLE_VERDICTS: "{facts.unreadable_verdicts} verdicts in a row could not be read",
    Reason.ROLE_FLIPS: "{by} kept speaking another's part",
    Reason.BLANK_REPLIES: "{facts.blank_replies} replies in a row were blank",
    Reason.SAME_REPLIES: "{by} gave the same reply {facts.same_replies} times",
    Reason.FAREWELLS: "{facts.farewells} messages in a row were nothing but thanks or farewells",
    Reason.SAME_TOOL_CALLS: "{by} called a tool {facts.same_tool_calls} times with equal arguments",
    Reason.MAX_CONSECUTIVE_AUTO_REPLY: "the cap on automatic replies was reached",
    Reason.MAX_MESSAGES: "the message cap was reached",
    Reason.MAX_ITERATIONS: "the round cap was reached",
}


@dataclass(frozen=True)
class _Words:
    """Says why a conversation ended, by nothing but the ends that held."""

    conversation: Conversation
    position: Position
    held: Sequence[Leaf]

    def by(self, reason: Reason) -> str | None:
        """The speaker who ended it."""
        facts = self.position.facts
        if reason is Reason.DONE_TOKEN:
            return self._said()[-1]
        if reason is Reason.ENDING_TOOL:
            return self._called()[-1]
        if reason is Reason.COMPLETED:
            separate = isinstance(self.conversation.judge, SeparateJudge)
            return None if separate else self.position.completed[-1]
        if reason is Reason.QUIT:
            return self.position.left.by if self.position.left else None
        if reason is Reason.TERMINATION:
            return facts.said_by
        if reason is Reason.ROLE_FLIPS:
            return max(facts.role_flips, key=facts.role_flips.__getitem__)
        return self.position.speaker if reason in _BY_THE_LATEST else None

    def because(self, reason: Reason) -> str:
        """What held, in a few words."""
        costs = [end.limit for end in self.held if isinstance(end, MaxCost)]
        tools = [repr(end.tool) for end in self.held if isinstance(end, EndingTool)]
        predicates = [repr(end.name) for end in self.held if isinstance(end, Predicate)]
        return _BECAUSE[reason].format(
            facts=self.position.facts,
            by=self.by(reason),
            most_cost=min(costs, default=0),
            said=_together(self._said()),
            called=_together(self._called()),
            tool=_together(tools),
            predicates=_together(predicates),
            completed=self._completed(),
            left=f"{self.by(Reason.QUIT) or 'a person'} left",
        )

    def _said(self) -> list[str]:
        said = self.position.facts.tokens_said
        ends = [end for end in self.held if isinstance(end, DoneToken)]
        return [name for end in ends for name in doers(end.token, end.by, said)]

    def _called(self) -> list[str]:
        called = self.position.facts.tools_called
        ends = [end for end in self.held if isinstance(end, EndingTool)]
        return [name for end in ends for name in doers(end.tool, end.by, called)]

    def _completed(self) -> str:
        if isinstance(self.conversation.judge, SeparateJudge):
            return "the judge found all criteria met"
        return _have_completed(self.position.completed)


def _have_completed(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} completed {'their tasks' if len(names) > 1 else 'its task'}"


def _together(words: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(words))
