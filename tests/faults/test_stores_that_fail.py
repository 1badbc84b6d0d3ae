"""Stores that are truncated, locked, or fail at the worst moment, and later runs on them."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from drawn_faults import Faults
from duologue.graphs import SessionError, StoreError, alist_sessions
from support.stores import open_store


async def take(store: str | Path, session: str) -> None:
    async with open_store(store) as opened, opened.lock(session):
        pass


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Block all other writers."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def test_a_loop_that_ends_with_runs_under_way_ends_and_frees_them(
    tmp_path: Path, faults: Faults
) -> None:
    store = tmp_path / "x.db"
    asyncio.run(take(store, "made"))
    drawn = faults.random()

    async def write_on(number: int) -> None:
        async with open_store(store) as opened, opened.lock(f"s{number}") as held:
            while True:
                # The session does not exist, which only a write notices.
                with suppress(SessionError):
                    await held.reopen()

    async def leave() -> None:
        async with open_store(store):
            tasks = [asyncio.create_task(write_on(number)) for number in range(10)]
            await asyncio.sleep(drawn.uniform(0, 0.1))
            assert tasks

    for _ in range(faults.times(5)):
        thread = threading.Thread(target=asyncio.run, args=(leave(),), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()

    async def all_are_free() -> None:
        async with open_store(store) as opened:
            for number in range(10):
                assert not await opened.is_locked(f"s{number}")

    asyncio.run(all_are_free())


async def test_who_only_reads_waits_for_no_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await take(path, "s")
    with locked(path):
        async with open_store(path) as store:
            assert await alist_sessions(store=store.address) == []


async def test_an_opening_that_nobody_waits_for_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await take(path, "s")
    with locked(path):
        taking = asyncio.create_task(take(path, "s"))
        await asyncio.sleep(0.1)
        taking.cancel()
        await asyncio.wait_for(asyncio.wait([taking]), 15)


@pytest.mark.live
async def test_reads_hold_no_connection_while_they_wait_for_threads(postgres_url: str) -> None:
    """LangGraph reads in asyncio's few threads, which the user's functions may fill."""
    full = threading.Event()
    config: Any = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
    loop = asyncio.get_running_loop()
    url = f"{postgres_url}&pool_size=2&connect_timeout=2"
    async with open_store(url) as store, store.lock("s") as held:
        await held.add(title="", spec="{}")
        await held.checkpointer.aput(config, empty_checkpoint(), {}, {})
        waiting = [loop.run_in_executor(None, full.wait, 20) for _ in range(40)]
        try:
            reads = [asyncio.create_task(store.checkpointer.aget_tuple(config)) for _ in range(10)]
            await asyncio.sleep(0.3)
            await held.finish("x")
        finally:
            full.set()
        await asyncio.gather(*waiting, *reads)


async def test_what_has_no_place_in_a_database_fails_alone(tmp_path: Path) -> None:
    async with open_store(tmp_path / "x.db") as store:
        good, bad = store.lock("good"), store.lock("bad")
        async with good as one, bad as other:
            odd = other.add(title="\ud800", spec="{}")
            found = await asyncio.gather(one.add(title="", spec="{}"), odd, return_exceptions=True)
        assert isinstance(found[1], StoreError)
        assert [row.session for row in await alist_sessions(store=store.address)] == ["good"]
