"""Means, and pass^1 to pass^k, with intervals of 95 %. Pure functions.

What is sampled are the combinations of values, and the trials of one combination resemble each
other, so that each combination counts as one observation: its mean, or its own pass^k. The interval
of a share is Wilson's, at the number of independent sessions that would vary as much (Korn and
Graubard, 1998; Dean and Pagano, 2015): at least that of combinations, at most that of sessions, and
with Student's quantile for the few combinations. It stays within 0 and 1, and is as wide as it
should be where all have passed or there are few combinations, where a bootstrap over combinations
or plain clustered standard errors are far too narrow. The interval of a mean is Student's.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, prod, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

from pydantic import NonNegativeInt

from ...common.data import Data

_NORMAL: Final = NormalDist().inv_cdf(0.975)

MOST_K: Final = 20
"""Up to which k pass^k is told."""


class Estimate(Data):
    """A figure with its interval."""

    value: float
    """The figure."""
    low: float | None = None
    """Where its interval of 95 % begins. None: there is too little to tell."""
    high: float | None = None
    """Where it ends."""
    combinations: NonNegativeInt
    """How many combinations of values it was taken from."""
    sessions: NonNegativeInt
    """How many sessions it was taken from."""


class Trials(NamedTuple):
    """What the trials of one combination have given."""

    scored: int
    """How many have a score."""
    sum: float
    """Its sum; of a yes or no, how many passed."""


def mean_of(combinations: Sequence[Trials], *, is_share: bool, spread: float = 0.0) -> Estimate:
    """Return the mean of a score over combinations, of which each counts the same.

    Args:
        combinations: What each has given; some is scored in all.
        is_share: Whether it is a yes or no.
        spread: The variance of all sessions, which tells where there is but one combination.
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


def pass_hat(combinations: Iterable[Trials], most: int = MOST_K) -> list[Estimate]:
    """Give pass^1, pass^2, … up to the most trials that a combination has.

    pass^k is how likely k trials of a combination all pass (tau-bench): of n trials with c passes
    C(c, k) / C(n, k), averaged over the combinations that have k trials.
    """
    all_ = [(one.scored, round(one.sum)) for one in combinations if one.scored]
    found: list[Estimate] = []
    for k in range(1, min(most, max((n for n, _ in all_), default=0)) + 1):
        one = _pass([(n, c) for n, c in all_ if n >= k], k)
        if found and found[-1].high is not None and one.high is not None:
            # More trials never all pass more often than fewer.
            high = max(one.value, min(one.high, found[-1].high))
            one = one.model_copy(update={"high": high})
        found.append(one)
    return found


def _pass(counts: Sequence[tuple[int, int]], k: int) -> Estimate:
    units = [_all_pass(n, c, k) for n, c in counts]
    sessions = sum(n for n, _ in counts)
    if len(units) > 1:
        return _share(units, sessions)
    # Of one combination the trials are all there is: k of them pass as one does, k times.
    ((n, c),) = counts
    low, high = _wilson(c / n, n, _NORMAL)
    return _estimate(units, sessions, low**k, high**k)


def _all_pass(n: int, c: int, k: int) -> float:
    """C(c, k) / C(n, k), without its large numbers."""
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
    # That of the standard library is exact, and takes a hundred times as long.
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
    """Student's quantile for 95 %, by its series where that has come near enough."""
    z, v = _NORMAL, freedom
    series = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
    return _STUDENT.get(freedom, series)
