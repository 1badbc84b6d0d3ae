"""The data of a batch's page, computed from the batch's rows. No value contains HTML."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from statistics import fmean, median_low
from typing import Final
from urllib.parse import quote

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...common.data import Data
from ...common.display import Panel, Shown
from ...ends.end_chat import Reason
from ...rules.met_ends import ENDS
from ...show.ending import colour
from ...store.batches import BatchRow, CellRow
from ..status import BatchStatus
from .rows import Column, Estimate, Fault, Group, Rows, Trials, label_value, pass_hat

_MOST_REASONS: Final = 3
"""Maximum number of reasons for missing scores in the summary. The page lists all of them."""


_MOST_EXTREMES: Final = 12
"""Maximum number of best and worst values in the summary. The page lists all of them."""


class Kind(Data):
    """A reason for which cells ended, or a status of cells that have not ended."""

    name: str
    """The reason or the status."""
    words: str
    """The description of the reason or the status, in words."""
    cells: NonNegativeInt
    """Number of cells."""
    colour: str
    """The CSS class of the colour that the charts use for these cells."""


class Histogram(Data):
    """The distribution of a figure over the cells that have ended."""

    title: str
    """The name of the figure, such as Tokens."""
    mean: NonNegativeFloat
    """The mean."""
    median: NonNegativeFloat
    """The median."""
    ninety: NonNegativeFloat
    """The 90th percentile."""
    least: NonNegativeFloat
    """The smallest number, which is in the first bar."""
    most: NonNegativeFloat
    """The largest number, which is in the last bar."""
    bars: tuple[NonNegativeInt, ...]
    """Number of cells in each bar. All bars have the same width."""


class Score(Data):
    """A score of a batch."""

    name: str
    """The name of the score."""
    is_share: bool
    """Whether the score was 0 or 1 in all cells."""
    mean: Estimate
    """The mean. If the score is a bool, the share of True."""
    missing: NonNegativeInt
    """Number of cells that have ended without this score."""
    passes: tuple[Estimate, ...] = ()
    """pass^1, pass^2, …: the probability that k trials all pass. Empty if a combination has only
    one trial, or the score is not a share.
    """


class Value(Data):
    """The cells that have one value in a field."""

    label: str
    """The value as text; in the last row, a text for all other values."""
    is_rest: bool = False
    """Whether the row is for all other values."""
    cells: NonNegativeInt
    """Number of cells."""
    kinds: tuple[Kind, ...]
    """The reasons why the cells ended, and the statuses of cells that have not ended."""
    messages: NonNegativeFloat | None
    """Mean number of messages of the cells that have ended. None if no cell has ended."""
    tokens: NonNegativeFloat | None
    """Mean number of tokens of the cells that have ended. None if no cell has ended."""
    cost: NonNegativeFloat | None
    """Mean cost of the cells that have ended. None if no cell has ended."""
    scores: tuple[Estimate | None, ...] = ()
    """The mean scores of the cells, in the order of the batch's scores. None for a score that no
    cell has.
    """


class Extreme(Data):
    """The value of a field with the highest or the lowest mean of a score."""

    label: str
    """The value as text."""
    mean: Estimate
    """The mean of the score."""
    others: NonNegativeInt = 0
    """Number of other values with the same mean."""


class Extremes(Data):
    """The best and the worst value of a field, by one score."""

    score: str
    """The name of the score."""
    is_share: bool
    """Whether the score was 0 or 1 in all cells."""
    best: Extreme
    """The value with the highest mean."""
    worst: Extreme
    """The value with the lowest mean."""


class Varied(Data):
    """A field that varies."""

    path: str
    """The path of the field."""
    values: tuple[Value, ...]
    """The values of the field."""
    extremes: tuple[Extremes, ...] = ()
    """The best and the worst value by each score, also if they are not in `values`. A score is left
    out if its mean is the same for all values.
    """


class Link(Data):
    """A cell as a link to its transcript."""

    number: PositiveInt
    """The cell's number."""
    session: str
    """The session's id."""
    page: str | None = None
    """The address of the transcript. None if it was not written."""


class Sentence(Data):
    """An error sentence, and the cells that have it."""

    text: str
    """The text of the sentence."""
    cells: NonNegativeInt
    """Number of cells with this error."""
    first: tuple[Link, ...]
    """The first of these cells."""


class Line(Link):
    """A cell in the table of cells."""

    row: CellRow
    """The cell's row."""
    values: tuple[str, ...]
    """The values of the fields that vary, in the order of `BatchReport.paths`."""
    kind: Kind
    """The reason why it ended, or its status."""
    scores: tuple[float | None, ...] = ()
    """The scores, in the order of `BatchReport.scores`. None for a missing score."""


class BatchReport(BatchStatus):
    """The results of a batch. `print` and a notebook show a summary."""

    trials: NonNegativeInt
    """Maximum number of trials of a combination of values."""
    combinations: NonNegativeInt
    """Number of combinations that have begun."""
    kinds: tuple[Kind, ...]
    """Number of cells for each reason of the end, and for each status of cells that have not ended.
    """
    histograms: tuple[Histogram, ...]
    """The distributions of messages, tokens and cost."""
    scores: tuple[Score, ...]
    """The scores."""
    absent: tuple[str, ...] = ()
    """The names of the batch's scores that no session has."""
    more_scores: bool
    """Whether the batch has more scores than the report contains."""
    varied: tuple[Varied, ...]
    """The fields that vary, with the results for each value."""
    faults: tuple[Sentence, ...]
    """The errors of cells that failed."""
    unscored: tuple[Sentence, ...]
    """The reasons why scores are missing in cells that have ended."""
    paths: tuple[str, ...]
    """The paths of the fields that vary, in the order of each line's values."""
    lines: tuple[Line, ...]
    """The rows of the table of cells that have begun, in the order of the run or of a score."""
    begun: NonNegativeInt
    """Number of cells that have begun."""
    pages: NonNegativeInt
    """Number of transcripts that were written."""
    page: str | None = None
    """The path of the page. None if no page was written."""

    def score(self, name: str) -> Score:
        """Return a score.

        Raises:
            KeyError: The score does not exist.
        """
        return {one.name: one for one in self.scores}[name]

    def __repr__(self) -> str:
        return f"BatchReport(batch={self.batch!r}, cells={self.cells}, page={self.page!r})"

    # IPython would prefer `__repr__`, because this class defines it.
    _repr_pretty_ = Shown._repr_pretty_

    def _panel(self) -> Panel:
        page = (f"The page was written to {self.page}.",) if self.page else ()
        rows = [(one.words, f"{one.cells:,}") for one in self.kinds]
        for one in self.scores:
            rows.append((f"Score {one.name}", format_estimate(one.mean, is_share=one.is_share)))
            # pass^1 equals the mean.
            rows += [
                (f"Score {one.name}, pass^{k}", format_estimate(found, is_share=True))
                for k, found in enumerate(one.passes[1:], 2)
            ]
            if one.missing:
                rows.append((f"Score {one.name}, missing", f"{one.missing:,}"))
        explained = (
            f"Score {one.name}: {why}."
            for one in self.scores
            if one.is_share and (why := explain_interval(one.mean))
        )
        notes = (self.sample, self.stopped, *page, *self._describe_missing(), *explained)
        return Panel(
            title=f"Batch {self.batch}{self.title and f': {self.title}'}",
            notes=tuple(filter(None, notes)),
            head=("", ""),
            rows=(*rows, *islice(self._extremes(), _MOST_EXTREMES)),
        )

    def _extremes(self) -> Iterator[tuple[str, str]]:
        """Yield the best and the worst values of each field."""
        for field in self.varied:
            for one in field.extremes:
                for name, found in (("best", one.best), ("worst", one.worst)):
                    shown = format_estimate(found.mean, is_share=one.is_share)
                    also = f" and {found.others:,} more" if found.others else ""
                    yield f"Score {one.score}, {name} {field.path}", f"{found.label}{also}: {shown}"

    def _describe_missing(self) -> Iterator[str]:
        """Yield the most frequent reasons why scores are missing."""
        for one in self.unscored[:_MOST_REASONS]:
            sessions = "1 session" if one.cells == 1 else f"{one.cells:,} sessions"
            yield f"In {sessions}: {one.text}"


def format_estimate(found: Estimate, *, is_share: bool) -> str:
    """Format a figure with its interval."""
    shown = format_percent if is_share else format_number
    if found.low is None or found.high is None:
        return shown(found.value)
    return f"{shown(found.value)} ({shown(found.low)} to {shown(found.high)})"


_WIDE: Final = 0.4
"""The width from which the interval of a share is explained."""

_FEW: Final = 20
"""The number of sessions below which a wide interval is due to the sessions. From here on, it is
due to the combinations of values, which differ."""


def explain_interval(found: Estimate) -> str:
    """Return what a wide interval of a share means. Empty if the interval is narrow."""
    if found.low is None or found.high is None or found.high - found.low < _WIDE:
        return ""
    few = "trials" if found.sessions < _FEW else "combinations"
    low, high = f"{100 * found.low:.0f} %", f"{100 * found.high:.0f} %"
    may_be = {1.0: f"as low as {low}", 0.0: f"as high as {high}"}
    rate = may_be.get(found.value, f"between {low} and {high}")
    return f"with so few {few} the true rate may be {rate}"


def format_percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.0f} %" if share in (0, 1) else f"{100 * share:.1f} %"


def format_number(number: float) -> str:
    """Format a number with three significant digits, or without decimals from 1,000 up."""
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"


_NOT_ENDED: Final[Mapping[str, tuple[str, str]]] = {
    "failed": ("It failed", "bad"),
    "waiting": ("It waits for a person", "waiting"),
    "paused": ("It is paused", "paused"),
    "running": ("It is running, or was interrupted", "running"),
    "not_begun": ("It has not begun", "rail"),
}
"""The words and the colours of cells that have not ended, by their status."""


def describe_end(kind: str) -> str:
    """Describe the reason of an end, or the status of cells that have not ended."""
    if kind in ENDS:
        return ENDS[Reason(kind)].report
    # A newer version may have stored other reasons.
    return _NOT_ENDED[kind][0] if kind in _NOT_ENDED else kind.replace("_", " ")


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


def gather_report(
    status: BatchStatus,
    batch: BatchRow,
    rows: Rows,
    *,
    folder: str,
    written: Collection[str],
    shows: Callable[[str], bool] = lambda path: True,
) -> BatchReport:
    """Return the report of a batch.

    Args:
        status: The status of the batch.
        batch: The row of the batch.
        rows: The totals of its cells' rows.
        folder: The name of the folder with the transcripts, next to the page.
        written: The sessions whose transcripts are in that folder.
        shows: Returns whether the page shows the field with a path.
    """

    def link(row: CellRow) -> str | None:
        name = f"{quote(folder)}/{quote(row.session)}.html"
        return name if row.session in written else None

    colours = _colours(rows.all.kinds)
    counts = Counter(rows.all.kinds)
    counts["not_begun"] = max(0, batch.cells - rows.all.cells)
    paths = tuple(filter(shows, rows.fields))
    return BatchReport(
        **dict(status),
        trials=rows.trials,
        combinations=len(rows.combinations),
        kinds=_kinds(counts, colours),
        histograms=tuple(
            _histogram(title, sorted(numbers))
            for title, numbers in rows.figures.items()
            if any(numbers)
        ),
        scores=tuple(_score(rows, name) for name in rows.columns),
        absent=_absent_scores(rows, batch),
        varied=tuple(
            _describe_field(rows, path, colours)
            for path in paths
            if len(rows.fields[path].places) > 1
        ),
        faults=_sentences(rows.failed, link),
        unscored=_sentences(rows.unscored, link),
        paths=paths,
        lines=tuple(_line(rows, row, paths, colours, link) for row in rows.first[:MOST_LINES]),
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


def _colours(kinds: Counter[str]) -> dict[str, str]:
    """Return a colour for each reason and for each status of cells that have not ended."""
    reasons = [name for name, _ in kinds.most_common() if name not in _NOT_ENDED]
    # If there are more reasons than colours, the rarest share one colour.
    named = {name: colour(place if place < 8 else None) for place, name in enumerate(reasons)}
    return {**named, **{name: tone for name, (_, tone) in _NOT_ENDED.items()}}


def _kinds(counts: Mapping[str, int], colours: Mapping[str, str]) -> tuple[Kind, ...]:
    """Return the reasons, the most frequent first, followed by the statuses of other cells."""
    order = {name: place for place, name in enumerate(colours)}
    found = [(name, cells) for name, cells in counts.items() if cells]
    return tuple(
        Kind(name=name, words=describe_end(name), cells=cells, colour=colours[name])
        for name, cells in sorted(found, key=lambda one: order[one[0]])
    )


def _histogram(title: str, numbers: Sequence[float]) -> Histogram:
    """Return the distribution of numbers, which are sorted."""
    least, most = numbers[0], numbers[-1]
    width = (most - least) / _MOST_BARS or 1.0
    if all(map(float.is_integer, numbers)):
        # Each bar has the same number of whole numbers.
        width = ceil((most - least + 1) / _MOST_BARS)
    counts = Counter(min(_MOST_BARS - 1, int((one - least) / width)) for one in numbers)
    return Histogram(
        title=title,
        mean=fmean(numbers),
        median=median_low(numbers),
        ninety=numbers[ceil(0.9 * len(numbers)) - 1],
        least=least,
        most=most,
        bars=tuple(counts[place] for place in range(max(counts) + 1)),
    )


def _score(rows: Rows, name: str) -> Score:
    column = rows.columns[name]
    trials = [one for one in column.each_trials() if one.scored]
    return Score(
        name=name,
        is_share=column.is_share,
        mean=column.mean(trials),
        missing=max(0, rows.all.ended - column.all.many),
        passes=tuple(pass_hat(trials) if column.is_share and rows.trials > 1 else ()),
    )


def _describe_field(rows: Rows, path: str, colours: Mapping[str, str]) -> Varied:
    known = rows.fields[path]
    # The first group contains all values beyond the maximum that `rows` distinguishes.
    ranked = sorted(range(1, len(known.groups)), key=lambda place: -known.groups[place].cells)
    most = _MOST_VALUES if len(ranked) <= _MOST_VALUES else _MOST_VALUES - 1
    shown, rest = sorted(ranked[:most]), [0, *ranked[most:]]
    others = Group()
    for place in rest:
        others.add(known.groups[place])
    trials = {name: rows.trials_by(name, path) for name in rows.columns}
    names = [*known.places]

    def value(label: str, group: Group, places: Sequence[int], *, is_rest: bool = False) -> Value:
        scores: list[Estimate | None] = []
        for name, by_place in trials.items():
            found = [one for place in places for one in by_place.get(place, ())]
            scores.append(rows.columns[name].mean(found) if found else None)
        ended, cost = group.ended, group.cost
        return Value(
            label=_cut(label, _LABEL),
            is_rest=is_rest,
            cells=group.cells,
            kinds=_kinds(group.kinds, colours),
            messages=group.messages / ended if ended else None,
            tokens=group.tokens / ended if ended else None,
            cost=cost / ended if ended and cost is not None else None,
            scores=tuple(scores),
        )

    values = [value(names[place - 1], known.groups[place], [place]) for place in shown]
    if others.cells:
        words = "all others" if known.groups[0].cells else f"{len(rest) - 1:,} others"
        values.append(value(words, others, rest, is_rest=True))
    extremes = (_extremes(name, rows.columns[name], found, names) for name, found in trials.items())
    return Varied(path=path, values=tuple(values), extremes=tuple(filter(None, extremes)))


def _extremes(
    name: str, column: Column, trials: Mapping[int, Sequence[Trials]], names: Sequence[str]
) -> Extremes | None:
    """Return the best and the worst value of a field. None if they are alike, or each is rare."""
    # Place 0 is for all values beyond the maximum.
    means = {place: column.mean(trials[place]) for place in sorted(trials.keys() - {0})}
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


def _sentences(
    faults: Mapping[str, Fault], link: Callable[[CellRow], str | None]
) -> tuple[Sentence, ...]:
    ranked = sorted(faults.items(), key=lambda one: -one[1].cells)
    return tuple(
        Sentence(
            text=_cut(text, 300),
            cells=fault.cells,
            first=tuple(
                Link(number=row.number, session=row.session, page=link(row)) for row in fault.first
            ),
        )
        for text, fault in ranked[:_MOST_SENTENCES]
    )


def _line(
    rows: Rows,
    row: CellRow,
    paths: Sequence[str],
    colours: Mapping[str, str],
    link: Callable[[CellRow], str | None],
) -> Line:
    kind = (row.reason if row.status == "finished" else None) or row.status
    ((found,)) = _kinds({kind: 1}, colours)
    return Line(
        number=row.number,
        session=row.session,
        page=link(row),
        row=row,
        values=tuple(_cut(label_value(row.varied.get(path, "")), _VALUE) for path in paths),
        kind=found,
        scores=tuple(row.scores.get(name) for name in rows.columns),
    )


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 2].rstrip()} …"
