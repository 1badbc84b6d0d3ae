"""The cells of a run, and their order: a permutation whose beginnings cover the grid."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import prod

from hypothesis import strategies as st

from duologue.graphs.batch.cells import Cells, RunCells
from duologue.graphs.batch.driver import BatchSettings, select_cells
from duologue.graphs.batch.order import RunOrder
from support.batches import cells_of as cells_with
from support.cases import drawn_cases


def cells_of(sizes: list[int], trials: int) -> Cells:
    vary = {f"labels.{place}": [*range(size)] for place, size in enumerate(sizes)}
    return cells_with(vary, trials=trials)


@drawn_cases(
    8,
    60,
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    trials=st.integers(1, 2),
    sample=st.none() | st.integers(1, 60),
    limit=st.none() | st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_a_run_has_the_first_cells_of_its_sample_each_once(
    sizes: list[int], trials: int, sample: int | None, limit: int | None, seed: int
) -> None:
    cells = cells_of(sizes, trials)
    all_ = [cell.session for cell in select_cells(cells, BatchSettings(seed=seed))]
    run = select_cells(cells, BatchSettings(limit=limit, sample=sample, seed=seed))
    most = min(limit or cells.count, sample or cells.count, cells.count)
    assert len(run) == most
    assert [cell.session for cell in run] == all_[:most]
    assert sorted(all_) == sorted(cell.session for cell in cells)
    assert run.is_whole is (most == cells.count)
    assert run.selection.cells == min(sample or cells.count, cells.count)
    assert (run.selection.sample_of is None) is (run.selection.cells == cells.count)
    # It is stored with the batch, and read again.
    assert select_cells(cells, BatchSettings(), run.selection) == RunCells(cells, run.selection)


SIZES = st.lists(st.integers(1, 12), max_size=5).filter(lambda sizes: prod(sizes) <= 2_000)
SEEDS = st.integers(0, 2**64)


def rows_in_order(order: RunOrder) -> list[tuple[int, ...]]:
    """Return the rows of the cells of the first trial, in the order in which they run."""
    all_ = [*product(*map(range, order.sizes))]
    return [all_[(number - 1) // order.trials] for number in order.numbers(order.combinations)]


def spread(values: Sequence[object], each: int) -> int:
    """Return the largest difference between the counts of two values in any beginning."""
    counts, most = Counter[object](), 0
    for value in values:
        counts[value] += 1
        least = min(counts.values()) if len(counts) == each else 0
        most = max(most, counts[value] - least)
    return most


@drawn_cases(15, 400, sizes=SIZES, trials=st.integers(1, 3), seed=st.none() | SEEDS)
def test_each_cell_has_one_place(sizes: list[int], trials: int, seed: int | None) -> None:
    order = RunOrder(sizes=tuple(sizes), trials=trials, seed=seed)
    numbers = [*order.numbers(10**9)]
    assert sorted(numbers) == [*range(1, order.cells + 1)]
    assert [order.place(number) for number in numbers] == [*range(order.cells)]
    assert [*order.numbers(3)] == numbers[:3]
    assert order.place(order.cells + 5) == order.cells + 4
    if seed is None:
        assert numbers == sorted(numbers)
    else:
        tried = [(number - 1) % trials for number in numbers]
        assert tried == sorted(tried)


@drawn_cases(15, 400, sizes=SIZES, seed=SEEDS)
def test_every_beginning_covers_the_values_of_each_field_equally(
    sizes: list[int], seed: int
) -> None:
    rows = rows_in_order(RunOrder(sizes=tuple(sizes), seed=seed))
    for field, size in enumerate(sizes):
        assert spread([row[field] for row in rows], size) <= 1
    for first in range(len(sizes) + 1):
        assert spread([row[:first] for row in rows], prod(sizes[:first])) <= 1


def unevenness(rows: Iterable[tuple[int, ...]], sizes: Sequence[int], most: int) -> float:
    """Return how unevenly the first rows cover pairs of values. A random order has 1 on average."""
    first, all_, ratios = [*rows][:most], prod(sizes), list[float]()
    for one, other in combinations(range(len(sizes)), 2):
        pairs = sizes[one] * sizes[other]
        counts = Counter((row[one], row[other]) for row in first)
        wanted = most / pairs
        squares = sum((many - wanted) ** 2 for many in counts.values())
        squares += (pairs - len(counts)) * wanted**2
        # The variance of the hypergeometric distribution, for each pair.
        ratios.append(squares / (most * (1 - 1 / pairs) * (all_ - most) / (all_ - 1)))
    return sum(ratios) / len(ratios)


def test_pairs_of_values_are_covered_about_as_evenly_as_in_a_random_order_or_more() -> None:
    of_grid = list[float]()
    for sizes in (
        *((20, 20, 10), (10, 20, 20), (3, 3, 50), (50, 3, 3), (6, 9, 4), (100, 4, 3)),
        *((4, 4, 4, 4), (10, 10, 5, 5), (7, 7, 7), (3,) * 5, (2,) * 7),
    ):
        found = list[float]()
        for seed in range(3):
            rows = rows_in_order(RunOrder(sizes=sizes, seed=seed))
            beginnings = (int(share * len(rows)) for share in (0.1, 0.35, 0.6))
            found += (unevenness(rows, sizes, most) for most in beginnings)
        of_grid.append(sum(found) / len(found))
    # Without the random shifts, equal factors tie two fields together, and the maximum is 16.
    assert max(of_grid) <= 1.2
    assert sum(of_grid) / len(of_grid) <= 0.7


def test_a_seed_stands_for_the_same_order_in_all_versions() -> None:
    order = RunOrder(sizes=(3, 4, 2), trials=2, seed=7)
    assert [*order.numbers(8)] == [21, 43, 15, 17, 37, 11, 31, 33]


def test_a_large_grid_is_not_listed() -> None:
    order = RunOrder(sizes=(25_000, 40, 1_000), seed=3)
    for place in (0, 1, 10**8, order.cells - 1):
        assert order.place(order.number(place)) == place
