"""Means of a batch's scores, and pass^k, with intervals that are meaningful and possible."""

from itertools import combinations
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import given, settings, strategies as st

from duologue.graphs.batch.report.rows import Estimate, Rows, Trials, mean_of, pass_hat
from support.batches import cell_row

PASSES = st.lists(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=12,
)
"""Number of trials per combination, and number of passes among them."""


def drawn(n: int, c: int, k: int) -> float:
    """Return the fraction of draws of k trials that contain only passes."""
    trials = [place < c for place in range(n)]
    return fmean(all(one) for one in combinations(trials, k))


@given(PASSES)
@settings(max_examples=60)
def test_pass_k_is_the_share_of_draws_of_k_that_all_pass(
    counts: list[tuple[int, int]],
) -> None:
    found = pass_hat(Trials(n, c) for n, c in counts)
    assert len(found) == max(n for n, _ in counts)
    for k, one in enumerate(found, 1):
        enough = [(n, c) for n, c in counts if n >= k]
        assert one.value == pytest.approx(fmean(drawn(n, c, k) for n, c in enough))
        assert (one.combinations, one.sessions) == (len(enough), sum(n for n, _ in enough))
        assert one.low is not None
        assert one.high is not None
        assert 0 <= one.low <= one.value <= one.high <= 1
        # Even if all pass, or none does, other trials may differ.
        assert one.high > one.low
        if k > 1 and one.combinations == found[0].combinations:
            assert one.high <= (found[k - 2].high or 0)
    assert mean_of([Trials(n, c) for n, c in counts], is_share=True) == found[0]


def width(one: Estimate) -> float:
    assert one.low is not None
    assert one.high is not None
    return one.high - one.low


def test_trials_that_resemble_each_other_tell_less_than_as_many_that_do_not() -> None:
    alike = [Trials(4, 4), Trials(4, 0)] * 8
    mixed = [Trials(4, 3), Trials(4, 1)] * 8
    one_by_one = [Trials(1, 1), Trials(1, 0)] * 8
    whole, half, single = (mean_of(one, is_share=True) for one in (alike, mixed, one_by_one))
    assert whole.value == half.value == single.value == 0.5
    # Four equal trials are no more informative than one.
    assert width(whole) >= width(single) > width(half)


def test_a_batch_without_trials_has_wilsons_interval() -> None:
    found = mean_of([Trials(1, 1)] * 18 + [Trials(1, 0)] * 2, is_share=True)
    assert found.value == 0.9
    assert found.low == pytest.approx(0.6990, abs=1e-4)
    assert found.high == pytest.approx(0.9721, abs=1e-4)


def test_the_mean_of_numbers_has_students_interval_over_combinations() -> None:
    units = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0]
    found = mean_of([Trials(2, 2 * one) for one in units], is_share=False)
    assert found.value == pytest.approx(5)
    assert found.high == pytest.approx(5 + 2.5706 * stdev(units) / 6**0.5, abs=1e-3)
    # For many trials it is the normal interval.
    many = mean_of([Trials(1, one) for one in units] * 500, is_share=False)
    normal = NormalDist().inv_cdf(0.975) * stdev(units * 500) / 3000**0.5
    assert width(many) == pytest.approx(2 * normal, rel=1e-3)


def test_one_combination_is_judged_by_its_trials_and_one_session_by_nothing() -> None:
    found = mean_of([Trials(4, 8)], is_share=False, spread=4.0)
    assert (found.value, found.combinations, found.sessions) == (2, 1, 4)
    assert width(found) == pytest.approx(2 * 3.1824, abs=1e-3)
    alone = mean_of([Trials(1, 3)], is_share=False)
    assert (alone.value, alone.low, alone.high) == (3, None, None)


def test_only_the_rows_with_the_lowest_ranks_are_kept() -> None:
    rows = Rows(3, lambda row: (row.number * 7 % 11,))
    for number in range(1, 12):
        rows.add(cell_row(number))
    assert [row.number for row in rows.first] == [11, 8, 5]
