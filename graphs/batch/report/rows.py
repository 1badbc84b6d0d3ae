"""The totals of a batch's rows, and estimates from them: means and pass^k with 95 % intervals.

The totals are computed in one pass. Of most rows, only some numbers are kept in arrays.

The sample of an estimate consists of combinations of values. The trials of one combination resemble
each other, so each combination counts as one observation: its mean, or its own pass^k. The interval
of a share is Wilson's, with the number of independent sessions that would vary as much (Korn and
Graubard, 1998; Dean and Pagano, 2015): at least the number of combinations, at most the number of
sessions. If combinations have several trials, Student's quantile allows for few combinations. The
interval stays between 0 and 1, and is wide enough even if all trials pass or if there are few
combinations, for which a bootstrap over combinations and plain clustered standard errors are far
too narrow. The interval of a mean is Student's.
"""

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, prod, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple, TypeAlias

from pydantic import JsonValue, NonNegativeInt

from ...common.data import Data, sum_known
from ...store.batches import CellRow

_NORMAL: Final = NormalDist().inv_cdf(0.975)

MOST_K: Final = 20
"""The largest k of pass^k."""


class Estimate(Data):
    """A figure with its interval."""

    value: float
    """The figure."""
    low: float | None = None
    """The lower end of the 95 % interval. None if there are too few sessions."""
    high: float | None = None
    """The upper end of the interval, or None."""
    combinations: NonNegativeInt
    """Number of combinations of values in the sample."""
    sessions: NonNegativeInt
    """Number of sessions in the sample."""


class Trials(NamedTuple):
    """The scores of one combination's trials."""

    scored: int
    """Number of trials with the score."""
    sum: float
    """The sum of the score. If the score is a bool, the number of trials that passed."""


def mean_of(combinations: Sequence[Trials], *, is_share: bool, spread: float = 0.0) -> Estimate:
    """Return the mean of a score over combinations. Each combination has the same weight.

    Args:
        combinations: The trials of each combination. Each has at least one scored trial.
        is_share: Whether the score is a bool.
        spread: The variance of the score over all sessions, used if there is one combination.
    """
    units = [one.sum / one.scored for one in combinations]
    sessions = sum(one.scored for one in combinations)
    if is_share:
        return _share(units, sessions)
    found = Estimate(value=fmean(units), combinations=len(units), sessions=sessions)
    many = len(units) if len(units) > 1 else sessions
    if many == 1:
        return found
    half = _student(many - 1) * sqrt((_variance(units) if len(units) > 1 else spread) / many)
    return found.model_copy(update={"low": found.value - half, "high": found.value + half})


def pass_hat(combinations: Iterable[Trials]) -> list[Estimate]:
    """Return pass^1, pass^2, … up to the largest number of trials of a combination.

    pass^k is the probability that k trials of a combination all pass (tau-bench). For n trials with
    c passes it is C(c, k) / C(n, k), averaged over the combinations that have at least k trials.
    """
    all_ = [(one.scored, round(one.sum)) for one in combinations if one.scored]
    found: list[Estimate] = []
    for k in range(1, min(MOST_K, max((n for n, _ in all_), default=0)) + 1):
        one = _pass([(n, c) for n, c in all_ if n >= k], k)
        if found and found[-1].high is not None and one.high is not None:
            # More trials cannot all pass more often than fewer.
            high = max(one.value, min(one.high, found[-1].high))
            one = one.model_copy(update={"high": high})
        found.append(one)
    return found


def _pass(counts: Sequence[tuple[int, int]], k: int) -> Estimate:
    # C(c, k) / C(n, k), without computing its large numbers.
    units = [prod(max(0, c - taken) / (n - taken) for taken in range(k)) for n, c in counts]
    sessions = sum(n for n, _ in counts)
    if len(units) > 1:
        return _share(units, sessions)
    # With only one combination, the trials are the sample: the probability that k of them all pass
    # is the share to the power of k.
    ((n, c),) = counts
    low, high = _wilson(c / n, n, _NORMAL)
    return _estimate(units, sessions, low**k, high**k)


def _share(units: Sequence[float], sessions: int) -> Estimate:
    many, value = len(units), fmean(units)
    if many == 1:
        return _estimate(units, sessions, *_wilson(value, sessions, _NORMAL))
    error = _variance(units) / many
    alike = value * (1 - value) / error if error else many
    quantile = _NORMAL if sessions == many else _student(many - 1)
    return _estimate(units, sessions, *_wilson(value, min(max(alike, many), sessions), quantile))


def _variance(units: Sequence[float]) -> float:
    # The standard library's variance is exact, but takes a hundred times as long.
    middle = fmean(units)
    return fsum((one - middle) ** 2 for one in units) / (len(units) - 1)


def _estimate(units: Sequence[float], sessions: int, low: float, high: float) -> Estimate:
    value = fmean(units)
    return Estimate(
        value=value,
        low=max(0.0, min(low, value)),
        high=min(1.0, max(high, value)),
        combinations=len(units),
        sessions=sessions,
    )


def _wilson(share: float, many: float, quantile: float) -> tuple[float, float]:
    square = quantile**2 / many
    middle = (share + square / 2) / (1 + square)
    half = quantile / (1 + square) * sqrt(share * (1 - share) / many + square / (4 * many))
    return middle - half, middle + half


_STUDENT: Final[Mapping[int, float]] = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706}


def _student(freedom: int) -> float:
    """Return Student's 95 % quantile, from a table up to 5 degrees of freedom, then by series."""
    z, v = _NORMAL, freedom
    series = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
    return _STUDENT.get(freedom, series)


@dataclass
class Moments:
    """The mean and the variance of numbers."""

    many: int = 0
    """Count of the numbers."""
    mean: float = 0.0
    """Their mean."""
    squares: float = 0.0
    """The sum of the squared deviations from the mean."""

    def add(self, number: float) -> None:
        """Add a number (Welford's algorithm)."""
        self.many += 1
        off = number - self.mean
        self.mean += off / self.many
        self.squares += off * (number - self.mean)

    @property
    def variance(self) -> float:
        """The sample variance. 0 for a single number."""
        return self.squares / (self.many - 1) if self.many > 1 else 0.0


@dataclass
class Group:
    """The totals of cells that have something in common."""

    cells: int = 0
    """Number of cells."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The counts of the end reasons, and of the statuses of cells that have not ended."""
    ended: int = 0
    """Number of cells that have ended."""
    messages: int = 0
    """Number of messages of the cells that have ended."""
    tokens: int = 0
    """Number of tokens of the cells that have ended."""
    cost: float | None = None
    """Cost of the cells that have ended. None if no price is known."""

    def add(self, other: "Group") -> None:
        """Add the totals of another group."""
        self.cells += other.cells
        self.kinds.update(other.kinds)
        self.ended += other.ended
        self.messages += other.messages
        self.tokens += other.tokens
        self.cost = sum_known((self.cost, other.cost))


_MOST_VALUES: Final = 500
"""Maximum number of values of a field that are distinguished."""

_MOST_FAULTS: Final = 500
"""Maximum number of error sentences that are distinguished."""

_MOST_SCORES: Final = 60
"""Maximum number of scores that are summed up."""

_EXAMPLES: Final = 8


@dataclass
class Fault:
    """The cells that have the same error sentence."""

    cells: int = 0
    """Number of cells."""
    first: list[CellRow] = field(default_factory=list)
    """The rows of the first cells."""


@dataclass
class Column:
    """A score of all cells, summed up for each combination of values."""

    scored: "array[int]" = field(default_factory=lambda: array("I"))
    """Number of trials with this score, by combination."""
    sums: "array[float]" = field(default_factory=lambda: array("d"))
    """The sum of the score over these trials, by combination."""
    all: Moments = field(default_factory=Moments)
    """The mean and variance over all cells."""
    is_share: bool = True
    """Whether the score was 0 or 1 in all cells."""

    def add(self, combination: int, value: float) -> None:
        """Add a cell's score."""
        for column in (self.scored, self.sums):
            if len(column) <= combination:
                column.extend([0] * (combination + 1 - len(column)))
        self.scored[combination] += 1
        self.sums[combination] += value
        self.all.add(value)
        self.is_share = self.is_share and value in (0, 1)

    def mean(self, trials: Sequence[Trials]) -> Estimate:
        """Return the mean of the score over some combinations."""
        # A single combination has no variance, so the variance over all cells is used.
        return mean_of(trials, is_share=self.is_share, spread=self.all.variance)

    def each_trials(self) -> Iterator[Trials]:
        """Yield the trials of each combination, also of those without the score."""
        return map(Trials, self.scored, self.sums)


@dataclass
class Field:
    """A field that varies."""

    places: dict[str, int] = field(default_factory=dict)
    """The place of each value, from 1. Place 0 is for all values beyond the maximum."""
    groups: list[Group] = field(default_factory=lambda: [Group()])
    """The totals of the cells with each value, by place."""
    of: "array[int]" = field(default_factory=lambda: array("H"))
    """The place of each combination's value."""

    def place(self, value: JsonValue) -> int:
        """Return the place of a value."""
        text = label_value(value)
        place = self.places.get(text)
        if place is None and len(self.places) < _MOST_VALUES:
            self.groups.append(Group())
            place = self.places[text] = len(self.places) + 1
        return place or 0


def label_value(value: JsonValue) -> str:
    """Return a value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Rank: TypeAlias = tuple[float, ...]
"""The rank of a row in a list."""


@dataclass
class Rows:
    """The totals of all rows of a batch."""

    listed: int
    """Maximum number of rows that are kept in `first`."""
    rank: Callable[[CellRow], Rank] = field(default=lambda row: (row.number,))
    """The rank of a row. The rows with the lowest ranks are kept."""
    all: Group = field(default_factory=Group)
    """The totals of all cells that have begun."""
    trials: int = 0
    """Maximum number of trials of a combination."""
    figures: "Mapping[str, array[float]]" = field(
        default_factory=lambda: {name: array("d") for name in ("Messages", "Tokens", "Cost")}
    )
    """The messages, tokens and costs of each session that has ended."""
    fields: dict[str, Field] = field(default_factory=dict)
    """The fields that vary, by path."""
    columns: dict[str, Column] = field(default_factory=dict)
    """The scores, by name."""
    more_scores: bool = False
    """Whether there are more scores than are summed up."""
    failed: dict[str, Fault] = field(default_factory=dict)
    """The errors of cells that failed."""
    unscored: dict[str, Fault] = field(default_factory=dict)
    """The reasons why scores are missing in cells that have ended."""
    combinations: dict[int, int] = field(default_factory=dict)
    """The place of each combination, by the hash of the values."""
    _kept: list[tuple[Rank, int, CellRow]] = field(default_factory=list)

    @property
    def first(self) -> list[CellRow]:
        """The rows with the lowest ranks, lowest first."""
        return [row for *_, row in sorted(self._kept)[: self.listed]]

    def add(self, row: CellRow) -> None:
        """Add the next row."""
        self._kept.append((self.rank(row), self.all.cells, row))
        if len(self._kept) > 2 * self.listed:
            self._kept = sorted(self._kept)[: self.listed]
        self._count(row)
        combination = self._combination(row)
        for name, value in row.scores.items():
            if name in self.columns or len(self.columns) < _MOST_SCORES:
                self.columns.setdefault(name, Column()).add(combination, value)
            else:
                self.more_scores = True
        if row.error is not None:
            faults = self.failed if row.status == "failed" else self.unscored
            _add_fault(faults, row, row.error)

    def _count(self, row: CellRow) -> None:
        self.trials = max(self.trials, row.trial)
        has_ended = row.status == "finished"
        kind = (row.reason if has_ended else None) or row.status
        groups = [self.all]
        for path, value in row.varied.items():
            known = self.fields.setdefault(path, Field())
            groups.append(known.groups[known.place(value)])
        for group in groups:
            group.cells += 1
            group.kinds[kind] += 1
            if has_ended:
                group.ended += 1
                group.messages += row.messages
                group.tokens += row.tokens
                group.cost = sum_known((group.cost, row.cost))
        if has_ended:
            for numbers, value in zip(
                self.figures.values(), (row.messages, row.tokens, row.cost), strict=True
            ):
                if value is not None:
                    numbers.append(value)

    def _combination(self, row: CellRow) -> int:
        # A hash instead of the values, which may be long texts.
        key = hash(json.dumps(row.varied, sort_keys=True))
        known = len(self.combinations)
        place = self.combinations.setdefault(key, known)
        if place == known:
            for path, value in row.varied.items():
                one = self.fields[path]
                one.of.extend([0] * (place - len(one.of)))
                one.of.append(one.place(value))
        return place

    def trials_by(self, name: str, path: str) -> dict[int, list[Trials]]:
        """Return a score's trials for each combination, by the value's place in a field."""
        found = defaultdict[int, list[Trials]](list)
        places = self.fields[path].of
        for place, one in zip(places, self.columns[name].each_trials(), strict=False):
            if one.scored:
                found[place].append(one)
        return found


def _add_fault(faults: dict[str, Fault], row: CellRow, sentence: str) -> None:
    # Without the session's id, the same error of two sessions is the same sentence.
    text = sentence.replace(row.session, "…")
    if text not in faults and len(faults) >= _MOST_FAULTS:
        text = "Other sentences"
    fault = faults.setdefault(text, Fault())
    fault.cells += 1
    if len(fault.first) < _EXAMPLES:
        fault.first.append(row)
