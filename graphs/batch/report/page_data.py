"""What stands on the page of a batch, as data. The templates draw it; nothing in it is HTML."""

from pydantic import AwareDatetime, NonNegativeFloat, NonNegativeInt, PositiveInt

from ...common.data import Data
from ...common.display import Panel, Shown
from .estimates import Estimate


class Kind(Data):
    """A reason why cells ended, or a status of cells that have not."""

    name: str
    """The reason or the status."""
    words: str
    """It, as one says it."""
    cells: NonNegativeInt
    """How many cells it has."""
    colour: str
    """The class of its colour."""


class Histogram(Data):
    """How a figure of the cells that have ended is spread."""

    title: str
    """What it counts."""
    mean: NonNegativeFloat
    """The mean."""
    median: NonNegativeFloat
    """About what half of them do not exceed."""
    ninety: NonNegativeFloat
    """About what nine of ten do not exceed."""
    least: NonNegativeFloat
    """The smallest, in the first bar."""
    most: NonNegativeFloat
    """The largest, in the last."""
    bars: tuple[NonNegativeInt, ...]
    """How many cells fall into each of equally wide bars."""


class Score(Data):
    """A score of a batch."""

    name: str
    """Its name."""
    is_share: bool
    """Whether it was yes or no in all cells."""
    mean: Estimate
    """Its mean; of yes or no, the share of yes."""
    missing: NonNegativeInt
    """How many cells that have ended do not have it."""
    passes: tuple[Estimate, ...] = ()
    """With trials, of yes or no: pass^1, pass^2, … How likely so many trials all pass."""


class Value(Data):
    """The cells that have one value in a field."""

    label: str
    """The value; of the last row, that all others are put together."""
    is_rest: bool = False
    """Whether that is so."""
    cells: NonNegativeInt
    """How many they are."""
    kinds: tuple[Kind, ...]
    """Why they ended, or where they stand."""
    messages: NonNegativeFloat | None
    """How many messages those have on the average that have ended. None: none has."""
    tokens: NonNegativeFloat | None
    """How many tokens those have used."""
    cost: NonNegativeFloat | None
    """What those have cost."""
    scores: tuple[Estimate | None, ...] = ()
    """Their scores, as they are listed."""


class Varied(Data):
    """A field that varies."""

    path: str
    """Its path."""
    values: tuple[Value, ...]
    """Its values."""


class Link(Data):
    """A cell by its number."""

    number: PositiveInt
    """Its number."""
    session: str
    """Its session."""
    page: str | None = None
    """Where its transcript is. None: it was not written."""


class Sentence(Data):
    """What cells have in common that is wrong with them."""

    text: str
    """It, in a sentence."""
    cells: NonNegativeInt
    """How many they are."""
    first: tuple[Link, ...]
    """The first of them."""


class Line(Link):
    """A cell."""

    trial: PositiveInt
    """Which of the trials it is."""
    values: tuple[str, ...]
    """What varies, as the fields are listed."""
    kind: Kind
    """Why it ended, or where it stands."""
    messages: NonNegativeInt
    """Its messages."""
    tokens: NonNegativeInt
    """Its tokens."""
    cost: NonNegativeFloat
    """What it cost."""
    scores: tuple[float | None, ...] = ()
    """Its scores, as they are listed."""


class BatchReport(Shown, Data):
    """What a batch has come to. `print` and a notebook show it in short."""

    batch: str
    """Its name."""
    title: str
    """What its conversations are about."""
    cells: NonNegativeInt
    """How many cells it has, those that have not begun included."""
    trials: NonNegativeInt
    """How many trials each combination of values has."""
    combinations: NonNegativeInt
    """How many combinations have begun."""
    is_running: bool
    """Whether somebody is running it now."""
    stopped: str | None
    """Why its latest run stopped before all cells had ended, in a sentence."""
    seconds: NonNegativeFloat
    """How long it has run, of all its runs together."""
    created_at: AwareDatetime
    """When it began, UTC."""
    updated_at: AwareDatetime
    """When it last changed, UTC."""
    calls: NonNegativeInt
    """Its model calls."""
    tokens: NonNegativeInt
    """Its tokens."""
    cost: NonNegativeFloat
    """What it has cost, where the prices are known."""
    kinds: tuple[Kind, ...]
    """Why its cells ended, and where those stand that have not."""
    histograms: tuple[Histogram, ...]
    """How long its sessions are, and what they have used."""
    scores: tuple[Score, ...]
    """Its scores."""
    more_scores: bool
    """Whether there are more, which were not added up."""
    varied: tuple[Varied, ...]
    """What varies, with what the cells of each value have come to."""
    failed: tuple[Sentence, ...]
    """Why cells have failed."""
    unscored: tuple[Sentence, ...]
    """Why cells that have ended have scores missing."""
    paths: tuple[str, ...]
    """The fields that vary, as each cell lists them."""
    lines: tuple[Line, ...]
    """The first cells."""
    begun: NonNegativeInt
    """How many cells have begun."""
    pages: NonNegativeInt
    """How many transcripts were written."""
    page: str | None = None
    """The file with this on a page. None: none was written."""

    @property
    def has_cost(self) -> bool:
        """Whether there are prices."""
        return self.cost > 0

    def of(self, name: str) -> int:
        """Say how many cells have a reason or a status."""
        return sum(one.cells for one in self.kinds if one.name == name)

    def score(self, name: str) -> Score:
        """Return a score.

        Raises:
            KeyError: There is none of this name.
        """
        for one in self.scores:
            if one.name == name:
                return one
        raise KeyError(name)

    def __str__(self) -> str:
        return self._panel().text()

    def __repr__(self) -> str:
        return f"BatchReport(batch={self.batch!r}, cells={self.cells}, page={self.page!r})"

    # IPython would take `__repr__`, since it stands in this class.
    _repr_pretty_ = Shown._repr_pretty_

    def _panel(self) -> Panel:
        page = (f"The page is {self.page}.",) if self.page else ()
        rows = [(one.words, f"{one.cells:,}") for one in self.kinds]
        for one in self.scores:
            rows.append((f"Score {one.name}", format_estimate(one.mean, is_share=one.is_share)))
            # pass^1 is the mean.
            rows += [
                (f"Score {one.name}, pass^{k}", format_estimate(found, is_share=True))
                for k, found in enumerate(one.passes[1:], 2)
            ]
            if one.missing:
                rows.append((f"Score {one.name}, missing", f"{one.missing:,}"))
        return Panel(
            title=f"Batch {self.batch}{self.title and f': {self.title}'}",
            notes=tuple(filter(None, (self.stopped, *page))),
            head=("", ""),
            rows=tuple(rows),
        )


def format_estimate(found: Estimate, *, is_share: bool) -> str:
    """Write a figure with its interval."""
    shown = format_percent if is_share else format_number
    if found.low is None or found.high is None:
        return shown(found.value)
    return f"{shown(found.value)} ({shown(found.low)} to {shown(found.high)})"


def format_percent(share: float) -> str:
    """Write a share down."""
    return f"{100 * share:.0f} %" if share in (0, 1) else f"{100 * share:.1f} %"


def format_number(number: float) -> str:
    """Write a number down with three digits, or all that stand before the point."""
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"
