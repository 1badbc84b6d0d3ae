"""Stores that are truncated, locked, or fail at the worst moment, and later runs on them."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from drawn_faults import Faults
from duologue.graphs import SessionError, StoreError
from duologue.graphs.common.threads import in_thread
from duologue.graphs.store import base, sqlite as sqlite_module
from duologue.graphs.store.lease import Job, Results, Statement, WriteFailure, Writer
from support.stores import open_store


async def take(store: str | Path, session: str) -> None:
    async with open_store(store) as opened, opened.lock(session):
        pass


async def elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on another event loop with another store."""
    await in_thread(lambda: asyncio.run(work()))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Block all other writers."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


async def test_what_waits_is_written_where_its_task_is_cancelled_before_its_first_step() -> None:
    async def commit(jobs: Sequence[Job]) -> Results:
        return [7] * len(jobs)

    writer = Writer(commit, lambda error: WriteFailure(error, is_for_all=True))
    writing = asyncio.create_task(writer.write(Statement("x")))
    await asyncio.sleep(0)
    assert writer._running is not None
    writer._running.cancel()
    assert await asyncio.wait_for(writing, 5) == 7


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
            assert await store.list() == []


async def test_an_opening_that_nobody_waits_for_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await take(path, "s")
    with locked(path):
        taking = asyncio.create_task(take(path, "s"))
        await asyncio.sleep(0.1)
        taking.cancel()
        await asyncio.wait_for(asyncio.wait([taking]), 15)


async def test_a_store_that_is_locked_for_long_fails_all_that_wait_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_WAIT", 0.2)
    path = tmp_path / "x.db"
    tries = 0
    waited = sqlite_module.SqliteStore._run_when_free

    def counted(self: sqlite_module.SqliteStore, sql: Any) -> None:  # noqa: ANN401
        nonlocal tries
        tries += 1
        waited(self, sql)

    async with open_store(path) as store:
        monkeypatch.setattr(sqlite_module.SqliteStore, "_run_when_free", counted)
        with locked(path):
            calls = (store.request_stop(f"s{number}") for number in range(20))
            failed = await asyncio.gather(*calls, return_exceptions=True)
        assert all("database is locked" in str(error) for error in failed)
        assert {type(error) for error in failed} == {StoreError}
        assert tries <= 3


async def test_a_session_that_could_not_be_freed_is_freed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_WAIT", 0.2)
    path = tmp_path / "x.db"
    async with open_store(path) as store:
        async with store.lock("s") as held:
            await held.add(title="", spec="{}")
            lock = locked(path)
            lock.__enter__()
        lock.__exit__(None, None, None)
        # Here it is free at once; for others, as soon as the database accepts the write.
        assert not await store.is_locked("s")
        for _ in range(100):
            with suppress(SessionError):
                await elsewhere(lambda: take(path, "s"))
                break
        else:
            pytest.fail("the session stays busy")


@pytest.mark.live
async def test_who_waits_for_a_session_of_the_same_process_gets_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may need more than the second after which a session counts as busy.
    monkeypatch.setattr(base, "_PATIENCE", 60.0)
    async with open_store(postgres_url) as store:

        async def hold(session: str) -> None:
            async with store.lock(session):
                await asyncio.sleep(0.05)

        await asyncio.gather(*(hold(f"s{number // 2}") for number in range(40)))


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
        assert [row.session for row in await store.list()] == ["good"]
