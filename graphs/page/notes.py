"""What a page says in a line about a message of the log, whatever the form of the page."""

from ..log.metadata import (
    CallOutcome,
    Draft,
    EarlierEnd,
    Failure,
    MemoryReset,
    MessageMetadata,
    Reflection,
    RemovedMessage,
    Source,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    parsed_of,
)
from ..rules.outcome import Outcome
from ..rules.why import CUT_OFF, asked_again, task_kept, verdict_in_words


def author(about: MessageMetadata) -> str:
    """Say who said it: a speaker, or what tells speakers what nobody says, or was rewritten."""
    return about.speaker or ("The task" if isinstance(about, Draft) else "The conversation")


def note(about: MessageMetadata) -> str | None:
    """Say in one line what stands beside the conversation; None for what is said in it."""
    if isinstance(about, Reflection) and about.verdict is not None:
        return verdict_in_words(about.verdict, separate=about.speaker is None)
    if isinstance(about, SpeakerChoice):
        why = "" if about.problem is None else ": the choice can't be read"
        return f"{about.to} speaks next{why}"
    if isinstance(about, SpecifiedTask) and about.problem is not None:
        return task_kept(about.problem)
    if isinstance(about, MemoryReset):
        return f"The memory of {about.speaker} was reset"
    if isinstance(about, EarlierEnd):
        return f"{Outcome.model_validate(about.outcome)} It went on"
    if isinstance(about, RemovedMessage):
        whose = about.was and about.was.speaker
        return f"A message of {whose} was removed" if whose else "A message was removed"
    return None


def remark(about: MessageMetadata) -> str | None:
    """Say what is to be known about what was said."""
    if isinstance(about, Draft | Reflection) and about.problem is not None:
        is_cut_off = isinstance(about, Draft) and about.cut_off
        return f"{asked_again(cut_off=is_cut_off)}: {about.problem}"
    if isinstance(about, Speech) and about.audience is not None:
        alone = " and ".join(about.confidants)
        return f"Heard by {alone} alone" if alone else "Heard by nobody else"
    return None


def cut_off(about: MessageMetadata) -> str | None:
    """Say that a message was cut off."""
    is_cut_off = isinstance(about, SpeakerReply) and about.cut_off and about.is_spoken
    return CUT_OFF if is_cut_off else None


def came(name: str, about: CallOutcome, *, failed: bool) -> str:
    """Say what came of a call, or who answered in its place."""
    if about.decision == "respond":
        return f"A person answers for {name}"
    if about.failure is Failure.PERSON:
        return f"{name} was not run"
    return f"{name} {'failed' if failed else 'answers'}"


def reads(about: MessageMetadata) -> bool:
    """Whether what was read from a message by its format says more than its text."""
    # What code gave stands in the text already.
    by_code = isinstance(about, SpeakerReply) and about.source is Source.CODE
    return parsed_of(about) is not None and not by_code
