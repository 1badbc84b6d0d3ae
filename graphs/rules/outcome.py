"""The outcome: why, when and by whom a conversation ended, and what it used."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from langchain_core.messages import BaseMessage
from pydantic import Field, NonNegativeInt

from ..common.data import Data
from ..common.display import Panel, Shown, ShownList
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, Verdict
from ..conversation.usage import Usage, add_usage
from ..ends.all_ends import Reason
from ..ends.end import Tallies
from ..log.heard_text import unanswered_token
from ..log.messages import metadata, place_of, since_end, speeches
from ..log.metadata import Reflection, Speech, Stage, ToolResult, is_by_person
from .met_ends import ENDS, at_end, met_ends
from .position import Position


class Outcome(Shown, Data):
    """Why, when and by whom a conversation ended, and what it used.

    ``str(outcome)`` says in one sentence why it ended.
    """

    reasons: tuple[Reason, ...] = Field(min_length=1)
    """Every reason that held at that moment; the first is *the* reason."""
    explanations: tuple[str, ...] = Field(min_length=1)
    """For each reason, what held, in a few words."""
    by: str | None = None
    """The speaker whose words, calls or completed task ended it. None: nobody's did."""
    message: str | None = None
    """The place of the last message that was said, such as ``m0004``."""
    rounds: NonNegativeInt
    """Complete rounds. Last words belong to the round that they complete."""
    messages: NonNegativeInt
    """Messages said by the speakers, opening answers and last words included."""
    completed: tuple[str, ...] = ()
    """Who completed their task, in the order it happened."""
    complete: bool | None = None
    """Whether the task was judged complete. None: nobody judged it."""
    seconds: float = Field(default=0, ge=0)
    """Seconds of wall time in which it ran."""
    verdicts: tuple[Verdict, ...] = ()
    """What was judged, oldest first."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """What was used, by model."""
    warnings: tuple[str, ...] = ()
    """What to know about how it ran, such as code without a sandbox."""

    @property
    def reason(self) -> Reason:
        """The reason: the first of those that held."""
        return self.reasons[0]

    @property
    def total(self) -> Usage:
        """What all models used together."""
        return add_usage(self.usage.values())

    def __str__(self) -> str:
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        messages = "1 message" if self.messages == 1 else f"{self.messages} messages"
        final = _finally(self.verdicts[-1]) if self.verdicts else ""
        return f"Ended after {rounds} and {messages}: {self.explanations[0]}{final}."

    def used(self) -> tuple[tuple[str, str], ...]:
        """Say what it used, each with its name; without the seconds, which are others each time."""
        sums = self.total
        cost = (("Cost", f"{sums.cost:.4g}"),) if sums.cost else ()
        tokens = f"{sums.input_tokens + sums.output_tokens:,}"
        return (("Model calls", f"{sums.calls:,}"), ("Tokens", tokens), *cost)

    def _panel(self) -> Panel:
        complete = None if self.complete is None else "yes" if self.complete else "no"
        facts = [
            ("Also", "; ".join(self.explanations[1:])),
            ("Ended by", self.by),
            ("Last message", self.message),
            ("Completed by", ", ".join(self.completed)),
            ("Judged complete", complete),
            *self.used(),
        ]
        after, _, said = str(self).partition(": ")
        return Panel(
            title=said[:1].upper() + said[1:],
            tag=self.reason.value,
            notes=(after, *self.warnings),
            head=("", ""),
            rows=tuple((name, text) for name, text in facts if text),
        )


def _finally(verdict: Verdict) -> str:
    """Say what a separate judge found where a cap had ended it already."""
    if not verdict.final:
        return ""
    met, all_ = sum(of is Finding.MET for of in verdict.findings.values()), len(verdict.findings)
    found = (
        f"found {met} of {all_} criteria met" if verdict.readable else "gave no readable verdict"
    )
    return f"; the judge {found}"


def outcome(
    conversation: Conversation,
    position: Position,
    reasons: tuple[Reason, ...],
    log: Sequence[BaseMessage],
    usage: dict[str, Usage],
    tallies: Tallies,
) -> Outcome:
    """Make the outcome of a conversation that has just ended."""
    whole, log = log, since_end(log)
    said = speeches(log)
    stages = (about.stage for about in map(metadata, said) if isinstance(about, Speech))
    last_words = sum(stage is Stage.LAST_WORDS for stage in stages)
    verdicts = tuple(
        about.verdict
        for about in map(metadata, log)
        if isinstance(about, Reflection) and about.verdict is not None
    )
    met = tuple(end for one in met_ends(conversation, position) for end in one.ends)
    at = at_end(conversation, position, met, tallies)
    return Outcome(
        reasons=reasons,
        explanations=tuple(ENDS[reason].explain(at) for reason in reasons),
        by=ENDS[reasons[0]].ended_by(at),
        message=place_of(said[-1]) if said else None,
        rounds=(position.turns + last_words) // len(conversation.speakers),
        messages=len(said),
        completed=position.completed,
        complete=_is_complete(reasons, verdicts),
        seconds=position.facts.seconds,
        verdicts=verdicts,
        usage=usage,
        warnings=(
            *conversation.sandbox.warnings,
            *_of_tool_rounds(conversation, log),
            *_of_unanswered_token(conversation, reasons, whole),
        ),
    )


def _of_tool_rounds(conversation: Conversation, log: Sequence[BaseMessage]) -> Iterator[str]:
    """Warn of the speakers that had all rounds of tools of a turn, each once."""
    most = conversation.max_tool_rounds
    reached = Counter(
        about.speaker
        for about in map(metadata, log)
        if isinstance(about, ToolResult) and about.tool_round == most
    )
    for speaker, turns in reached.items():
        times = "" if turns == 1 else f" in {turns} turns"
        yield (
            f"{speaker} reached max_tool_rounds ({most}){times} and had to answer without tools; "
            "raise it if the work was not done"
        )


def _of_unanswered_token(
    conversation: Conversation, reasons: tuple[Reason, ...], log: Sequence[BaseMessage]
) -> Iterator[str]:
    """Warn if a done token, by no person, has ended it before anybody else had spoken."""
    if Reason.DONE_TOKEN not in reasons:
        return
    newest = speeches(log)[-1]
    about = metadata(newest)
    if about.speaker is None or is_by_person(about):
        return
    token = unanswered_token(conversation, about.speaker, newest.text, log)
    if token is not None:
        yield f"{about.speaker} said {token} before anybody else had spoken"


def _is_complete(reasons: tuple[Reason, ...], verdicts: tuple[Verdict, ...]) -> bool | None:
    if Reason.COMPLETED in reasons:
        return True
    return verdicts[-1].final and verdicts[-1].complete if verdicts else None


class OutcomeStepKind(StrEnum):
    """What kind of step led to the end."""

    VERDICT = "verdict"  # a judge's answer
    REJECTED = "rejected"  # a reply that broke a rule and was asked for again
    CUT_OFF = "cut_off"  # a message that ended at the longest length of an answer
    COUNTED = "counted"  # a message that a guard counted
    SAID = "said"  # a done token
    ANSWERED = "answered"  # the answer for which a done token has waited
    CALLED = "called"  # a tool that ends it
    DECIDED = "decided"  # what a person decided about a call of a tool
    CHOICE = "choice"  # a choice of the next speaker that could not be read
    THOUGHT = "thought"  # what a model thought, which led to nothing by itself
    REASON = "reason"  # a reason that held at the end


class OutcomeStep(Data):
    """One step towards the end of a conversation."""

    kind: OutcomeStepKind
    """What kind of step it is."""
    message: str | None = None
    """The place of the message that it is about. None: the end itself."""
    speaker: str | None = None
    """Whose message, call, task or turn it is. None: nobody's."""
    text: str
    """What it is, in a few words."""
    reason: Reason | None = None
    """The reason that it is, or may become."""
    count: NonNegativeInt | None = None
    """How many the guard has counted."""
    limit: NonNegativeInt | None = None
    """At how many the guard ends the conversation."""
    verdict: Verdict | None = None
    """The judge's answer."""

    def __str__(self) -> str:
        return self.text if self.message is None else f"{self.message} {self.text}"


class OutcomeSteps(ShownList[OutcomeStep]):
    """What led to an end, oldest first; it shows itself as a table."""

    def _panel(self) -> Panel:
        rows = ((one.message or "", one.kind.value.replace("_", " "), one.text) for one in self)
        return Panel(head=("Message", "Step", "What it is"), rows=tuple(rows))
