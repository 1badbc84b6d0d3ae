"""The data of a batch's page, computed from the batch's rows."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from ...ends.end_chat import Reason
from ...rules.met_ends import ENDS
from ...show.ending import colour
from ...store.batches import BatchRow, CellRow
from ..order import Selection
from .page_data import (
    BatchReport,
    Extreme,
    Extremes,
    Histogram,
    Kind,
    Line,
    Link,
    Score,
    Sentence,
    Value,
    Varied,
)
from .rows import (
    Estimate,
    Fault,
    Group,
    Rows,
    Spread,
    Trials,
    join_groups,
    label_value,
    largest_places,
    mean_of,
    pass_hat,
)

NOT_ENDED: Final[Mapping[str, str]] = {
    "failed": "It failed",
    "waiting": "It waits for a person",
    "paused": "It is paused",
    "running": "It is running, or was interrupted",
    "not_begun": "It has not begun",
}
"""Descriptions of cells that have not ended, by their status."""


def describe_end(kind: str) -> str:
    """Describe the reason of an end, or the status of cells that have not ended."""
    if kind in ENDS:
        return ENDS[Reason(kind)].report
    # A newer version may have stored other reasons.
    return NOT_ENDED.get(kind, kind.replace("_", " "))


MOST_LINES: Final = 1000
"""Maximum number of cells that are listed."""

_MOST_VALUES: Final = 12
"""Maximum number of values of a field that are listed. If there are more, the most frequent ones
are listed.
"""

_MOST_SENTENCES: Final = 20

_MOST_BARS: Final = 30

_VALUE: Final = 48
"""Maximum length of a value in the table of cells, in characters."""

_LABEL: Final = 160

_TONES: Final[Mapping[str, str]] = {
    "failed": "bad",
    "waiting": "waiting",
    "paused": "paused",
    "running": "running",
    "not_begun": "rail",
}
"""The colours of cells that have not ended, by their status."""


def gather_report(
    batch: BatchRow,
    selection: Selection,
    rows: Rows,
    *,
    is_running: bool,
    folder: str,
    written: Collection[str],
) -> BatchReport:
    """Return the report of a batch.

    Args:
        batch: The row of the batch.
        selection: The batch's cells, which may be a sample.
        rows: The totals of its cells' rows.
        is_running: Whether a run of the batch is active.
        folder: The name of the folder with the transcripts, next to the page.
        written: The sessions whose transcripts are in that folder.
    """
    linked = _Links(folder, written)
    colours = _colours(rows.all.kinds)
    counts = Counter(rows.all.kinds)
    counts["not_begun"] = max(0, batch.cells - rows.all.cells)
    lines = tuple(_line(rows, row, colours, linked) for row in rows.first[:MOST_LINES])
    return BatchReport(
        batch=batch.batch,
        title=batch.title,
        cells=batch.cells,
        sample_of=selection.sample_of,
        seed=selection.order.seed,
        trials=rows.trials,
        combinations=len(rows.combinations),
        is_running=is_running,
        stopped=batch.stopped,
        seconds=batch.seconds,
        created_at=batch.created_at,
        updated_at=batch.updated_at,
        calls=rows.calls,
        tokens=rows.tokens,
        cost=rows.cost,
        kinds=_kinds(counts, colours),
        histograms=tuple(
            _histogram(title, spread)
            for title, spread in (
                ("Messages", rows.messages_spread),
                ("Tokens", rows.tokens_spread),
                ("Cost", rows.cost_spread),
            )
            if spread.most
        ),
        scores=tuple(_score(rows, name) for name in rows.columns),
        absent=_absent_scores(rows, batch),
        varied=tuple(
            _describe_field(rows, path, colours)
            for path, one in rows.fields.items()
            if len(one.places) > 1
        ),
        failed=_sentences(rows.failed, linked),
        unscored=_sentences(rows.unscored, linked),
        paths=tuple(rows.fields),
        lines=lines,
        begun=rows.all.cells,
        more_scores=rows.more_scores,
        pages=len(written),
    )


def _absent_scores(rows: Rows, batch: BatchRow) -> tuple[str, ...]:
    """Return the names of the batch's scores that no session has, if a session has ended."""
    asked: Sequence[str] = json.loads(batch.settings).get("score", ())
    # A score that returns a dict has a column for each key.
    known = {*rows.columns, *(name.partition(".")[0] for name in rows.columns)}
    is_known = rows.more_scores or not rows.all.ended
    return () if is_known else tuple(name for name in asked if name not in known)


class _Links:
    """The addresses of the cells' transcripts."""

    def __init__(self, folder: str, written: Collection[str]) -> None:
        self._folder = quote(folder)
        self._written = written

    def to(self, row: CellRow) -> str | None:
        """Return the address of a transcript, or None if it was not written."""
        return f"{self._folder}/{quote(row.session)}.html" if row.session in self._written else None


def _colours(kinds: Counter[str]) -> dict[str, str]:
    """Return a colour for each reason and for each status of cells that have not ended."""
    reasons = [name for name, _ in kinds.most_common() if name not in _TONES]
    # If there are more reasons than colours, the rarest share one colour.
    named = {name: colour(place if place < 8 else None) for place, name in enumerate(reasons)}
    return {**named, **_TONES}


def _kinds(counts: Mapping[str, int], colours: Mapping[str, str]) -> tuple[Kind, ...]:
    """Return the reasons, the most frequent first, followed by the statuses of other cells."""
    order = {name: place for place, name in enumerate(colours)}
    found = [(name, cells) for name, cells in counts.items() if cells]
    return tuple(
        Kind(name=name, words=describe_end(name), cells=cells, colour=colours[name])
        for name, cells in sorted(found, key=lambda one: order[one[0]])
    )


def _histogram(title: str, spread: Spread) -> Histogram:
    return Histogram(
        title=title,
        mean=spread.mean,
        median=spread.below(0.5),
        ninety=spread.below(0.9),
        least=spread.least,
        most=spread.most,
        bars=tuple(spread.bars(_MOST_BARS)),
    )


def _score(rows: Rows, name: str) -> Score:
    column, trials = rows.columns[name], rows.trials_of(name)
    passes = pass_hat(trials) if column.is_share and rows.trials > 1 else ()
    mean = mean_of(trials, is_share=column.is_share, spread=column.all.variance)
    return Score(
        name=name,
        is_share=column.is_share,
        mean=mean,
        missing=max(0, rows.all.ended - column.all.many),
        passes=tuple(passes),
    )


def _describe_field(rows: Rows, path: str, colours: Mapping[str, str]) -> Varied:
    known = rows.fields[path]
    shown = [
        1 + place for place in largest_places([one.cells for one in known.groups[1:]], _MOST_VALUES)
    ]
    # The first group contains all values beyond the maximum that `rows` distinguishes.
    rest = sorted({*range(len(known.groups))} - {*shown})
    others = join_groups(known.groups[place] for place in rest)
    lines = {place: line for line, place in enumerate(shown)}
    scores = [_means(rows, name, path, lines) for name in rows.columns]
    names = [*known.places]
    values = [
        _value(names[place - 1], known.groups[place], colours, [of[line] for of in scores])
        for place, line in lines.items()
    ]
    if others.cells:
        words = "all others" if known.groups[0].cells else f"{len(rest) - 1:,} others"
        last = _value(words, others, colours, [of[-1] for of in scores])
        values.append(last.model_copy(update={"is_rest": True}))
    extremes = (_extremes(rows, name, path) for name in rows.columns)
    return Varied(path=path, values=tuple(values), extremes=tuple(filter(None, extremes)))


def _extremes(rows: Rows, name: str, path: str) -> Extremes | None:
    """Return the best and the worst value of a field. None if they are alike, or each is rare."""
    found: dict[int, list[Trials]] = {}
    for place, trials in rows.trials_by(name, path):
        found.setdefault(place, []).append(trials)
    column, names = rows.columns[name], [*rows.fields[path].places]
    means = {
        place: mean_of(found[place], is_share=column.is_share, spread=column.all.variance)
        # Place 0 is for all values beyond the maximum.
        for place in sorted(found.keys() - {0})
    }
    values = {one.value for one in means.values()}
    # A value that occurs once is best or worst by chance.
    if len(values) < 2 or max(one.sessions for one in means.values()) < 2:
        return None

    def extreme(value: float) -> Extreme:
        equal = [place for place, one in means.items() if one.value == value]
        # Of equal values, the one with the most sessions is the most certain.
        place = max(equal, key=lambda one: means[one].sessions)
        label = _cut(names[place - 1], _LABEL)
        return Extreme(label=label, mean=means[place], others=len(equal) - 1)

    return Extremes(
        score=name,
        is_share=column.is_share,
        best=extreme(max(values)),
        worst=extreme(min(values)),
    )


def _means(
    rows: Rows, name: str, path: str, lines: Mapping[int, int]
) -> tuple[Estimate | None, ...]:
    """Return the mean of a score for each listed value, and last for all other values together."""
    found: list[list[Trials]] = [[] for _ in range(len(lines) + 1)]
    for place, trials in rows.trials_by(name, path):
        found[lines.get(place, -1)].append(trials)
    column = rows.columns[name]
    # A single combination has no variance, so the variance over all cells is used.
    is_share, spread = column.is_share, column.all.variance
    return tuple(mean_of(one, is_share=is_share, spread=spread) if one else None for one in found)


def _value(
    name: str, group: Group, colours: Mapping[str, str], scores: Sequence[Estimate | None]
) -> Value:
    def average(total: float | None) -> float | None:
        return total / group.ended if group.ended and total is not None else None

    return Value(
        label=_cut(name, _LABEL),
        cells=group.cells,
        kinds=_kinds(group.kinds, colours),
        messages=average(group.messages),
        tokens=average(group.tokens),
        cost=average(group.cost),
        scores=tuple(scores),
    )


def _sentences(faults: Mapping[str, Fault], links: _Links) -> tuple[Sentence, ...]:
    ranked = sorted(faults.items(), key=lambda one: -one[1].cells)
    return tuple(
        Sentence(
            text=_cut(text, 300),
            cells=fault.cells,
            first=tuple(
                Link(number=row.number, session=row.session, page=links.to(row))
                for row in fault.first
            ),
        )
        for text, fault in ranked[:_MOST_SENTENCES]
    )


def _line(rows: Rows, row: CellRow, colours: Mapping[str, str], links: _Links) -> Line:
    kind = (row.reason if row.status == "finished" else None) or row.status
    ((found,)) = _kinds({kind: 1}, colours)
    return Line(
        number=row.number,
        session=row.session,
        page=links.to(row),
        trial=row.trial,
        values=tuple(_cut(label_value(row.varied.get(path, "")), _VALUE) for path in rows.fields),
        kind=found,
        messages=row.messages,
        tokens=row.tokens,
        cost=row.cost,
        scores=tuple(row.scores.get(name) for name in rows.columns),
    )


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 2].rstrip()} …"
