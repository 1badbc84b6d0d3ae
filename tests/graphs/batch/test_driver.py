"""Choice of a batch's cells, their concurrency, and pauses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from duologue.graphs import BatchError, DuologueError, ModelError, StoreError
from duologue.graphs.batch.batch_row import new_cell_row
from duologue.graphs.batch.cells import Cell, RunCells
from duologue.graphs.batch.driver import BatchSettings, Driver
from duologue.graphs.batch.limiter import Figures
from support.batches import batch_row
from support.stores import BatchLease, CellRow, Store, open_store


def cells(many: int) -> list[Cell]:
    return [Cell(number, f"b-{number:04}", 1, {}, {}) for number in range(1, many + 1)]


class Crew:
    """An executor that runs cells by a rule of the test."""

    def __init__(self, run: Callable[[Cell], dict[str, Any] | DuologueError] | None = None) -> None:
        self._rule = run or (lambda cell: {"status": "finished", "reason": "done_token"})
        self._paused: str | None = None
        self.ran = list[int]()
        self.at_once = self.most = 0
        self.rows = dict[int, CellRow]()

    async def run(self, cell: Cell) -> CellRow:
        self.ran.append(cell.number)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        found = self._rule(cell) if self._paused is None else {"status": "paused"}
        if isinstance(found, DuologueError):
            raise found
        row = self.rows[cell.number] = new_cell_row("b", cell).model_copy(update=found)
        return row

    async def pause(self, why: str) -> None:
        self._paused = self._paused or why

    async def paused(self) -> str | None:
        return self._paused

    async def pace(self) -> Figures:
        raise AssertionError("the driver asks for no pace")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"memory:{tmp_path.name}") as opened:
        yield opened


@pytest.fixture
async def lease(store: Store) -> AsyncIterator[BatchLease]:
    async with store.lock_batch("b") as lease:
        yield lease


def driver(
    store: Store,
    lease: BatchLease,
    found: Sequence[Cell],
    crew: Crew,
    concurrency: int = 3,
    *,
    retry_failed: bool = False,
    scores: tuple[str, ...] = (),
) -> Driver:
    row = batch_row(cells=len(found))
    how = BatchSettings(concurrency=concurrency, retry_failed=retry_failed)
    return Driver(store, lease, row, cast("RunCells", found), crew, how, scores)


async def test_each_cell_is_run_once_and_no_more_at_once_than_asked_for(
    store: Store, lease: BatchLease
) -> None:
    crew = Crew()
    told = list[CellRow]()
    going = driver(store, lease, cells(1203), crew, 7)
    going.told = told.append
    row = await going.run()
    assert (sorted(crew.ran), crew.most) == (list(range(1, 1204)), 7)
    assert row.stopped is None
    assert sorted(one.number for one in told) == sorted(crew.ran)


STATUSES = st.sampled_from([None, "running", "paused", "waiting", "failed", "finished"])


@given(known=st.lists(STATUSES, max_size=12), retry=st.booleans(), scored=st.booleans())
@settings(deadline=None)
async def test_only_what_has_not_ended_is_run(
    known: list[str | None], retry: bool, scored: bool
) -> None:
    async with open_store("memory:driver") as store, store.lock_batch("b") as lease:
        await lease.delete()
        found = cells(len(known))
        for cell, status in zip(found, known, strict=True):
            if status is not None:
                row = new_cell_row("b", cell).model_copy(
                    update={"status": status, "scores": {"s": 1.0} if scored else {}}
                )
                await lease.put_cell(row)
        crew = Crew()
        await driver(store, lease, found, crew, retry_failed=retry, scores=("s",)).run()
    wanted = {None, "running", "paused", "waiting"}
    wanted |= {"failed"} if retry else set()
    # A new score is also computed for ended sessions.
    wanted |= set() if scored else {"finished"}
    assert sorted(crew.ran) == [
        number for number, status in enumerate(known, 1) if status in wanted
    ]


async def test_a_cell_that_has_ended_gets_its_new_place_where_the_batch_has_grown(
    store: Store,
    lease: BatchLease,
) -> None:
    before, after = cells(1)[0], Cell(4, "b-0001", 1, {}, {})
    await lease.put_cell(new_cell_row("b", before).model_copy(update={"status": "finished"}))
    await driver(store, lease, [after], Crew()).run()
    assert (await store.batches.known("b", ["b-0001"]))["b-0001"].number == 4


async def test_cells_that_fail_each_for_a_reason_of_its_own_hold_nothing_back(
    store: Store,
    lease: BatchLease,
) -> None:
    crew = Crew(lambda cell: {"status": "failed", "error": f"Cell {cell.number} is odd."})
    assert (await driver(store, lease, cells(100), crew).run()).stopped is None
    assert len(crew.ran) == 100


@pytest.mark.parametrize(("concurrency", "most"), [(1, 10), (3, 12), (40, 80)])
async def test_cells_that_fail_alike_one_after_another_stop_the_batch(
    store: Store, lease: BatchLease, concurrency: int, most: int
) -> None:
    crew = Crew(lambda cell: {"status": "failed", "error": "The server is on fire."})
    with pytest.raises(
        BatchError, match=r"sessions in a row failed with the same error: The server is"
    ):
        await driver(store, lease, cells(1000), crew, concurrency).run()
    assert len(crew.ran) <= most
    row = await store.batches.get("b")
    assert row is not None
    assert row.stopped is not None
    assert "failed with the same error" in row.stopped


@pytest.mark.parametrize("error", [StoreError("The disk is full."), ModelError("No such model.")])
async def test_what_fails_for_all_stops_the_batch_once_and_the_others_are_paused(
    store: Store, lease: BatchLease, error: DuologueError
) -> None:
    crew = Crew(lambda cell: error if cell.number == 5 else {"status": "finished"})
    with pytest.raises(type(error), match=str(error)):
        await driver(store, lease, cells(1000), crew, 4).run()
    assert len(crew.ran) < 20
    assert {row.status for row in crew.rows.values()} <= {"finished", "paused"}


async def test_where_nobody_reads_what_is_told_the_batch_stops_once(
    store: Store, lease: BatchLease
) -> None:
    crew = Crew()

    def unheard(row: CellRow) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    telling = driver(store, lease, cells(1000), crew, 4)
    telling.told = unheard
    with pytest.raises(BrokenPipeError):
        await telling.run()
    assert len(crew.ran) < 20
    assert {row.status for row in crew.rows.values()} <= {"finished", "paused"}
    assert (row := await store.batches.get("b")) is not None
    assert row.stopped == "[Errno 32] Broken pipe"


async def test_a_pause_is_told_and_the_same_batch_goes_on_where_it_was(
    store: Store, lease: BatchLease
) -> None:
    crew = Crew()

    def paused_at_nine(cell: Cell) -> dict[str, Any]:
        if cell.number == 9:
            crew._paused = "The budget is used up."
        return {"status": "finished"}

    crew._rule = paused_at_nine
    row = await driver(store, lease, cells(100), crew, 2).run()
    assert row.stopped == "The budget is used up."
    for one in crew.rows.values():
        await lease.put_cell(one)
    again = Crew()
    row = await driver(store, lease, cells(100), again, 2).run()
    assert row.stopped is None
    done = {number for number, one in crew.rows.items() if one.status == "finished"}
    assert set(again.ran) == set(range(1, 101)) - done


async def test_where_all_has_ended_hundreds_are_looked_up_at_a_time_and_no_conversation_is_made(
    store: Store, lease: BatchLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, looks, crew = cells(1203), list[int](), Crew()
    for cell in found:
        await lease.put_cell(new_cell_row("b", cell).model_copy(update={"status": "finished"}))
    kind: Any = type(store.batches)
    known = kind.known

    async def counted(self: object, batch: str, sessions: Sequence[str]) -> Any:  # noqa: ANN401
        looks.append(len(sessions))
        return await known(self, batch, sessions)

    monkeypatch.setattr(kind, "known", counted)
    monkeypatch.setattr(Cell, "conversation", None)
    assert (await driver(store, lease, found, crew).run()).stopped is None
    assert (looks, crew.ran) == ([500, 500, 203], [])
