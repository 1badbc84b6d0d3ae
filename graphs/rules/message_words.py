"""Texts about log messages for people: page, Markdown, terminal, notebook and `why` share them."""

from collections.abc import Sequence

from ..conversation.judges import Verdict
from ..log.metadata import (
    CallOutcome,
    Draft,
    EarlierEnd,
    Failure,
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
)
from ..speakers.reply_parts import Stop
from .outcome import Outcome


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


def describe_repeated_verdict(speaker: str | None, problem: str) -> str:
    """Return one line about an unreadable verdict that was requested again."""
    return f"{speaker or 'The judge'}: unreadable verdict, requested again: {problem}"


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
