"""Tables of the metrics, as Markdown."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from endings.closings import Agreement
from endings.dialogue import Dialogue
from endings.intervals import Estimate
from endings.metrics import Metrics, measure
from endings.scoring import Outcome, Scored

ERRORS = (Outcome.PREMATURE, Outcome.MISSED, Outcome.LATE)

HEAD = (
    *("dialogues", "premature, %", "missed, %", "delay, median", "delay, 90 %"),
    *("false stops per 1,000", "κ", "ties", "undecidable"),
)


def by_source(scored: Iterable[Scored]) -> str:
    """Return all metrics by source and half."""
    return _table(("source", "half"), scored, lambda one: (one.source, one.half))


def by_case(scored: Iterable[Scored]) -> str:
    """Return all metrics by source, kind of case and half."""
    head = ("source", "kind of case", "half")
    return _table(head, scored, lambda one: (one.source, one.label.case, one.half))


def _table(
    head: Sequence[str], scored: Iterable[Scored], key: Callable[[Dialogue], tuple[str, ...]]
) -> str:
    groups = defaultdict[tuple[str, ...], list[Scored]](list)
    for one in scored:
        groups[key(one.dialogue)].append(one)
    return table(
        (*head, *HEAD), ([*each, *_cells(measure(groups[each]))] for each in sorted(groups))
    )


def cost_line(scored: Sequence[Scored]) -> str:
    """Return the cost of deciding, in a sentence."""
    found = measure(scored)
    return (
        f"Cost of deciding by dialogue: {format_estimate(found.calls, 2)} model calls, "
        f"{format_estimate(found.tokens, 2)} tokens. {found.left_out} of {found.turns} prefixes "
        "are left out of κ."
    )


def closing_table(found: Mapping[tuple[str, str], Agreement]) -> str:
    """Return the quality of recognizing single farewells, by group and half."""
    head = ("messages", "half", "short", "closings", "precision", "recall", "κ", "mixed, left out")
    rows = [
        [
            group,
            half,
            f"{sum(one.total):,}",
            f"{one.total.both + one.total.label:,}",
            *(format_estimate(value, 3) for value in (one.precision, one.recall, one.kappa)),
            f"{one.mixed:,}",
        ]
        for (half, group), one in sorted(found.items(), key=lambda row: row[0][::-1])
    ]
    return table(head, rows)


def error_lines(scored: Iterable[Scored]) -> Iterator[str]:
    """Yield a line for each dialogue that was ended wrongly: place, reason and last text."""
    for one in scored:
        if one.outcome in ERRORS:
            label, turns = one.dialogue.label, one.dialogue.turns
            at = one.stop or min(label.end, len(turns))
            text = " ".join(turns[at - 1].text.split())[-100:]
            yield (
                f"{one.outcome}\t{one.dialogue.id}\t{label.case}\t{one.reason or '-'}\t"
                f"stop {one.stop or '-'}, end {label.end} of {len(turns)}\t{text}"
            )


def _cells(found: Metrics) -> list[str]:
    percent = [one and one.times(100) for one in (found.premature, found.missed)]
    return [
        f"{found.dialogues:,}",
        *(format_estimate(one, 2) for one in percent),
        *(format_estimate(one, 0) for one in (found.delay, found.delay_90)),
        format_estimate(found.false_stops, 2),
        format_estimate(found.kappa, 2),
        f"{found.outcomes[Outcome.TIE]:,}",
        f"{found.outcomes[Outcome.UNDECIDABLE]:,}",
    ]


def format_estimate(found: Estimate | None, digits: int) -> str:
    """Return an estimate with its interval as text, or a dash for None."""
    if found is None:
        return "–"  # noqa: RUF001
    # Adding 0 makes -0.0 a plain 0.0.
    value, low, high = (f"{round(one, digits) + 0.0:.{digits}f}" for one in found)
    return f"{value} ({low} to {high})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
