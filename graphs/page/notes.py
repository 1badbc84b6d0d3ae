"""What a page says in a line about a message of the log, whatever the form of the page."""

from ..log.kinds import Kind
from ..log.messages import About, Failure, Source
from ..rules.outcome import Outcome
from ..rules.why import CUT_OFF, asked_again, task_kept, verdict_in_words


def author(about: About) -> str:
    """Say who said it: a speaker, or what tells speakers what nobody says, or was rewritten."""
    return about.speaker or ("The task" if about.kind is Kind.DRAFT else "The conversation")


def note(about: About) -> str | None:
    """Say in one line what stands beside the conversation; None for what is said in it."""
    if about.kind is Kind.REFLECTION and about.verdict is not None:
        return verdict_in_words(about.verdict, separate=about.speaker is None)
    if about.kind is Kind.CHOICE:
        why = "" if about.problem is None else ": the choice can't be read"
        return f"{about.to} speaks next{why}"
    if about.kind is Kind.SPECIFIED_TASK and about.problem is not None:
        return task_kept(about.problem)
    if about.kind is Kind.FORGOTTEN:
        return f"The memory of {about.speaker} was reset"
    if about.outcome is not None:
        return f"{Outcome.model_validate(about.outcome)} It went on"
    if about.kind is Kind.REMOVED:
        whose = about.was and about.was.speaker
        return f"A message of {whose} was removed" if whose else "A message was removed"
    return None


def remark(about: About) -> str | None:
    """Say what is to be known about what was said."""
    if about.kind in (Kind.DRAFT, Kind.REFLECTION) and about.problem is not None:
        return f"{asked_again(cut_off=about.cut_off)}: {about.problem}"
    if about.is_speech and about.audience is not None:
        alone = " and ".join(about.confidants)
        return f"Heard by {alone} alone" if alone else "Heard by nobody else"
    return None


def cut_off(about: About) -> str | None:
    """Say that a message was cut off."""
    return CUT_OFF if about.cut_off and about.kind.row.is_spoken else None


def came(name: str, about: About, *, failed: bool) -> str:
    """Say what came of a call, or who answered in its place."""
    if about.decision == "respond":
        return f"A person answers for {name}"
    if about.failure is Failure.PERSON:
        return f"{name} was not run"
    return f"{name} {'failed' if failed else 'answers'}"


def reads(about: About) -> bool:
    """Whether what was read from a message by its format says more than its text."""
    # What code gave stands in the text already.
    return about.parsed is not None and about.source is not Source.CODE
