"""Rows of batches, in every kind of store."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from duologue.graphs import BatchError
from support.batches import batch_row, cell_row
from support.stores import EACH_STORE, BatchLease, CellsWanted, Store, open_store, store_address

pytestmark = pytest.mark.every_store


@pytest.fixture(params=EACH_STORE)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with open_store(store_address(request.param, request)) as opened:
        yield opened


FULL = cell_row(
    7,
    trial=2,
    varied={"user_role": "Zoë \ud83d \0 'x'", "end_chat.max_iterations": 3, "labels.a": [1, None]},
    status="finished",
    reason="done_token",
    error="It failed — as “expected”.",
    complete=False,
    rounds=3,
    messages=6,
    calls=2**40,
    input_tokens=12,
    output_tokens=3,
    cost=0.1 + 0.2,
    seconds=1 / 3,
    scores={"solved": 1.0, "x": -0.25},
)


async def test_rows_are_read_back_as_they_were_written(store: Store) -> None:
    rows = store.batches
    assert await rows.get("b") is None
    first, second = batch_row("b"), batch_row("c", stopped="It rained.", seconds=1.25)
    for row in (first, second, first.model_copy(update={"cells": 10})):
        async with store.lock_batch(row.batch) as lease:
            await lease.put(row)
    assert await rows.get("b") == first.model_copy(update={"cells": 10})
    assert {row.batch for row in await rows.list()} == {"b", "c"}
    async with store.lock_batch("b") as lease:
        for one in (cell_row(7), FULL):
            await lease.put_cell(one)
    assert await rows.known("b", ["b-7", "b-8"]) == {"b-7": FULL}
    assert await rows.known("c", ["b-7"]) == {}


async def test_cells_are_found_page_by_page_in_the_order_of_their_numbers(store: Store) -> None:
    rows = store.batches
    # Numbers may be duplicated for a while after a batch has grown.
    known = [cell_row(number % 7 + 1, session=f"b-{number}") for number in range(20)]
    for one in (*known, cell_row(1, batch="other")):
        async with store.lock_batch(one.batch) as lease:
            await lease.put_cell(one)
    found = [row async for row in rows.each(CellsWanted(batch="b", limit=3))]
    assert found == sorted(known, key=lambda row: (row.number, row.session))


async def test_cells_are_counted_by_status_and_reason(store: Store) -> None:
    rows = store.batches
    assert await rows.count("b") == []
    endings = [("finished", "done_token"), ("finished", "done_token"), ("failed", None)]
    async with store.lock_batch("b") as lease:
        for number, (status, reason) in enumerate(endings, 1):
            used: dict[str, Any] = {"calls": 2**33, "cost": 0.5, "messages": number}
            await lease.put_cell(cell_row(number, status=status, reason=reason, **used))
    counts = {(one.status, one.reason): one for one in await rows.count("b")}
    done = counts["finished", "done_token"]
    assert (done.cells, done.calls, done.cost, done.messages) == (2, 2**34, 1.0, 3)
    assert counts["failed", None].cells == 1
    wanted = CellsWanted(batch="b", status="finished", reason="done_token")
    assert [row.number for row in await rows.find(wanted)] == [1, 2]
    async with store.lock_batch("b") as lease:
        await lease.delete()
    assert await rows.count("b") == []


async def test_a_batch_is_run_by_one_at_a_time(store: Store) -> None:
    async with store.lock_batch("b"):
        assert await store.is_batch_locked("b")
        with pytest.raises(BatchError, match="'b' is running already"):
            async with store.lock_batch("b"):
                pass
        # A session may have the same name.
        async with store.lock("b"):
            pass
    assert not await store.is_batch_locked("b")


async def refused(lease: BatchLease) -> None:
    """Check that a lease allows no more writes."""
    writes = (lease.put(batch_row("b")), lease.put_cell(cell_row(1)), lease.delete(), lease.check())
    for write in writes:
        with pytest.raises(BatchError, match="This run has lost batch 'b'"):
            await write


async def test_rows_are_written_under_the_lease_that_its_run_has_taken(store: Store) -> None:
    async with store.lock_batch("b") as first:
        await first.put(batch_row("b", title="first"))
        await first.put_cell(cell_row(1))
        await first.check()
    await refused(first)
    async with store.lock_batch("b") as second:
        await refused(first)
        await second.put(batch_row("b", title="second"))
    await refused(second)
    row = await store.batches.get("b")
    assert row is not None
    assert row.title == "second"
    assert await store.batches.find(CellsWanted(batch="b")) == [cell_row(1)]


async def test_a_lease_is_shared_with_other_processes_while_it_lasts(store: Store) -> None:
    async with store.lock_batch("b") as lease:
        _, owner, number = lease.lease.terms
        shared = store.share_batch_lease("b", owner, number)
        await shared.put_cell(cell_row(1))
        await refused(store.share_batch_lease("b", owner, number + 1))
        await refused(store.share_batch_lease("b", "another", number))
    await refused(shared)
    assert await store.batches.find(CellsWanted(batch="b")) == [cell_row(1)]
