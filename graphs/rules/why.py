"""Causes of a conversation's end, and the words that describe messages as its steps.

The causes are the end conditions, and the messages that met them. They are computed from the log;
nothing is stored for them. `Outcome` explains the end in one sentence.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AnyMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..conversation.judges import Verdict
from ..ends.end import AllOf, AnyOf, BaseEnd, CountedMessage, EndStep, Facts, doers, leaves
from ..ends.end_chat import Reason
from ..ends.events import DoneToken, NoCodeBlock, ToolCalled
from ..ends.guards import Guard
from ..ends.limits import MaxMessages
from ..log.messages import metadata, place_of, thought_text
from ..log.metadata import (
    CallOutcome,
    Draft,
    EarlierEnd,
    Failure,
    Flaw,
    InnerSession,
    MemoryReset,
    MessageMetadata,
    ModelOutput,
    Reflection,
    RemovedMessage,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    ToolCalls,
    ToolResult,
    is_public_speech,
    verdict_of,
)
from ..speakers.call_settings import DecisionType
from ..speakers.reply_parts import Stop
from .log_counter import LogCounter
from .met_ends import ENDS
from .outcome import Outcome, OutcomeStep, OutcomeStepKind, OutcomeSteps, describe_stop


def name_author(about: MessageMetadata) -> str:
    """Return the author of a message: a speaker, the task, or the conversation itself."""
    return about.speaker or ("The task" if isinstance(about, Draft) else "The conversation")


def describe_note(about: MessageMetadata) -> str | None:
    """Return one line about an entry that is not a message of a speaker; None if there is none."""
    match about:
        case Reflection(verdict=Verdict() as verdict):
            return describe_verdict(verdict, separate=about.speaker is None)
        case SpeakerChoice():
            return describe_choice(about.to, readable=about.problem is None)
        case SpecifiedTask(problem=str(problem)):
            return describe_kept_task(problem)
        case InnerSession():
            return describe_inner(about)
        case MemoryReset():
            return f"The memory of {about.speaker} was reset"
        case EarlierEnd():
            return describe_reopening(Outcome.model_validate(about.outcome))
        case RemovedMessage():
            whose = about.was and about.was.speaker
            return f"A message of {whose} was removed" if whose else "A message was removed"
    return None


def list_remarks(about: MessageMetadata) -> tuple[str, ...]:
    """Return the remarks that people need besides the message's text."""
    found: list[str] = []
    if isinstance(about, Draft | Reflection) and about.problem is not None:
        stop = about.stop if isinstance(about, Draft) else None
        found.append(f"{describe_retry(stop)}: {about.problem}")
    if isinstance(about, Speech) and about.audience is not None:
        found.append(describe_audience(about.confidants))
    if (stop := shown_stop(about)) is not None:
        found.append(str(stop))
    return tuple(found)


def describe_audience(names: Sequence[str]) -> str:
    """Return the remark that only these speakers hear a message."""
    return f"Heard only by {' and '.join(names)}" if names else "Heard by no other speaker"


def describe_retry(stop: Stop | None) -> str:
    """Return the remark that another reply was requested instead of a draft."""
    return f"{stop or 'Rejected'} and asked again"


def shown_stop(about: MessageMetadata) -> Stop | None:
    """Return the stop of a message that people see, or None. A draft's remark contains its own."""
    is_hidden = isinstance(about, SpeakerReply) and not about.is_spoken
    return about.stop if isinstance(about, ModelOutput) and not is_hidden else None


def describe_kept_task(problem: str) -> str:
    """Return the remark that the task was not rewritten because no rewrite was usable."""
    return f"The original task was kept, because two rewrites were rejected: {problem}"


def describe_choice(name: str | None, *, readable: bool) -> str:
    """Return one line about the choice of the next speaker; None is chosen by another request."""
    if readable:
        return f"{name} speaks next"
    then = "requested again" if name is None else f"{name} is next"
    return f"The choice of the next speaker was unreadable: {then}"


def describe_reopening(outcome: Outcome) -> str:
    """Return one line about the end of the conversation before it continued."""
    return f"{outcome} Then it continued"


def describe_result(name: str, about: CallOutcome, *, failed: bool) -> str:
    """Return one line about the result of a tool call, or about the person who answered it."""
    if about.decision == "respond":
        return f"A person answered for {name}"
    if about.failure is Failure.PERSON:
        return f"{name} was not run"
    return f"{name} failed" if failed else f"Result of {name}"


def describe_inner(about: InnerSession) -> str:
    """Return one line about an inner session: how many messages it has, and how it ended."""
    return f"Inner conversation of {about.speaker}, {about.summary}"


def describe_verdict(verdict: Verdict, *, separate: bool) -> str:
    """Return one line about a verdict."""
    whose = f"The judge, after {verdict.speaker}" if separate else f"{verdict.speaker} on its task"
    if not verdict.readable:
        return f"{whose}: unreadable verdict, which counts as not complete"
    if verdict.findings:
        return f"{whose}: {describe_findings(verdict)}"
    if verdict.complete:
        return f"{whose}: complete"
    left = "; ".join(verdict.objectives_left)
    return f"{whose}: not complete" + (f": {left}" if left else "")


def describe_findings(verdict: Verdict) -> str:
    """Return a separate judge's decision on each criterion. Empty if it could not be read."""
    return "; ".join(
        f"{text.rstrip(' .')} ({verdict.describe_finding(text)})" for text in verdict.findings
    )


def explain_end(
    conversation: Conversation, messages: Sequence[AnyMessage], outcome: Outcome | None
) -> list[OutcomeStep]:
    """Return the causes of a conversation's end, oldest first, and then its reasons.

    If the conversation has not ended, return the steps so far that count towards an end.
    """
    causes = OutcomeSteps(_read(conversation, messages).causes(outcome))
    if outcome is not None:
        causes += _reasons(outcome)
    return causes


def steps_of(conversation: Conversation, messages: Sequence[AnyMessage]) -> list[OutcomeStep]:
    """Return all steps of a log that people may want to look at, whether they caused an end or not.

    These are verdicts, rejected replies, counts, thoughts and the like, oldest first.
    """
    return _read(conversation, messages).steps


def _read(conversation: Conversation, log: Sequence[BaseMessage]) -> "_Trail":
    trail = _Trail(conversation)
    for message in log:
        trail.add(message)
    return trail


_RETRIED: Final = {
    Flaw.BLANK: Reason.BLANK_REPLIES,
    Flaw.ROLE_FLIP: Reason.ROLE_FLIPS,
    Flaw.REPEATED: Reason.SAME_REPLIES,
    Flaw.ECHO: Reason.ECHO,
    Flaw.SAME_CALLS: Reason.SAME_TOOL_CALLS,
}
"""The guards that count a flawed reply only if the retry has the same flaw. The rejected first
reply is a cause, too.
"""

_BY_SPEAKER: Final = (Reason.ROLE_FLIPS, Reason.SAME_REPLIES, Reason.ECHO)
"""The guards with a count for each speaker, over several turns."""

_OVER_ROUNDS: Final = (Reason.SAME_REPLIES, Reason.STANDSTILL)
"""The guards that count from the last message that said something new. Several messages may have
the same count.
"""

_FROM_LOG: Final = (DoneToken, ToolCalled, NoCodeBlock, MaxMessages)
"""The end conditions that the log alone can show to be met."""


class _Trail:
    """A log's steps, with the causes of the end."""

    def __init__(self, conversation: Conversation) -> None:
        self.steps: list[OutcomeStep] = []
        self._conversation = conversation
        self._counter = LogCounter(conversation)
        self._begin()

    def _begin(self) -> None:
        """Reset the causes, as after an earlier end."""
        self._before = self._counter.facts()
        # All causes are indices of `steps`.
        self._stopped: list[int] = []
        """The steps of messages whose models stopped early, whether they caused the end or not."""
        self._counted: dict[tuple[Reason, str | None], list[int]] = {}
        """The steps that each guard has counted since its last reset; by speaker for some guards.
        """
        self._acts: list[tuple[int, Reason, tuple[str, str]]] = []
        """The steps with done tokens or calls of ending tools, each with its token or tool, and the
        speaker of that.
        """
        self._newest: dict[Reason, int] = {}
        """The step of the newest message for each end condition that depends on this message alone.
        """
        self._complete: list[int] = []
        """The verdicts that a task is complete."""
        self._retries: list[tuple[int, Reason]] = []
        """The rejected replies since the last message, each with the guard that counts the retry if
        it has the same flaw.
        """
        self._inner: list[int] = []
        """The inner sessions that led to the next message."""
        self._fallbacks: list[int] = []
        """The choices of the next speaker in place of which the order decided."""
        self._context: dict[int, list[int]] = {}
        """For each cause, the other steps that belong to it."""

    def add(self, message: BaseMessage) -> None:
        """Read the next message of the log."""
        about = metadata(message)
        context: list[int] = []
        for step in _remarks(message, about):
            context.append(len(self.steps))
            self.steps.append(step)
        if isinstance(about, ModelOutput) and about.stop is not None and about.stop.is_notable:
            self._stopped += context
        self._counter.add(message)
        if isinstance(about, EarlierEnd):
            for reason in _reasons(Outcome.model_validate(about.outcome)):
                self.steps.append(reason.model_copy(update={"message": place_of(message)}))
            self._begin()
        elif isinstance(about, Draft) and about.flaw in _RETRIED:
            self._retries.append((context[-1], _RETRIED[about.flaw]))
        elif isinstance(about, InnerSession):
            self._inner += context
        elif isinstance(about, Reflection) and about.verdict is None and about.problem is not None:
            self._retries.append((context[-1], Reason.UNREADABLE_VERDICTS))
        elif isinstance(about, SpeakerChoice) and about.to is not None:
            self._fallbacks += context
        elif (
            is_public_speech(about)
            or isinstance(about, ToolCalls | ToolResult)
            or verdict_of(about) is not None
        ):
            self._count(message, about, [*self._inner, *context])
            self._inner = []

    def _count(self, message: BaseMessage, about: MessageMetadata, context: list[int]) -> None:
        """Add the steps by which a message meets ends, or comes closer to them."""
        before, facts = self._before, self._counter.facts()
        counted = CountedMessage(
            message, about, self._conversation, before, facts, self._counter.tallies
        )
        if is_public_speech(about):
            self._newest = {}
        for reason, end in ENDS.items():
            places = []
            for one in end.steps(counted):
                place = len(self.steps)
                places.append(place)
                self.steps.append(_step(message, reason, one))
                retries = [of for of, retried in self._retries if retried is reason]
                self._context[place] = [*retries, *context]
                if one.act is not None:
                    self._acts.append((place, reason, one.act))
                elif not issubclass(end, Guard):
                    self._newest[reason] = place
            if issubclass(end, Guard):
                self._add_to_count(reason, end, counted, places)
        if (verdict := verdict_of(about)) is not None and verdict.complete:
            self._complete.append(context[-1])
            self._context[context[-1]] = context
        self._retries, self._before = [], facts

    def _add_to_count(
        self, reason: Reason, guard: type[Guard], counted: CountedMessage, places: list[int]
    ) -> None:
        """Add a message to the steps that a guard has counted, or clear them after a reset."""
        count = counted.facts.count(reason)
        key = reason, counted.about.speaker if reason in _BY_SPEAKER else None
        if not places:
            by_speaker = reason in _BY_SPEAKER
            if guard.may_count(counted.about) if by_speaker else count < guard.first_shown:
                self._counted.pop(key, None)
            return
        known = self._counted.pop(key, [])
        if reason not in _OVER_ROUNDS:
            if reason not in _BY_SPEAKER and count <= counted.before.count(reason):
                # It neither adds to the count nor resets it, as a fixed text may.
                self._counted[key] = known
                return
            # Larger counts are from before a reset.
            known = [place for place in known if (self.steps[place].count or 0) < count]
        # The guard that has counted last comes last.
        self._counted[key] = known + places

    def causes(self, outcome: Outcome | None) -> list[OutcomeStep]:
        """Return the steps that caused an end, oldest first.

        If `outcome` is None, return the steps that may lead to an end.
        """
        reasons = list(Reason) if outcome is None else outcome.reasons
        causes = [place for reason, place in self._newest.items() if reason in reasons]
        causes += self._stopped
        when = self._conversation.end_chat.when
        ends = [end for _, end in leaves(when)]
        if when is not None and outcome is not None:
            ends = _find_met(when, self._counter.facts(), outcome.reasons)
        causes += [
            place
            for place, reason, act in self._acts
            if any(end.kind == reason and _is_met_by(end, act) for end in ends)
        ]
        if Reason.COMPLETED in reasons:
            causes += self._complete
        for reason in reasons:
            rows = [row for (of, _), row in self._counted.items() if of is reason]
            # At an end, only the speaker who was counted last has caused it.
            causes += [place for row in (rows if outcome is None else rows[-1:]) for place in row]
        causes += self._fallbacks
        found = {*causes, *(one for place in causes for one in self._context.get(place, ()))}
        return [self.steps[place] for place in sorted(found)]


def _find_met(end: BaseEnd, facts: Facts, reasons: Container[str]) -> list[BaseEnd]:
    """Return the parts of this end condition that were met, for these reasons."""
    if isinstance(end, AnyOf):
        return [leaf for part in end.of for leaf in _find_met(part, facts, reasons)]
    if isinstance(end, AllOf):
        parts = [_find_met(part, facts, reasons) for part in end.of]
        return [leaf for part in parts for leaf in part] if all(parts) else []
    is_met = end.kind in reasons and (not isinstance(end, _FROM_LOG) or end.is_met(facts))
    return [end] if is_met else []


def _is_met_by(end: BaseEnd, act: tuple[str, str]) -> bool:
    """Return whether a token or tool, with its speaker, meets an end."""
    if isinstance(end, DoneToken):
        return bool(doers(end.token, end.by, [act]))
    return isinstance(end, ToolCalled) and bool(doers(end.tool, end.by, [act]))


def _step(message: BaseMessage, reason: Reason, one: EndStep) -> OutcomeStep:
    return OutcomeStep(
        kind=OutcomeStepKind(one.kind),
        message=place_of(message),
        speaker=one.speaker,
        text=f"{one.speaker}: {one.text}",
        reason=reason,
        count=one.reached,
        limit=one.limit,
    )


def _remarks(message: BaseMessage, about: MessageMetadata) -> Iterator[OutcomeStep]:
    """Yield the steps that a message shows on its own. A verdict comes last."""
    found: dict[str, Any] = {"message": place_of(message), "speaker": about.speaker}
    if thought := thought_text(about):
        text = f"{about.speaker or 'A model'} thought: {thought}"
        yield OutcomeStep(kind=OutcomeStepKind.THOUGHT, text=text, **found)
    if (stop := shown_stop(about)) is not None and isinstance(about, ModelOutput):
        kind = OutcomeStepKind.STOPPED if stop.is_notable else OutcomeStepKind.CUT_OFF
        yield OutcomeStep(kind=kind, text=describe_stop(about), **found)
    if (verdict := verdict_of(about)) is not None:
        text = describe_verdict(verdict, separate=about.speaker is None)
        found["speaker"] = verdict.speaker
        yield OutcomeStep(kind=OutcomeStepKind.VERDICT, text=text, verdict=verdict, **found)
    elif isinstance(about, Draft):
        how = describe_retry(about.stop)
        text = f"{about.speaker or 'The task'}: {how[:1].lower()}{how[1:]}: {about.problem}"
        yield OutcomeStep(kind=OutcomeStepKind.REJECTED, text=text, **found)
    elif isinstance(about, Reflection) and about.problem is not None:
        whose = about.speaker or "The judge"
        text = f"{whose}: unreadable verdict, requested again: {about.problem}"
        yield OutcomeStep(kind=OutcomeStepKind.REJECTED, text=text, **found)
    elif isinstance(about, ToolResult) and about.decision in _DECIDED:
        text = f"{about.speaker}: {_DECIDED[about.decision]}"
        yield OutcomeStep(kind=OutcomeStepKind.DECIDED, text=text, **found)
    elif isinstance(about, SpecifiedTask) and about.problem is not None:
        text = describe_kept_task(about.problem)
        yield OutcomeStep(kind=OutcomeStepKind.REJECTED, text=text, **found)
    elif isinstance(about, InnerSession):
        yield OutcomeStep(kind=OutcomeStepKind.INNER, text=describe_inner(about), **found)
    elif isinstance(about, SpeakerChoice) and about.problem is not None:
        found["speaker"], text = about.to, describe_choice(about.to, readable=False)
        yield OutcomeStep(kind=OutcomeStepKind.CHOICE, text=text, **found)


_DECIDED: Final[Mapping[DecisionType | None, str]] = {
    "edit": "a person changed a tool call",
    "reject": "a person rejected a tool call",
    "respond": "a person answered a tool call",
}


def _reasons(outcome: Outcome) -> Iterator[OutcomeStep]:
    for place, (reason, text) in enumerate(
        zip(outcome.reasons, outcome.explanations, strict=False)
    ):
        by = outcome.by if place == 0 else None
        yield OutcomeStep(kind=OutcomeStepKind.REASON, speaker=by, text=text, reason=reason)
