"""Tables of the metrics, as Markdown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from endings.closings import Agreement
from endings.intervals import Estimate
from endings.metrics import Metrics, measure
from endings.scoring import Outcome, Scored

ERRORS = (Outcome.PREMATURE, Outcome.MISSED, Outcome.LATE)

HEAD = (
    *("dialogues", "premature, %", "missed, %", "delay, median", "delay, 90 %"),
    *("false stops per 1,000", "κ", "ties", "undecidable"),
)


def by_source(scored: Iterable[Scored]) -> str:
    """Return all metrics by source."""
    groups = _grouped(scored, lambda one: one.dialogue.source)
    rows = [[source, *_cells(measure(groups[source]))] for source in sorted(groups)]
    return table(("source", *HEAD), rows)


def halves_by_case(parts: Mapping[str, Sequence[Scored]]) -> str:
    """Return the shares of wrong ends and κ by source and kind of case, the halves abreast."""
    groups = {half: _grouped(scored, _case) for half, scored in parts.items()}
    keys = sorted({key for found in groups.values() for key in found})
    names = ("dialogues", "premature, %", "missed, %", "κ", "ties, undecidable")
    head = ["source", "kind of case", *(f"{name}: {half}" for half in parts for name in names)]
    rows = [
        [*key, *(cell for half in parts for cell in _short(groups[half].get(key, [])))]
        for key in keys
    ]
    return table(head, rows)


K = TypeVar("K", str, tuple[str, str])


def _case(one: Scored) -> tuple[str, str]:
    return one.dialogue.source, one.dialogue.label.case.value


def _grouped(scored: Iterable[Scored], key: Callable[[Scored], K]) -> dict[K, list[Scored]]:
    groups: dict[K, list[Scored]] = {}
    for one in scored:
        groups.setdefault(key(one), []).append(one)
    return groups


def _short(scored: Sequence[Scored]) -> list[str]:
    found = measure(scored)
    apart = (found.outcomes[Outcome.TIE], found.outcomes[Outcome.UNDECIDABLE])
    return [
        f"{found.dialogues:,}",
        *(format_estimate(one and one.times(100), 2) for one in (found.premature, found.missed)),
        format_estimate(found.kappa, 2),
        ", ".join(f"{count:,}" for count in apart),
    ]


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
