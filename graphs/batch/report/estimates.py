"""Means, and pass^1 to pass^k, with 95 % intervals. All functions are pure.

The sample consists of combinations of values. The trials of one combination resemble each other, so
each combination counts as one observation: its mean, or its own pass^k. The interval of a share is
Wilson's, with the number of independent sessions that would vary as much (Korn and Graubard, 1998;
Dean and Pagano, 2015): at least the number of combinations, at most the number of sessions. If
combinations have several trials, Student's quantile allows for few combinations. The interval stays
between 0 and 1, and is wide enough even if all trials pass or if there are few combinations, for
which a bootstrap over combinations and plain clustered standard errors are far too narrow. The
interval of a mean is Student's.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, prod, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

from pydantic import NonNegativeInt

from ...common.data import Data

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
    units = [_all_pass(n, c, k) for n, c in counts]
    sessions = sum(n for n, _ in counts)
    if len(units) > 1:
        return _share(units, sessions)
    # With only one combination, the trials are the sample: the probability that k of them all pass
    # is the share to the power of k.
    ((n, c),) = counts
    low, high = _wilson(c / n, n, _NORMAL)
    return _estimate(units, sessions, low**k, high**k)


def _all_pass(n: int, c: int, k: int) -> float:
    """Return C(c, k) / C(n, k) without computing its large numbers."""
    return prod(max(0, c - taken) / (n - taken) for taken in range(k))


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
