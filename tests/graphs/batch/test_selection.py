"""Limits, samples and the order of a batch's run, and what a resumed batch keeps of them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from duologue.graphs import BatchError, BatchLimits, BatchRun, SpecError, arun_batch
from duologue.graphs.batch.cells import Cells, RunCells
from duologue.graphs.batch.driver import BatchSettings, select_cells
from duologue.graphs.batch.order import RunOrder
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.batch.status import BatchStatus
from duologue.nodes.testing import Call, Prompt, ScriptedChatModel
from support.cases import drawn_cases
from support.tables import read_rows

GRID: dict[str, Any] = {
    "conversation": {
        "task": "Sell.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    },
    "vary": {"labels.price": [10, 20, 30, 40], "task": ["Boat", "House", "Car"]},
}
ORDER = RunOrder(sizes=(4, 3), seed=0)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}"


class Runs:
    """Runs of one batch in one store, and the numbers of the cells whose sessions they began."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.began = list[str]()
        self.begun_four = asyncio.Event()

    def _says(self, prompt: Prompt, call: Call) -> str:
        if call.speaker == "Ann":
            self.began.append(prompt[0]["content"])
            if len(self.began) == 4:
                self.begun_four.set()
        return "Yes."

    async def run(self, given: dict[str, Any] = GRID, **options: Any) -> BatchStatus:
        return await arun_batch(
            given,
            name="b",
            store=self.store,
            concurrency=1,
            model=ScriptedChatModel(self._says),
            **options,
        )

    async def numbers(self) -> list[int]:
        """Return the numbers of the cells that have begun, in the order in which they ended."""
        rows = await BatchRun("b", store=self.store).arows()
        return [row["number"] for row in sorted(rows, key=lambda row: row["updated_at"])]


@pytest.fixture
def runs(store: str) -> Runs:
    return Runs(store)


async def test_a_limit_runs_the_first_cells_and_a_larger_one_the_next(runs: Runs) -> None:
    wanted = [*ORDER.numbers(12)]
    for limit, begun in ((5, 5), (5, 5), (3, 5), (8, 8), (None, 12)):
        status = await runs.run(limit=limit)
        assert (status.cells, status.finished, status.calls) == (12, begun, 2 * begun)
        assert await runs.numbers() == wanted[:begun]
        assert status.stopped == (limit and f"limit of {limit} sessions is reached")
    assert (status.sample_of, status.seed, len(runs.began)) == (None, 0, 12)


async def test_a_budget_that_runs_out_leaves_each_value_equally_often(runs: Runs) -> None:
    one = (await Runs(f"{runs.store}2").run(limit=1)).tokens
    status = await runs.run({**GRID, "limits": BatchLimits(max_tokens=6 * one)})
    assert "max_tokens" in (status.stopped or "")
    rows = await BatchRun("b", store=runs.store).arows()
    ended = [row for row in rows if row["status"] == "finished"]
    assert len(ended) == 6
    prices = [row["labels.price"] for row in ended]
    assert {prices.count(price) for price in (10, 20, 30, 40)} == {1, 2}
    tasks = [row["task"] for row in ended]
    assert {tasks.count(task) for task in ("Boat", "House", "Car")} == {2}
    await runs.run()
    assert await runs.numbers() == [*ORDER.numbers(12)]


async def test_a_batch_that_was_broken_off_keeps_its_order(runs: Runs) -> None:
    running = asyncio.create_task(runs.run(seed=9))
    begun = asyncio.create_task(runs.begun_four.wait())
    await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await runs.run()
    assert await runs.numbers() == [*ORDER.model_copy(update={"seed": 9}).numbers(12)]


async def test_a_batch_runs_in_the_order_of_its_numbers_if_wanted_and_keeps_to_it(
    runs: Runs,
) -> None:
    assert (await runs.run(shuffle=False, limit=2)).seed is None
    await runs.run()
    assert await runs.numbers() == [*range(1, 13)]


async def test_a_sample_stays_the_same_and_can_grow(runs: Runs) -> None:
    wanted = [*ORDER.model_copy(update={"seed": 4}).numbers(12)]
    status = await runs.run(sample=5, seed=4, limit=2)
    assert (status.cells, status.sample_of, status.seed, status.finished) == (5, 12, 4, 2)
    assert "A random sample of 5 of 12 sessions (seed 4)." in str(status)
    status = await runs.run()
    assert (status.cells, status.finished, status.stopped) == (5, 5, None)
    status = await runs.run(sample=7)
    assert (status.cells, status.finished) == (7, 7)
    # More trials follow the first trial of all combinations.
    status = await runs.run({**GRID, "trials": 2}, sample=13)
    assert (status.cells, status.finished, status.sample_of) == (13, 13, 24)
    rows = await BatchRun("b", store=runs.store).arows()
    assert [row["trial"] for row in rows].count(2) == 1
    assert sorted((row["number"] + 1) // 2 for row in rows) == sorted([*wanted, wanted[0]])


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("first", "then", "says"),
    read_rows(__file__, "a_batch_that_was_begun_otherwise_is_refused_and_stays_as_it_was"),
)
async def test_a_batch_that_was_begun_otherwise_is_refused_and_stays_as_it_was(
    runs: Runs, first: dict[str, Any], then: dict[str, Any], says: str
) -> None:
    before = await runs.run(**first, limit=1)
    with pytest.raises(BatchError, match=rf"^Batch 'b' .*{says}"):
        await runs.run(**then)
    assert await BatchRun("b", store=runs.store).astatus() == before


@pytest.mark.parametrize(
    "tasks", [["Boat", "House", "Car", "Bike"], ["Boat", "House", "Bike"], ["Boat", "Car", "House"]]
)
async def test_values_of_a_sample_can_not_change(runs: Runs, tasks: list[str]) -> None:
    await runs.run(sample=2)
    changed = {**GRID, "vary": {**GRID["vary"], "task": tasks}}
    with pytest.raises(BatchError, match="so its values can't change; restore them"):
        await runs.run(changed)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("options", "says"),
    read_rows(__file__, "wrong_options_are_refused_before_any_call"),
)
async def test_wrong_options_are_refused_before_any_call(
    runs: Runs, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError, match=f"^{says}"):
        await runs.run(**options)
    assert runs.began == []


def cells_of(sizes: list[int], trials: int) -> Cells:
    vary = {f"labels.{place}": [*range(size)] for place, size in enumerate(sizes)}
    return Cells.of(load_batch({**GRID, "vary": vary, "trials": trials}), "b")


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


# The order in which a batch runs its cells: a permutation whose beginnings cover the grid.


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
    """Stored samples depend on it."""
    order = RunOrder(sizes=(3, 4, 2), trials=2, seed=7)
    assert [*order.numbers(8)] == [21, 43, 15, 17, 37, 11, 31, 33]


def test_a_large_grid_is_not_listed() -> None:
    order = RunOrder(sizes=(25_000, 40, 1_000), seed=3)
    for place in (0, 1, 10**8, order.cells - 1):
        assert order.place(order.number(place)) == place
