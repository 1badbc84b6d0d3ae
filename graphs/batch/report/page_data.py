"""The data of a batch's page. The templates render it. No value contains HTML."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from pydantic import AwareDatetime, NonNegativeFloat, NonNegativeInt, PositiveInt

from ...common.data import Data
from ...common.display import Panel, Shown
from ..order import describe_sample
from .rows import Estimate

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
    """The median, approximately."""
    ninety: NonNegativeFloat
    """The 90th percentile, approximately."""
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

    trial: PositiveInt
    """The number of the trial."""
    values: tuple[str, ...]
    """The values of the fields that vary, in the order of `BatchReport.paths`."""
    kind: Kind
    """The reason why it ended, or its status."""
    messages: NonNegativeInt
    """Number of messages."""
    tokens: NonNegativeInt
    """Number of tokens."""
    cost: NonNegativeFloat | None
    """Cost of the calls whose prices are known, in the currency of the price table. None if no
    price is known.
    """
    scores: tuple[float | None, ...] = ()
    """The scores, in the order of `BatchReport.scores`. None for a missing score."""


class BatchReport(Shown, Data):
    """The results of a batch. `print` and a notebook show a summary."""

    batch: str
    """The batch's name."""
    title: str
    """The title that all its conversations have, or an empty text."""
    cells: NonNegativeInt
    """Number of cells, including cells that have not begun."""
    sample_of: NonNegativeInt | None = None
    """Number of cells from which the batch's cells were drawn at random. None if it has all."""
    seed: NonNegativeInt | None = None
    """The seed of the shuffled order. None if the cells run in the order of their numbers."""
    trials: NonNegativeInt
    """Maximum number of trials of a combination of values."""
    combinations: NonNegativeInt
    """Number of combinations that have begun."""
    is_running: bool
    """Whether a run of the batch is active."""
    stopped: str | None
    """The reason why the latest run stopped before all cells had ended, as a sentence, or None."""
    seconds: NonNegativeFloat
    """Running time in seconds, over all runs."""
    created_at: AwareDatetime
    """The start time of the batch, in UTC."""
    updated_at: AwareDatetime
    """The time of the last change, in UTC."""
    calls: NonNegativeInt
    """Number of model calls."""
    tokens: NonNegativeInt
    """Number of tokens."""
    cost: NonNegativeFloat | None
    """Cost of the calls whose prices are known, in the currency of the price table. None if no
    price is known.
    """
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
    failed: tuple[Sentence, ...]
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

    @property
    def has_cost(self) -> bool:
        """True if any cost is known."""
        return self.cost is not None

    def of(self, name: str) -> int:
        """Return the number of cells with a reason or a status."""
        return sum(one.cells for one in self.kinds if one.name == name)

    def score(self, name: str) -> Score:
        """Return a score.

        Raises:
            KeyError: The score does not exist.
        """
        for one in self.scores:
            if one.name == name:
                return one
        raise KeyError(name)

    def __str__(self) -> str:
        return self._panel().text()

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

    @property
    def sample(self) -> str | None:
        """The description of the sample, as a sentence. None if the batch has all cells."""
        return describe_sample(self.cells, self.sample_of, self.seed)

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
