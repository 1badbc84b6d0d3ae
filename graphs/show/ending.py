"""The panels of a page about the end and the usage: reasons, steps, counts, open tasks, charts."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from langchain_core.messages import AnyMessage, BaseMessage

from ..common.data import sum_known
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, Verdict
from ..conversation.questions import Question
from ..ends.end import Strength, leaves
from ..ends.guards import Guard
from ..log.messages import messages_since_end, metadata, place_of
from ..log.metadata import Speech, verdict_of
from ..rules.log_counter import counter_of
from ..rules.met_ends import ENDS, is_answer_due
from ..rules.outcome import Outcome, OutcomeStep, OutcomeStepKind
from ..rules.turns import Dialogue
from ..rules.why import explain_end, steps_of
from .page_data import Chart, Ending, Mark, Meter, Share, Spending, Spent, Step, Timeline, Tone

WIDTH: Final = 720
"""Width of a chart, in SVG units."""

_BARS: Final = 90
"""Maximum number of bars in a chart."""

_HEIGHT: Final = 64

_COLOURS: Final = 8
"""Number of colours; further speakers repeat them."""


def colour(number: int | None) -> str:
    """Return the class of a speaker's colour. None means no speaker."""
    return "c-" if number is None else f"c{number % _COLOURS}"


def timeline(
    conversation: Conversation, log: Sequence[BaseMessage], steps: Sequence[Step]
) -> Timeline | None:
    """Draw all messages from left to right, each at its place in the log."""
    numbers = {name: number for number, name in enumerate(conversation.names)}
    if not log:
        return None
    at = {
        place_of(message): _MARGIN + (WIDTH - 2 * _MARGIN) * (place + 0.5) / len(log)
        for place, message in enumerate(log)
    }
    width = max(1.0, min(8.0, 0.7 * WIDTH / len(log)))
    paths = defaultdict[str, list[str]](list)
    drawn = dict[str, float]()
    for message in log:
        about = metadata(message)
        if isinstance(about, Speech):
            x, name = at[place_of(message)], colour(numbers.get(about.speaker or ""))
            # Skip marks that would overlap the previous one.
            if x - drawn.get(name, -1.0) >= _LEAST:
                drawn[name] = x
                paths[name].append(f"M{x - width / 2:.4g} 0h{width:.4g}v18h-{width:.4g}z")
    marks = tuple(Mark(x=round(at[one.place], 1), step=one) for one in steps if one.place in at)
    return Timeline(
        width=WIDTH, ticks={name: "".join(path) for name, path in paths.items()}, marks=marks
    )


_LEAST: Final = 0.5
"""Minimum distance between two drawn messages of one speaker."""


_MARGIN: Final = 10.0
"""Distance of the first and the last message from the edges."""


def spending_of(conversation: Conversation, steps: Sequence[Spent]) -> Spending | None:
    """Add up the usage of each speaker, and draw it by turn."""
    if not any(step.calls or step.seconds for step in steps):
        return None
    turns: list[list[Spent]] = []
    for step in steps:
        if step.is_new_turn or not turns:
            turns.append([])
        turns[-1].append(step)
    who = [*conversation.names, *(step.who for step in steps)]
    colours = {
        name: colour(conversation.names.index(name) if name in conversation.names else None)
        for name in dict.fromkeys(who)
    }
    each = -(-len(turns) // _BARS)
    bars = [
        [step for turn in turns[first : first + each] for step in turn]
        for first in range(0, len(turns), each)
    ]
    measures: list[tuple[str, Callable[[Spent], float], str]] = [
        ("Tokens", lambda one: one.tokens, "{:,.0f}"),
        ("Seconds", lambda one: one.seconds, "{:.2f}"),
        ("Cost", lambda one: one.cost or 0.0, "{:.4g}"),
    ]
    charts = (_chart(title, form, bars, of, colours) for title, of, form in measures)
    return Spending(
        shares=tuple(
            share
            for name, of_colour in colours.items()
            if (share := _share(name, of_colour, turns)) is not None
        ),
        charts=tuple(chart for chart in charts if chart is not None),
        turns_a_bar=each,
        has_cost=any(step.cost is not None for step in steps),
    )


_BRIEF: Final = 0.01
"""Seconds below which work without a model call, outside the speakers' turns, is not shown."""


def _share(name: str, of_colour: str, turns: Sequence[Sequence[Spent]]) -> Share | None:
    mine = [step for turn in turns for step in turn if step.who == name]
    if not mine:
        return None
    added = ("calls", "input_tokens", "output_tokens", "seconds")
    sums = {field: sum(getattr(step, field) for step in mine) for field in added}
    if of_colour == colour(None) and not sums["calls"] and sums["seconds"] < _BRIEF:
        return None
    taken = sum(any(step.who == name for step in turn) for turn in turns)
    return Share(
        who=name, colour=of_colour, turns=taken, cost=sum_known(step.cost for step in mine), **sums
    )


def _chart(
    title: str,
    form: str,
    bars: Sequence[Sequence[Spent]],
    of: Callable[[Spent], float],
    colours: dict[str, str],
) -> Chart | None:
    most = max(sum(map(of, bar)) for bar in bars)
    if not most:
        return None
    room = min(WIDTH / len(bars), 28.0)
    wide = room * 0.72
    paths = defaultdict[str, list[str]](list)
    for place, bar in enumerate(bars):
        foot = float(_HEIGHT)
        for name, of_colour in colours.items():
            tall = sum(of(step) for step in bar if step.who == name) / most * (_HEIGHT - 2)
            if tall:
                corner = f"M{place * room:.4g} {foot:.4g}"
                paths[of_colour].append(f"{corner}v-{tall:.3g}h{wide:.3g}v{tall:.3g}z")
                foot -= tall
    return Chart(
        title=title,
        most=form.format(most),
        width=round(room * len(bars)),
        height=_HEIGHT,
        bars={name: "".join(path) for name, path in paths.items()},
    )


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


def tone_of(reason: str | None) -> Tone:
    """Return the tone of a stored reason, which may be unknown."""
    known = {one.value: _TONES[end.strength] for one, end in ENDS.items()}
    return known.get(reason or "", "plain")


def ending_of(
    dialogue: Dialogue,
    outcome: Outcome | None,
    pending: Sequence[Question],
    anchors: Mapping[str, str],
) -> Ending:
    """Return the panel about the end of a conversation, or about its status."""
    conversation, log = dialogue.conversation, dialogue.log
    found = _steps(explain_end(conversation, log, outcome), anchors)
    steps = tuple(found[-_MOST_STEPS:])
    shown = _steps(steps_of(conversation, log), anchors)[-_MOST_STEPS:]
    panel = reason_panel(outcome, pending, anchors)
    return panel.model_copy(
        update={
            "owed": tuple(_list_open_tasks(dialogue, outcome)),
            "numbers": tuple(_numbers(dialogue, outcome)),
            "steps": steps,
            "earlier_steps": len(found) - len(steps),
            "meters": tuple(_meters(dialogue)),
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
    steps = _steps(explain_end(conversation, log, outcome), {})
    numbers = () if outcome is None else outcome.used()
    return reason_panel(outcome, pending, {}).model_copy(
        update={"steps": tuple(steps[-_FEW_STEPS:]), "numbers": numbers}
    )


def _steps(causes: Sequence[OutcomeStep], anchors: Mapping[str, str]) -> list[Step]:
    return [
        Step(
            anchor=anchors.get(cause.message),
            place=cause.message,
            kind=cause.kind.value,
            tone=_tone(cause),
            text=cause.text,
        )
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
            title=said[:1].upper() + said[1:],
            reason=outcome.reason.value,
            sentence=after,
            also=outcome.explanations[1:],
            anchor=anchors.get(outcome.message or ""),
            warnings=outcome.warnings,
        )
    if pending:
        return Ending(
            tone="open",
            title="Waiting for an answer",
            sentence="It continues when the question is answered.",
            questions=tuple(pending),
        )
    return Ending(
        tone="open",
        title="Not finished yet",
        sentence="It is still running, or it was interrupted and can be resumed.",
    )


_TONES_OF_STEPS: Final[Mapping[OutcomeStepKind, Tone]] = {
    OutcomeStepKind.SAID: "good",
    OutcomeStepKind.ANSWERED: "good",
    OutcomeStepKind.CALLED: "good",
    OutcomeStepKind.COUNTED: "warn",
    OutcomeStepKind.CUT_OFF: "warn",
    OutcomeStepKind.STOPPED: "warn",
    OutcomeStepKind.CHOICE: "warn",
    OutcomeStepKind.REJECTED: "bad",
}


def _tone(cause: OutcomeStep) -> Tone:
    if cause.verdict is not None:
        return "good" if cause.verdict.complete else "plain"
    if cause.kind is OutcomeStepKind.REASON:
        return tone_of(cause.reason)
    return _TONES_OF_STEPS.get(cause.kind, "plain")


def _list_open_tasks(dialogue: Dialogue, outcome: Outcome | None) -> Iterator[str]:
    """Yield sentences about last messages that are still due and tasks that are not complete."""
    conversation, position = dialogue.conversation, dialogue.position
    if position.owed:
        verb = "was" if outcome is not None else "is"
        yield f"One more message {verb} due from {_join_names(position.owed)}."
    if is_answer_due(dialogue):
        token, who = position.facts.tokens_unanswered[0]
        yield f"{who} said {token}, and no other speaker has answered it."
    newest: dict[str, Verdict] = {}
    for message in messages_since_end(dialogue.log):
        if (verdict := verdict_of(metadata(message))) is not None:
            # A separate judge has one verdict for all speakers.
            newest["" if verdict.findings else verdict.speaker] = verdict
    for verdict in newest.values():
        if not verdict.complete:
            yield from _list_unmet(verdict)
    if not conversation.end_chat.waits_for_tasks or "" in newest:
        return
    for name in conversation.stoppers:
        if name not in newest and name not in position.completed:
            yield f"{name} was never asked whether its task is complete."


def _list_unmet(verdict: Verdict) -> Iterator[str]:
    left = [
        f"{text.rstrip(' .')} ({verdict.describe_finding(text)})"
        for text, finding in verdict.findings.items()
        if finding is not Finding.MET
    ] or [*verdict.objectives_left]
    whose = "Criteria" if verdict.findings else f"Task of {verdict.speaker}"
    yield f"{whose}: {'; '.join(left)}" if left else f"{whose}: not complete"


def _numbers(dialogue: Dialogue, outcome: Outcome | None) -> Iterator[tuple[str, str]]:
    position, facts = dialogue.position, dialogue.position.facts
    yield "Rounds", str(outcome.rounds if outcome is not None else dialogue.rounds)
    yield "Messages", str(outcome.messages if outcome is not None else facts.messages)
    yield "Model calls", f"{facts.calls:,}"
    yield "Tokens", f"{facts.tokens:,}"
    yield "Seconds", f"{facts.seconds:.1f}"
    if facts.cost:
        yield "Cost", f"{facts.cost:.4g}"
    if outcome is not None and outcome.complete is not None:
        yield "Judged complete", "yes" if outcome.complete else "no"
    if position.completed:
        yield "Completed by", _join_names(position.completed)


def _meters(dialogue: Dialogue) -> Iterator[Meter]:
    """Yield the counts of the caps, then of the guards."""
    conversation, facts = dialogue.conversation, dialogue.position.facts
    end_chat = conversation.end_chat
    if end_chat.max_iterations is not None:
        yield Meter(name="rounds", count=dialogue.rounds, limit=end_chat.max_iterations)
    for _, end in leaves(end_chat.when):
        if (meter := end.meter(facts)) is not None:
            name, count, limit = meter
            yield Meter(name=name, count=count, limit=limit)
    tallies = counter_of(conversation, dialogue.log).tallies
    for guard in ENDS.values():
        if issubclass(guard, Guard) and (limit := guard.limit(conversation)):
            count = tallies[guard.reason].count
            name = guard.reason.replace("_", " ")
            yield Meter(name=name, count=count if count >= guard.first_shown else 0, limit=limit)


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
