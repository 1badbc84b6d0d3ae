"""Why a conversation ended, step by step: what was judged, rejected, counted and said on the way.

A pure function of what a session holds; nothing is stored for it. The outcome alone says it in one
sentence: `graphs.rules.outcome`.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from langchain_core.messages import AnyMessage, BaseMessage
from pydantic import NonNegativeInt

from ..common.data import Data
from ..log.messages import Failure, Flaw, Kind, Line, line
from ..spec.conversation import Conversation
from ..spec.ends import EndingTool, NoCode, leaves
from ..spec.judges import Verdict
from .facts import facts_of, read_log
from .outcome import Outcome
from .position import Facts
from .reasons import Reason


class CauseKind(StrEnum):
    """What kind of step led to the end."""

    VERDICT = "verdict"
    """A judge's answer."""
    REJECTED = "rejected"
    """A reply that broke a rule and was asked for again."""
    COUNTED = "counted"
    """A message that a guard counted."""
    SAID = "said"
    """A done token."""
    CALLED = "called"
    """A tool that ends it."""
    DECIDED = "decided"
    """What a person decided of a call of a tool."""
    CHOICE = "choice"
    """A choice of the next speaker that could not be read."""
    REASON = "reason"
    """A reason that held at the end."""


class Cause(Data):
    """One step towards the end of a conversation."""

    kind: CauseKind
    """What kind of step it is."""
    message: str | None = None
    """The id of the message that it is about. None: the end itself."""
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


def why(
    conversation: Conversation, messages: Sequence[AnyMessage], outcome: Outcome | None
) -> list[Cause]:
    """Tell what led to a conversation's end, or leads to it so far."""
    causes = list(_on_the_way(conversation, messages))
    return causes if outcome is None else [*causes, *_reasons(outcome)]


def verdict_in_words(verdict: Verdict, *, separate: bool) -> str:
    """Say a verdict in one line."""
    whose = f"The judge, after {verdict.speaker}" if separate else f"{verdict.speaker} on its task"
    if not verdict.readable:
        return f"{whose}: unreadable, which counts as not complete"
    if verdict.findings:
        found = (
            f"{text.rstrip(' .')} ({finding.in_words})"
            for text, finding in verdict.findings.items()
        )
        return f"{whose}: {'; '.join(found)}"
    if verdict.complete:
        return f"{whose}: complete"
    left = "; ".join(verdict.objectives_left)
    return f"{whose}: not complete" + (f": {left}" if left else "")


def _on_the_way(conversation: Conversation, log: Sequence[BaseMessage]) -> Iterator[Cause]:
    before = Facts()
    read = read_log(log)
    for place, (message, about) in enumerate(read, start=1):
        yield from _told(message, about)
        if not _matters(about):
            continue
        facts = facts_of(conversation, read[:place])
        yield from _new_ends(conversation, message, before, facts)
        for reason, count in _counted(about, facts):
            limit = _limit(conversation, reason)
            if limit:
                yield _count(message, about, reason, count, limit)
        before = facts


def _limit(conversation: Conversation, reason: Reason) -> int:
    """At how many a guard, or a cap on errors, ends it."""
    match reason:
        case Reason.CALL_ERRORS:
            return conversation.max_call_errors
        case Reason.TOOL_ERRORS:
            return conversation.max_tool_errors
        case _:
            limit: int = getattr(conversation.end_chat.guards, reason.value)
            return limit


def _matters(about: Line) -> bool:
    """Whether the facts may be other after a message."""
    calls = about.kind in (Kind.TOOL_CALLS, Kind.TOOL_RESULT)
    return about.counts or calls or about.verdict is not None


def _told(message: BaseMessage, about: Line) -> Iterator[Cause]:
    """What a message says by itself."""
    found = {"message": str(message.id), "speaker": about.speaker}
    if about.verdict is not None:
        text = verdict_in_words(about.verdict, separate=about.speaker is None)
        found["speaker"] = about.verdict.speaker
        yield Cause(kind=CauseKind.VERDICT, text=text, verdict=about.verdict, **found)
    elif about.kind is Kind.DRAFT:
        text = f"{about.speaker or 'The task'}: rejected and asked again: {about.problem}"
        yield Cause(kind=CauseKind.REJECTED, text=text, **found)
    elif about.decision not in (None, "approve") and about.kind is Kind.TOOL_RESULT:
        text = f"{about.speaker}: a person {_DECIDED[str(about.decision)]} a call of a tool"
        yield Cause(kind=CauseKind.DECIDED, text=text, **found)
    elif about.kind is Kind.CHOICE and about.problem is not None:
        text = f"Who speaks next: unreadable, so it is {about.to}, the next in order"
        yield Cause(kind=CauseKind.CHOICE, text=text, message=str(message.id), speaker=about.to)


_DECIDED = {"edit": "changed", "reject": "refused", "respond": "answered in the place of"}


def _new_ends(
    conversation: Conversation, message: BaseMessage, before: Facts, facts: Facts
) -> Iterator[Cause]:
    """Done tokens said, ending tools called, and no code written: what some end waits for."""
    ends = [end for _, end in leaves(conversation.end_chat.when)]
    for token, who in facts.tokens_said:
        if (token, who) not in before.tokens_said:
            yield Cause(
                kind=CauseKind.SAID,
                message=str(message.id),
                speaker=who,
                text=f"{who}: said {token}",
                reason=Reason.DONE_TOKEN,
            )
    if facts.terminated and line(message).counts:
        yield Cause(
            kind=CauseKind.SAID,
            message=str(message.id),
            speaker=facts.said_by,
            text=f"{facts.said_by}: a termination message",
            reason=Reason.TERMINATION,
        )
    watched = {end.by for end in ends if isinstance(end, NoCode)}
    if facts.no_code_by in watched and line(message).counts:
        yield Cause(
            kind=CauseKind.SAID,
            message=str(message.id),
            speaker=facts.no_code_by,
            text=f"{facts.no_code_by}: wrote no code",
            reason=Reason.NO_CODE,
        )
    awaited = {(end.tool, end.by) for end in ends if isinstance(end, EndingTool)}
    for tool, who in facts.tools_called:
        if (tool, who) not in before.tools_called and {(tool, who), (tool, None)} & awaited:
            yield Cause(
                kind=CauseKind.CALLED,
                message=str(message.id),
                speaker=who,
                text=f"{who}: called {tool}",
                reason=Reason.ENDING_TOOL,
            )


def _counted(about: Line, facts: Facts) -> Iterator[tuple[Reason, int]]:
    """The guards that counted a message, each with its count; a first reply repeats nothing."""
    if about.counts:
        if facts.blank_replies:
            yield Reason.BLANK_REPLIES, facts.blank_replies
        if facts.same_replies > 1:
            yield Reason.SAME_REPLIES, facts.same_replies
        if facts.farewells:
            yield Reason.FAREWELLS, facts.farewells
        if about.flaw is Flaw.ROLE_FLIP:
            yield Reason.ROLE_FLIPS, facts.role_flips[about.speaker or ""]
    elif about.kind is Kind.TOOL_CALLS and facts.same_tool_calls > 1:
        yield Reason.SAME_TOOL_CALLS, facts.same_tool_calls
    elif about.failure is Failure.CALL:
        yield Reason.CALL_ERRORS, facts.call_errors
    elif about.failure is Failure.TOOL:
        yield Reason.TOOL_ERRORS, facts.tool_errors
    elif about.verdict is not None and facts.unreadable_verdicts:
        yield Reason.UNREADABLE_VERDICTS, facts.unreadable_verdicts


_COUNTS = {
    Reason.BLANK_REPLIES: "blank reply",
    Reason.SAME_REPLIES: "the same reply",
    Reason.FAREWELLS: "nothing but thanks or farewells",
    Reason.ROLE_FLIPS: "another's part",
    Reason.SAME_TOOL_CALLS: "a tool called with equal arguments",
    Reason.UNREADABLE_VERDICTS: "unreadable verdict",
    Reason.CALL_ERRORS: "a call of a tool that can't be run",
    Reason.TOOL_ERRORS: "a tool that failed",
}


def _count(message: BaseMessage, about: Line, reason: Reason, count: int, limit: int) -> Cause:
    who = about.speaker if about.verdict is None else about.verdict.speaker
    return Cause(
        kind=CauseKind.COUNTED,
        message=str(message.id),
        speaker=who,
        text=f"{who}: {_COUNTS[reason]} ({count} of {limit})",
        reason=reason,
        count=count,
        limit=limit,
    )


def _reasons(outcome: Outcome) -> Iterator[Cause]:
    for place, reason in enumerate(outcome.reasons):
        yield Cause(
            kind=CauseKind.REASON,
            speaker=outcome.by if place == 0 else None,
            text=outcome.because[place] if place < len(outcome.because) else reason.value,
            reason=reason,
        )
