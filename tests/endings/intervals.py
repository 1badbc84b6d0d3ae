"""Estimates with 95 % intervals, by published formulas.

Shares: Wilson's score interval (Wilson 1927). Quantiles: order statistics by the normal
approximation of the binomial (Conover 1999, 3.2). Means: the normal approximation. κ: Cohen's
(1960), with a jackknife over dialogues, since the prefixes of one dialogue depend on each other.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor, sqrt
from typing import NamedTuple

Z = 1.959964
"""The quantile of the normal distribution that leaves out 5 %."""


class Estimate(NamedTuple):
    """A value with its interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


class Table(NamedTuple):
    """Counts of the agreement of two judgements: the labels' and the rules'."""

    both: int = 0  # yes by both
    rule: int = 0  # yes by the rules alone
    label: int = 0  # yes by the labels alone
    neither: int = 0  # no by both

    @classmethod
    def of(cls, *, rule: bool, label: bool) -> "Table":
        """Return the table of one pair of judgements."""
        return cls(rule and label, rule and not label, label and not rule, not (rule or label))

    @classmethod
    def total(cls, tables: Iterable["Table"]) -> "Table":
        """Return the sum of tables."""
        return cls(*map(sum, zip(cls(), *tables, strict=True)))

    def minus(self, other: "Table") -> "Table":
        """Return the difference of two tables."""
        return Table(*(one - two for one, two in zip(self, other, strict=True)))


def share(count: int, of: int) -> Estimate | None:
    """Return a share by Wilson's interval, or None of nothing."""
    if not of:
        return None
    middle = (count + Z**2 / 2) / (of + Z**2)
    half = Z * sqrt(count * (of - count) / of + Z**2 / 4) / (of + Z**2)
    return Estimate(count / of, max(0.0, middle - half), min(1.0, middle + half))


def mean(values: Sequence[float]) -> Estimate | None:
    """Return a mean of counts, or None of nothing; the interval of one value is the value."""
    if not values:
        return None
    size = len(values)
    average = sum(values) / size
    spread = sum((value - average) ** 2 for value in values) / max(size - 1, 1)
    half = Z * sqrt(spread / size)
    return Estimate(average, max(0.0, average - half), average + half)


def quantile(values: Sequence[float], at: float) -> Estimate | None:
    """Return a quantile: the smallest value that at least this share of all do not exceed."""
    if not values:
        return None
    ordered, size = sorted(values), len(values)
    half = Z * sqrt(size * at * (1 - at))
    places = (ceil(size * at), floor(size * at - half), ceil(size * at + half))
    return Estimate(*(float(ordered[min(max(place, 1), size) - 1]) for place in places))


def kappa(tables: Sequence[Table]) -> Estimate | None:
    """Return Cohen's κ of the sum of tables, one for each dialogue.

    None if either judgement never varies by chance alone: κ is 0 / 0.
    """
    total = Table.total(tables)
    found = _kappa(total)
    if found is None:
        return None
    without = [_kappa(total.minus(table)) for table in tables]
    left = [value for value in without if value is not None]
    if len(left) < 2:
        return Estimate(found, found, found)
    middle = sum(left) / len(left)
    spread = (len(left) - 1) / len(left) * sum((value - middle) ** 2 for value in left)
    half = Z * sqrt(spread)
    return Estimate(found, max(-1.0, found - half), min(1.0, found + half))


def _kappa(table: Table) -> float | None:
    size = sum(table)
    if not size:
        return None
    by_rule = (table.both + table.rule) / size
    by_label = (table.both + table.label) / size
    expected = by_rule * by_label + (1 - by_rule) * (1 - by_label)
    observed = (table.both + table.neither) / size
    return None if expected == 1 else (observed - expected) / (1 - expected)
