"""The outcome of a conversation: why, when and by whom it ended, its usage, and its output.

The output is the message that the users want: the last message of the speakers that have
``writes_output`` set, or else of the speakers for whom no person writes. A message that only ends
the conversation does not count. Pure functions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

from langchain_core.messages import AnyMessage, BaseMessage
from pydantic import Field, NonNegativeInt

from ..common.data import Data
from ..common.display import Panel, Shown, ShownList
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, Verdict
from ..conversation.usage import Usage, add_usage
from ..ends.end import Tallies
from ..ends.end_chat import Reason
from ..log.heard_text import heard_text, unanswered_token
from ..log.messages import M, messages_since_end, metadata, place_of, speeches
from ..log.metadata import (
    MessageMetadata,
    ModelOutput,
    PendingAnswer,
    Reflection,
    Source,
    SpeakerChoice,
    Speech,
    Stage,
    Summary,
    ToolResult,
    UnheardReply,
    is_by_person,
    verdict_of,
)
from ..speakers.formats import SchemaFormat
from ..text.done_words import without
from .met_ends import ENDS, describe_end, met_ends
from .turns import Dialogue


class Outcome(Shown, Data):
    """Why, when and by whom a conversation ended, and its usage.

    ``str(outcome)`` is one sentence that explains the end.
    """

    reasons: tuple[Reason, ...] = Field(min_length=1)
    """All reasons that applied when the conversation ended, the strongest first."""
    explanations: tuple[str, ...] = Field(min_length=1)
    """A short explanation of each reason, in the same order."""
    by: str | None = None
    """The name of the speaker whose message, call or completed task ended the conversation. None if
    no speaker ended it.
    """
    message: str | None = None
    """The place of the speakers' last message in the log, such as ``m0004``. None if there is none.
    """
    rounds: NonNegativeInt
    """Number of complete rounds. Last words belong to the round that they complete."""
    messages: NonNegativeInt
    """Number of messages of the speakers, including opening answers and last words."""
    completed: tuple[str, ...] = ()
    """The names of the speakers who completed their tasks, in order of completion."""
    complete: bool | None = None
    """Whether the task was judged complete. None if there is no verdict."""
    seconds: float = Field(default=0, ge=0)
    """Wall time of the conversation's runs, in seconds."""
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts, oldest first."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """Usage by model: calls, tokens and cost."""
    warnings: tuple[str, ...] = ()
    """Facts to know about the run, such as code that ran without a sandbox."""

    @property
    def reason(self) -> Reason:
        """The strongest of the reasons."""
        return self.reasons[0]

    @property
    def total(self) -> Usage:
        """The usage of all models together."""
        return add_usage(self.usage.values())

    def __str__(self) -> str:
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        messages = "1 message" if self.messages == 1 else f"{self.messages} messages"
        final = _describe_final(self.verdicts[-1]) if self.verdicts else ""
        return f"Ended after {rounds} and {messages}: {self.explanations[0]}{final}."

    def used(self) -> tuple[tuple[str, str], ...]:
        """Return the usage as labelled texts. The seconds are left out: they differ in each run."""
        sums = self.total
        cost = (("Cost", f"{sums.cost:.4g}"),) if sums.cost is not None else ()
        tokens = f"{sums.tokens:,}"
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


def _describe_final(verdict: Verdict) -> str:
    """Return a judge's final verdict as a clause, or an empty text if it is not final."""
    if not verdict.final:
        return ""
    met, all_ = sum(of is Finding.MET for of in verdict.findings.values()), len(verdict.findings)
    found = (
        f"found {met} of {all_} criteria met" if verdict.readable else "gave no readable verdict"
    )
    return f"; the judge {found}"


def outcome(
    dialogue: Dialogue, reasons: tuple[Reason, ...], usage: dict[str, Usage], tallies: Tallies
) -> Outcome:
    """Return the outcome of a conversation that has just ended."""
    conversation, position = dialogue.conversation, dialogue.position
    log = messages_since_end(dialogue.log)
    known, said = [*map(metadata, log)], speeches(log)
    last_words = sum(
        isinstance(about, Speech) and about.stage is Stage.LAST_WORDS for about in known
    )
    verdicts = tuple(verdict for verdict in map(verdict_of, known) if verdict is not None)
    met = tuple(end for one in met_ends(dialogue) for end in one.ends)
    at = describe_end(dialogue, met, tallies)
    return Outcome(
        reasons=reasons,
        explanations=tuple(ENDS[reason].explain(at) for reason in reasons),
        by=ENDS[reasons[0]].find_ender(at),
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
            *_warn_of_tool_rounds(conversation, known),
            *_warn_of_artifacts(known),
            *_warn_of_choices(known),
            *_warn_of_stops(known),
            *_warn_of_token(conversation, reasons, dialogue.log),
        ),
    )


def _warn_of_tool_rounds(
    conversation: Conversation, known: Sequence[MessageMetadata]
) -> Iterator[str]:
    """Yield a warning for each speaker that used all tool rounds of a turn."""
    most = conversation.max_tool_rounds
    reached = Counter(
        about.speaker
        for about in known
        if isinstance(about, ToolResult) and about.tool_round == most
    )
    for speaker, turns in reached.items():
        times = "" if turns == 1 else f" in {turns} turns"
        yield (
            f"{speaker} reached max_tool_rounds ({most}){times} and had to answer without tools; "
            "raise this limit if its work is not done"
        )


def _warn_of_artifacts(known: Sequence[MessageMetadata]) -> Iterator[str]:
    """Yield each reason why an artifact was not stored once."""
    results = (about for about in known if isinstance(about, ToolResult))
    yield from dict.fromkeys(one.artifact_problem for one in results if one.artifact_problem)


def _warn_of_choices(known: Sequence[MessageMetadata]) -> Iterator[str]:
    """Yield a warning if the order decided who spoke next, since a choice could not be read."""
    choices = (about for about in known if isinstance(about, SpeakerChoice))
    times = sum(one.problem is not None and one.to is not None for one in choices)
    if times:
        yield (
            f"{times} of the moderator's choices could not be read, so the next speaker in order "
            "spoke; choose another model for the turn_order"
        )


def describe_stop(about: ModelOutput) -> str:
    """Return one line about a model that stopped before its message was complete."""
    whose = about.speaker
    match about:
        case Reflection():
            what = f"the verdict of {whose or 'the judge'}"
        case SpeakerChoice():
            what = "the choice of the next speaker"
        case Summary():
            what = f"the summary for {whose}"
        case _:
            what = whose or "the task specification"
    return f"{what}: {about.stop.clause}" if about.stop else what


def _warn_of_stops(known: Sequence[MessageMetadata]) -> Iterator[str]:
    """Yield a warning for each notable way in which models stopped early."""
    found = Counter(
        describe_stop(about)
        for about in known
        if isinstance(about, ModelOutput)
        and about.stop is not None
        and about.stop.is_notable
        and not isinstance(about, UnheardReply | PendingAnswer)
    )
    for text, times in found.items():
        yield f"{text[:1].upper()}{text[1:]}" + ("" if times == 1 else f" ({times} times)")


def _warn_of_token(
    conversation: Conversation, reasons: tuple[Reason, ...], log: Sequence[BaseMessage]
) -> Iterator[str]:
    """Yield a warning if an agent's done token ended the conversation too early.

    That is the case if no other speaker had spoken before the token.
    """
    if Reason.DONE_TOKEN not in reasons:
        return
    newest = speeches(log)[-1]
    about = metadata(newest)
    if about.speaker is None or is_by_person(about):
        return
    token = unanswered_token(conversation, about.speaker, newest.text, log)
    if token is not None:
        yield f"{about.speaker} said {token} before another speaker had spoken"


def _is_complete(reasons: tuple[Reason, ...], verdicts: tuple[Verdict, ...]) -> bool | None:
    if Reason.COMPLETED in reasons:
        return True
    return verdicts[-1].final and verdicts[-1].complete if verdicts else None


class OutcomeStepKind(StrEnum):
    """The kind of an `OutcomeStep`."""

    VERDICT = "verdict"  # the answer of a judge
    REJECTED = "rejected"  # a reply that broke a rule, so that another one was requested
    CUT_OFF = "cut_off"  # a message that was cut off at the token limit
    STOPPED = "stopped"  # a message that its provider stopped, or that its model refused
    COUNTED = "counted"  # a message that a guard counted
    SAID = "said"  # a done token or a termination message
    ANSWERED = "answered"  # the answer that a done token waited for
    CALLED = "called"  # a call of a tool that ends the conversation
    DECIDED = "decided"  # the decision of a person about a tool call
    CHOICE = "choice"  # a choice of the next speaker that could not be read
    INNER = "inner"  # an inner conversation that led to a message
    THOUGHT = "thought"  # the thoughts of a model
    REASON = "reason"  # a reason that applied at the end


class OutcomeStep(Data):
    """A step that led to the end of a conversation."""

    kind: OutcomeStepKind
    """The kind of the step."""
    message: str | None = None
    """The place of the step's message in the log. None for a reason that applied at the end."""
    speaker: str | None = None
    """The name of the speaker that the step is about. None if the step is about no speaker."""
    text: str
    """A short description."""
    reason: Reason | None = None
    """The reason that the step contributed to. None if there is no single reason."""
    count: NonNegativeInt | None = None
    """The count of the guard after the message. None if no guard counted it."""
    limit: NonNegativeInt | None = None
    """The count at which the guard ends the conversation. None if no guard counted the message."""
    verdict: Verdict | None = None
    """The judge's verdict. None for steps of other kinds."""

    def __str__(self) -> str:
        return self.text if self.message is None else f"{self.message} {self.text}"


class OutcomeSteps(ShownList[OutcomeStep]):
    """The steps that led to an end, oldest first. A notebook shows them as a table."""

    def _panel(self) -> Panel:
        rows = ((one.message or "", one.kind.value.replace("_", " "), one.text) for one in self)
        return Panel(head=("Message", "Kind", "Description"), rows=tuple(rows))


_WITH_VALUES: Final = (Source.AGENT, Source.CONVERSATION)
"""Sources whose replies may come with values."""


def find_output(conversation: Conversation, log: Sequence[M]) -> M | None:
    """Return the message that is the output since the last earlier end, or None.

    A message that all speakers hear takes precedence over later private ones.
    """
    chosen = tuple(one.name for one in conversation.speakers if one.writes_output)
    agents = tuple(one.name for one in conversation.speakers if one.human is None)
    found, writers = None, chosen or agents or conversation.names
    for message in reversed(messages_since_end(log)):
        about = metadata(message)
        if not isinstance(about, Speech) or about.stage is Stage.PRIVATE:
            continue
        if about.speaker in writers and output_text(conversation, message).strip():
            if about.audience is None:
                return message
            found = found or message
    return found


def output_text(conversation: Conversation, message: BaseMessage) -> str:
    """Return the text of a message without the words that end the conversation."""
    about = metadata(message)
    text = heard_text(conversation, message, about)
    for speaker in conversation.speakers:
        human = speaker.human
        if human and human.is_termination is None and speaker.name != about.speaker:
            text = without(human.termination, text, "last", about.speaker)
    return text


def output_value(conversation: Conversation, message: BaseMessage) -> Any:  # noqa: ANN401
    """Return a message as output: the values of its schema's fields, or else its text.

    None if the speaker has a schema that the text does not fit.
    """
    about = metadata(message)
    assert isinstance(about, Speech)  # noqa: S101  # `find_output` returns speeches
    wanted = conversation.speaker(about.speaker or "").format
    if isinstance(wanted, SchemaFormat):
        return about.parsed
    if about.source in _WITH_VALUES and about.parsed is not None:
        return about.parsed
    return output_text(conversation, message)


def list_after_output(
    conversation: Conversation, log: Sequence[AnyMessage]
) -> Iterator[AnyMessage]:
    """Yield the spoken messages that follow the output, newest first, but none by a person.

    If there is no output, yield the messages that contain only a word that ends the conversation.
    """
    output = find_output(conversation, log)
    for message in reversed(messages_since_end(log)):
        if message is output:
            return
        about = metadata(message)
        if about.is_spoken and not is_by_person(about):
            is_empty = isinstance(about, Speech) and not output_text(conversation, message).strip()
            if output is not None or is_empty:
                yield message
