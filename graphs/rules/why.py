"""Why a conversation ended, step by step: what was judged, rejected, counted and said on the way.

It is found in the log; nothing is stored for it. The outcome says it in one sentence.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..ends.end import CountedMessage
from ..ends.facts import Facts
from ..log.messages import metadata, place_of
from ..log.metadata import (
    Draft,
    EarlierEnd,
    MessageMetadata,
    Reflection,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    ToolCalls,
    ToolResult,
    is_public_speech,
    thought_text,
    verdict_of,
)
from .log_counter import LogCounter
from .message_words import CUT_OFF, describe_kept_task, describe_retry, describe_verdict
from .met_ends import ENDS
from .outcome import Outcome, OutcomeStep, OutcomeStepKind, OutcomeSteps


def why(
    conversation: Conversation, messages: Sequence[AnyMessage], outcome: Outcome | None
) -> list[OutcomeStep]:
    """Tell what led to a conversation's end, or leads to it so far."""
    causes = OutcomeSteps(_on_the_way(conversation, messages))
    if outcome is not None:
        causes += _reasons(outcome)
    return causes


def _on_the_way(conversation: Conversation, log: Sequence[BaseMessage]) -> Iterator[OutcomeStep]:
    before = Facts()
    counted = LogCounter(conversation)
    for message in log:
        about = metadata(message)
        yield from _told(message, about)
        counted.add(message)
        if isinstance(about, EarlierEnd):
            for reason in _reasons(Outcome.model_validate(about.outcome)):
                yield reason.model_copy(update={"message": place_of(message)})
            before = counted.facts()
        if not _matters(about):
            continue
        facts = counted.facts()
        step = CountedMessage(message, about, conversation, before, facts, counted.tallies)
        for ends_by, end in ENDS.items():
            for one in end.steps(step):
                yield OutcomeStep(
                    kind=OutcomeStepKind(one.kind),
                    message=place_of(message),
                    speaker=one.speaker,
                    text=f"{one.speaker}: {one.text}",
                    reason=ends_by,
                    count=one.reached,
                    limit=one.limit,
                )
        before = step.facts


def _matters(about: MessageMetadata) -> bool:
    """Whether a message may change what is counted."""
    calls = isinstance(about, ToolCalls | ToolResult)
    return is_public_speech(about) or calls or verdict_of(about) is not None


def _told(message: BaseMessage, about: MessageMetadata) -> Iterator[OutcomeStep]:
    """What a message says by itself."""
    found: dict[str, Any] = {"message": place_of(message), "speaker": about.speaker}
    if thought := thought_text(about):
        text = f"{about.speaker or 'A model'} thought: {thought}"
        yield OutcomeStep(kind=OutcomeStepKind.THOUGHT, text=text, **found)
    if (verdict := verdict_of(about)) is not None:
        text = describe_verdict(verdict, separate=about.speaker is None)
        found["speaker"] = verdict.speaker
        yield OutcomeStep(kind=OutcomeStepKind.VERDICT, text=text, verdict=verdict, **found)
    elif isinstance(about, Draft):
        how = describe_retry(cut_off=about.cut_off).lower()
        text = f"{about.speaker or 'The task'}: {how}: {about.problem}"
        yield OutcomeStep(kind=OutcomeStepKind.REJECTED, text=text, **found)
    elif isinstance(about, SpecifiedTask) and about.problem is not None:
        yield OutcomeStep(
            kind=OutcomeStepKind.REJECTED, text=describe_kept_task(about.problem), **found
        )
    elif isinstance(about, SpeakerReply) and about.cut_off and about.is_spoken:
        text = f"{about.speaker}: {CUT_OFF.lower()}"
        yield OutcomeStep(kind=OutcomeStepKind.CUT_OFF, text=text, **found)
    elif isinstance(about, Reflection) and about.problem is not None:
        text = f"{about.speaker or 'The judge'}: unreadable and asked again: {about.problem}"
        yield OutcomeStep(kind=OutcomeStepKind.REJECTED, text=text, **found)
    elif isinstance(about, ToolResult) and about.decision not in (None, "approve"):
        text = f"{about.speaker}: a person {_DECIDED[str(about.decision)]} a call of a tool"
        yield OutcomeStep(kind=OutcomeStepKind.DECIDED, text=text, **found)
    elif isinstance(about, SpeakerChoice) and about.problem is not None:
        text = f"Who speaks next: unreadable, so it is {about.to}, the next in order"
        yield OutcomeStep(
            kind=OutcomeStepKind.CHOICE, text=text, message=place_of(message), speaker=about.to
        )


_DECIDED = {"edit": "changed", "reject": "refused", "respond": "answered in the place of"}


def _reasons(outcome: Outcome) -> Iterator[OutcomeStep]:
    for place, (reason, text) in enumerate(
        zip(outcome.reasons, outcome.explanations, strict=False)
    ):
        by = outcome.by if place == 0 else None
        yield OutcomeStep(kind=OutcomeStepKind.REASON, speaker=by, text=text, reason=reason)
