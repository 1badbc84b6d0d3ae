"""The panel about the end: the reason, the steps to it, the counts and the open tasks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from langchain_core.messages import AnyMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, Verdict
from ..conversation.questions import Question
from ..ends.end import Strength, leaves
from ..ends.guard import Guard
from ..log.messages import metadata, since_end
from ..log.metadata import verdict_of
from ..rules.log_counter import counter_of
from ..rules.met_ends import ENDS, is_answer_due
from ..rules.outcome import Outcome, OutcomeStep, OutcomeStepKind
from ..rules.position import Position
from ..rules.why import steps_of, why
from .charts import timeline
from .page_data import Ending, Meter, Step, Tone

_MOST_STEPS: Final = 300
"""Maximum number of steps that are shown; the newest are kept."""

_FEW_STEPS: Final = 12

_TONES: Final[Mapping[Strength, Tone]] = {
    Strength.HARD: "bad",
    Strength.SAID: "good",
    Strength.VERDICT: "good",
    Strength.GUARD: "warn",
    Strength.CAP: "plain",
}


def ending_of(
    conversation: Conversation,
    log: Sequence[AnyMessage],
    position: Position,
    outcome: Outcome | None,
    pending: Sequence[Question],
    anchors: Mapping[str, str],
) -> Ending:
    """Return the panel about the end of a conversation, or about its status."""
    found = _steps(why(conversation, log, outcome), anchors)
    steps = tuple(found[-_MOST_STEPS:])
    shown = _steps(steps_of(conversation, log), anchors)[-_MOST_STEPS:]
    panel = reason_panel(outcome, pending, anchors)
    return panel.model_copy(
        update={
            "owed": tuple(_owed(conversation, since_end(log), position, outcome)),
            "numbers": tuple(_numbers(conversation, position, outcome)),
            "steps": steps,
            "earlier_steps": len(found) - len(steps),
            "meters": tuple(_meters(conversation, log, position)),
            "timeline": timeline(conversation, log, shown),
        }
    )


def brief_end(
    conversation: Conversation,
    log: Sequence[AnyMessage],
    outcome: Outcome | None,
    pending: Sequence[Question],
) -> Ending:
    """Return a short panel for a notebook: the reason and the last steps that led to it."""
    steps = _steps(why(conversation, log, outcome), {})
    numbers = () if outcome is None else outcome.used()
    return reason_panel(outcome, pending, {}).model_copy(
        update={"steps": tuple(steps[-_FEW_STEPS:]), "numbers": numbers}
    )


def _steps(causes: Sequence[OutcomeStep], anchors: Mapping[str, str]) -> list[Step]:
    return [
        _step(cause, anchors)
        for cause in causes
        if cause.message is not None and cause.kind is not OutcomeStepKind.THOUGHT
    ]


def reason_panel(
    outcome: Outcome | None, pending: Sequence[Question], anchors: Mapping[str, str]
) -> Ending:
    """Return the reason for the end alone, or the status of a session that has not ended."""
    if outcome is not None:
        after, _, said = str(outcome).partition(": ")
        return Ending(
            tone=_TONES[ENDS[outcome.reason].strength],
            title=_capital(said),
            reason=outcome.reason.value,
            sentence=after,
            also=outcome.explanations[1:],
            anchor=anchors.get(outcome.message or ""),
            warnings=outcome.warnings,
        )
    if pending:
        asked = tuple(one.summary() for one in pending)
        return Ending(
            tone="open",
            title="Waiting for an answer",
            sentence="It continues when the question is answered.",
            questions=asked,
        )
    return Ending(
        tone="open",
        title="Not finished yet",
        sentence="It is still running, or it was interrupted and can be resumed.",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _step(cause: OutcomeStep, anchors: Mapping[str, str]) -> Step:
    place = cause.message or ""
    return Step(
        anchor=anchors.get(place),
        place=place,
        kind=cause.kind.value,
        tone=_tone(cause),
        text=cause.text,
    )


def _tone(cause: OutcomeStep) -> Tone:
    match cause.kind:
        case OutcomeStepKind.VERDICT if cause.verdict is not None:
            return "good" if cause.verdict.complete else "plain"
        case OutcomeStepKind.SAID | OutcomeStepKind.ANSWERED | OutcomeStepKind.CALLED:
            return "good"
        case (
            OutcomeStepKind.COUNTED
            | OutcomeStepKind.CUT_OFF
            | OutcomeStepKind.STOPPED
            | OutcomeStepKind.CHOICE
        ):
            return "warn"
        case OutcomeStepKind.REJECTED:
            return "bad"
        case OutcomeStepKind.REASON if cause.reason is not None:
            return _TONES[ENDS[cause.reason].strength]
        case _:
            return "plain"


def _owed(
    conversation: Conversation,
    log: Sequence[BaseMessage],
    position: Position,
    outcome: Outcome | None,
) -> Iterator[str]:
    """Yield sentences about last messages that are still due and tasks that are not complete."""
    if position.owed:
        verb = "was" if outcome is not None else "is"
        yield f"One more message {verb} due from {_joined(position.owed)}."
    if is_answer_due(conversation, position):
        token, who = position.facts.tokens_unanswered[0]
        yield f"{who} said {token}, and no other speaker has answered it."
    newest: dict[str, Verdict] = {}
    for message in log:
        if (verdict := verdict_of(metadata(message))) is not None:
            # A separate judge has one verdict for all speakers.
            newest["" if verdict.findings else verdict.speaker] = verdict
    for verdict in newest.values():
        if not verdict.complete:
            yield from _left(verdict)
    if not conversation.end_chat.waits_for_tasks or "" in newest:
        return
    for name in conversation.stoppers:
        if name not in newest and name not in position.completed:
            yield f"{name} was never asked whether its task is complete."


def _left(verdict: Verdict) -> Iterator[str]:
    left = [
        f"{text.rstrip(' .')} ({verdict.describe_finding(text)})"
        for text, finding in verdict.findings.items()
        if finding is not Finding.MET
    ] or [*verdict.objectives_left]
    whose = "Criteria" if verdict.findings else f"Task of {verdict.speaker}"
    yield f"{whose}: {'; '.join(left)}" if left else f"{whose}: not complete"


def _numbers(
    conversation: Conversation, position: Position, outcome: Outcome | None
) -> Iterator[tuple[str, str]]:
    facts = position.facts
    yield "Rounds", str(outcome.rounds if outcome is not None else position.rounds(conversation))
    yield "Messages", str(outcome.messages if outcome is not None else facts.messages)
    yield "Model calls", f"{facts.calls:,}"
    yield "Tokens", f"{facts.tokens:,}"
    yield "Seconds", f"{facts.seconds:.1f}"
    if facts.cost:
        yield "Cost", f"{facts.cost:.4g}"
    if outcome is not None and outcome.complete is not None:
        yield "Judged complete", "yes" if outcome.complete else "no"
    if position.completed:
        yield "Completed by", _joined(position.completed)


def _meters(
    conversation: Conversation, log: Sequence[BaseMessage], position: Position
) -> Iterator[Meter]:
    """Yield the counts of the caps, then of the guards."""
    facts, end_chat = position.facts, conversation.end_chat
    if end_chat.max_iterations is not None:
        rounds = position.rounds(conversation)
        yield Meter(name="rounds", count=rounds, limit=end_chat.max_iterations)
    for _, end in leaves(end_chat.when):
        if (meter := end.meter(facts)) is not None:
            name, count, limit = meter
            yield Meter(name=name, count=count, limit=limit)
    tallies = counter_of(conversation, log).tallies
    for guard in ENDS.values():
        if issubclass(guard, Guard) and (limit := guard.limit(conversation)):
            count = tallies[guard.reason].count
            name = guard.reason.replace("_", " ")
            yield Meter(name=name, count=count if count >= guard.first_shown else 0, limit=limit)


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
