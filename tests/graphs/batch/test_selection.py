"""Limits, samples and the order of a batch's run, and what a resumed batch keeps of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import BatchError, BatchLimits, BatchRun, SpecError, arun_batch
from duologue.nodes.testing import Call, Prompt, ScriptedChatModel
from support.tables import read_rows

GRID: dict[str, Any] = {
    "conversation": {
        "task": "Sell.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    },
    "vary": {"labels.price": [10, 20, 30, 40], "task": ["Boat", "House", "Car"]},
}
ORDERS = {
    0: [4, 8, 12, 1, 5, 9, 10, 2, 6, 7, 11, 3],
    4: [12, 7, 2, 6, 10, 8, 3, 4, 11, 9, 1, 5],
    9: [6, 1, 11, 9, 4, 2, 12, 7, 5, 3, 10, 8],
}
"""The order of the grid's cells by seed. It never changes, because stored samples depend on it."""


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

    async def run(self, given: dict[str, Any] = GRID, **options: Any) -> Any:  # noqa: ANN401
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
    wanted = ORDERS[0]
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
    assert await runs.numbers() == ORDERS[0]


async def test_a_batch_that_was_broken_off_keeps_its_order(runs: Runs) -> None:
    running = asyncio.create_task(runs.run(seed=9))
    begun = asyncio.create_task(runs.begun_four.wait())
    await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await runs.run()
    assert await runs.numbers() == ORDERS[9]


async def test_a_batch_runs_in_the_order_of_its_numbers_if_wanted_and_keeps_to_it(
    runs: Runs,
) -> None:
    assert (await runs.run(shuffle=False, limit=2)).seed is None
    await runs.run()
    assert await runs.numbers() == [*range(1, 13)]


async def test_a_sample_stays_the_same_and_can_grow(runs: Runs) -> None:
    wanted = ORDERS[4]
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
