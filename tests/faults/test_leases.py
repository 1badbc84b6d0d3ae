"""Leases on sessions, and runs that lose their lease."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import interrupt

from drawn_faults import Faults
from duologue.graphs import (
    BatchError,
    Question,
    Result,
    Session,
    SessionError,
    StoreError,
    aconverse,
    alist_sessions,
    chat,
    role_play,
)
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.locks import remove_locks
from support.pgbouncer import pgbouncer
from support.stores import CellRow, CellsWanted, SessionLease, Store, open_store, store_address
from support.tables import read_rows

pytestmark = pytest.mark.process

T = TypeVar("T")

LOST = "This run has lost session 's'"
CELL = CellRow(batch="b", number=1, session="b-1", updated_at=datetime(2026, 1, 2, tzinfo=UTC))
GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False, max_iterations=3)


async def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run on another event loop with another store, as another process would."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


async def put(held: SessionLease) -> None:
    config: Any = {"configurable": {"thread_id": held.session, "checkpoint_ns": ""}}
    await held.checkpointer.aput(config, empty_checkpoint(), {}, {})


async def take(store: str | Path, session: str = "s") -> None:
    async with open_store(store) as other, other.lock(session) as held:
        await put(held)


KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.live)]


async def lose_leases(store: Any, path: Path) -> None:  # noqa: ANN401
    """Let a store lose its leases: its lock file is removed, or its network breaks."""
    if store.url.startswith("postgres"):
        await store._owner.close()
    else:
        remove_locks(path)


async def refused(held: SessionLease) -> None:
    """Check that writing is refused."""
    config: Any = {"configurable": {"thread_id": "s", "checkpoint_ns": "", "checkpoint_id": "1"}}
    for write in (
        held.add(title="", spec=""),
        held.finish("x"),
        held.clear_stop(),
        put(held),
        held.checkpointer.aput_writes(config, [("a", 1)], "task"),
        held.checkpointer.adelete_thread("s"),
    ):
        with pytest.raises(SessionError, match=LOST):
            await write


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_lost_its_lock_writes_nothing_more(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = store_address(kind, request, "x")
    async with open_store(target) as store, store.lock("s") as held:
        await held.add(title="mine", spec="{}")
        await lose_leases(store, tmp_path / "x.db")
        await elsewhere(lambda: take(target))
        await refused(held)
        row = await store.get("s")
        assert row is not None
        assert (row.title, row.status) == ("mine", "unfinished")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_has_lost_its_batch_writes_none_of_its_rows(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = store_address(kind, request, "x")

    async def take_over() -> None:
        async with open_store(target) as other, other.lock_batch("b") as lease:
            await lease.put_cell(CELL)
            await lease.check()

    async with open_store(target) as store, store.lock_batch("b") as lease:
        with pytest.raises(BatchError, match="'b' is running already"):
            await elsewhere(take_over)
        await lease.put_cell(CELL.model_copy(update={"status": "paused"}))
        await lose_leases(store, tmp_path / "x.db")
        await elsewhere(take_over)
        # Both writes happen at once: neither may fail or carry the other along.
        async with store.lock("s") as held:
            failed = CELL.model_copy(update={"status": "failed"})
            late, row = lease.put_cell(failed), held.add(title="mine", spec="{}")
            error, added = await asyncio.gather(late, row, return_exceptions=True)
        assert str(error).startswith("This run has lost batch 'b'")
        assert added == await store.get("s") is not None
        for write in (lease.check(), lease.delete()):
            with pytest.raises(BatchError, match="This run has lost batch 'b'"):
                await write
        assert await store.batches.find(CellsWanted(batch="b")) == [CELL]


async def test_a_lease_writes_only_its_own_session_until_it_ends(tmp_path: Path) -> None:
    for target in (f"memory:{tmp_path.name}", f"sqlite:///{tmp_path}/x.db"):
        async with open_store(target) as store:
            async with store.lock("s") as before:
                await before.add(title="", spec="{}")
                config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
                with pytest.raises(SessionError, match="'t'"):
                    await before.checkpointer.aput(config, empty_checkpoint(), {}, {})
            async with store.lock("s"):
                await refused(before)
            await refused(before)


async def test_a_conversation_that_loses_its_session_stops_with_a_clear_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    asked = list[int]()

    def play(prompt: Prompt) -> str:
        asked.append(len(prompt))
        if len(asked) == 3:
            remove_locks(path)
            other = Thread(target=lambda: asyncio.run(take(path)))
            other.start()
            other.join()
        return f"Instruction: step {len(asked)}.\nInput: None" if len(asked) % 2 else "Solution: a."

    model = ScriptedChatModel(script=play)
    with pytest.raises(SessionError, match=LOST):
        await aconverse(GARDEN, session="s", store=path, model=model)
    assert len(asked) == 3


@pytest.mark.parametrize("name", ["wire", "pay"])
async def test_an_answer_to_a_run_that_has_lost_its_session_lets_nothing_run(
    name: str, tmp_path: Path
) -> None:
    """A person thinks; meanwhile another run takes over, and asks the next question."""
    path, ran = tmp_path / "x.db", list[str]()

    def wire() -> str:
        """Wires money, once a person has approved."""
        ran.append("wire")
        return "Wired."

    def pay() -> str:
        """Asks a person twice."""
        ran.append(f"pay {interrupt('First?')} {interrupt('Second?')}")
        return "Paid."

    call = Reply(tool_calls=[ScriptedToolCall(name=name, id="1")])
    talk = chat("Go.", tools=["wire", "pay"], interrupt_on={"wire": True})
    value = {"decisions": [{"type": "approve"}]} if name == "wire" else "late"
    options: dict[str, Any] = {"tools": [wire, pay]}
    taken_over: list[Result] = []

    async def take_over() -> None:
        model = ScriptedChatModel(script=[call])
        answer = value if name == "wire" else "yes"
        taken_over.append(await Session("s", store=path).aanswer(answer, model=model, **options))

    async def answer(question: Question) -> object:
        if not taken_over:
            remove_locks(path)
            await elsewhere(take_over)
        return value

    model = ScriptedChatModel(script=[call])
    with pytest.raises(SessionError, match="was already answered or withdrawn; it now waits"):
        await aconverse(talk, session="s", model=model, answer=answer, store=path, **options)
    assert ran == (["wire"] if name == "wire" else [])
    assert await Session("s", store=path).astate() == taken_over[0]
    assert len(taken_over[0].pending) == 1


async def test_a_link_to_a_store_is_that_store(tmp_path: Path) -> None:
    path, link = tmp_path / "x.db", tmp_path / "folder" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    async with open_store(path) as store, store.lock("s"):
        async with open_store(link) as other:
            assert other is store
        with pytest.raises(SessionError, match="'s' is busy"):
            await elsewhere(lambda: take(link))


async def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with open_store(path):
        pass
    os.link(path, tmp_path / "y.db")
    with pytest.raises(StoreError, match=r"y\.db can't be used: the file has 2 names \(hard"):
        await take(tmp_path / "y.db")


async def test_a_look_from_another_process_deletes_nothing_that_is_in_use(tmp_path: Path) -> None:
    """SQLite's last user deletes its log, so no other process may take itself for the last."""
    path = tmp_path / "x.db"
    look = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT 1 FROM writes')"
    async with open_store(path) as store, store.lock("s") as held:
        await held.add(title="", spec="{}")
        for _ in range(2):
            # This process also opens and closes the file.
            await elsewhere(lambda: take(path, "t"))
            looking = await asyncio.create_subprocess_exec(sys.executable, "-c", look, path)
            assert await looking.wait() == 0
            assert path.with_name("x.db-wal").exists()
            await put(held)


@pytest.mark.parametrize("how", ["deleted", "replaced", "without its log", "cut short"])
async def test_a_conversation_whose_store_is_gone_says_so(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x.db"
    asked = 0

    def play(prompt: Prompt) -> str:
        nonlocal asked
        asked += 1
        if asked == 3:
            if how == "deleted":
                path.unlink()
            elif how == "replaced":
                (tmp_path / "new").write_bytes(path.read_bytes())
                (tmp_path / "new").replace(path)
            elif how == "without its log":
                path.with_name("x.db-wal").unlink()
            else:
                os.truncate(path, 4096)
        return f"Instruction: step {asked}.\nInput: None" if asked % 2 else "Solution: a."

    async with open_store(path) as store, store.lock("large") as held:
        # This is more than SQLite keeps in its log before it writes it to the file.
        await held.add(title="", spec="x" * 6_000_000)
    with pytest.raises(StoreError, match=r"x\.db can't be used: ") as caught:
        await aconverse(GARDEN, session="s", store=path, model=ScriptedChatModel(script=play))
    assert asked == 3
    if how != "cut short":
        assert "it was deleted or replaced while it was in use" in str(caught.value)


GOOD = [
    text
    for turn in range(3)
    for text in (f"Instruction: step {turn}.\nInput: None", f"Solution: {turn}.\nNext request.")
]

RUNNER = """
import asyncio, sys
from duologue.graphs import aconverse, role_play
from duologue.nodes.testing import ScriptedChatModel
from duologue.graphs.common.errors import DuologueError
GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False, max_iterations=200)
asked = 0
def play(prompt):
    global asked
    asked += 1
    print("asked", asked, flush=True)
    if asked == 3:
        sys.stdin.readline()
    word = f"step {sys.argv[2]} {asked}"
    return f"Instruction: {word}.\\nInput: None" if asked % 2 else f"Solution: {word}."
try:
    model = ScriptedChatModel(script=play)
    asyncio.run(aconverse(GARDEN, session="s", store=sys.argv[1], model=model))
except DuologueError as error:
    print(type(error).__name__, error, flush=True)
"""


@asynccontextmanager
async def runner(store: str) -> AsyncIterator[subprocess.Popen[str]]:
    """Return a process that waits in its third model call."""
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", RUNNER, store, "mine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while await asyncio.to_thread(process.stdout.readline) != "asked 3\n":
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def owners_backend(url: str) -> None:
    """End every connection that owns a lock, as an administrator or a restart does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        )


@pytest.mark.live
async def test_a_lost_lock_is_taken_again_before_another_run_takes_over(postgres_url: str) -> None:
    async with open_store(postgres_url) as store, store.lock("s") as held:
        await held.add(title="", spec="{}")
        for _ in range(3):
            owners_backend(postgres_url)
            with pytest.raises(SessionError, match="'s' is busy"):
                await elsewhere(lambda: take(postgres_url))
            await put(held)


@pytest.mark.live
async def test_a_frozen_process_that_wakes_up_writes_nothing_over_the_new_run(
    postgres_url: str,
) -> None:
    """It freezes and loses its lock, another run takes over and ends, and then it continues."""
    async with runner(postgres_url) as frozen:
        frozen.send_signal(signal.SIGSTOP)
        owners_backend(postgres_url)
        model = ScriptedChatModel(script=GOOD * 200)
        async with open_store(postgres_url) as store, store.lock("s") as held:
            await held.reopen()
        spec = (await Session("s", store=postgres_url).astate()).conversation
        assert spec is not None
        frozen.send_signal(signal.SIGCONT)
        assert frozen.stdin is not None
        frozen.stdin.write("\n")
        frozen.stdin.flush()
        out, _ = await asyncio.to_thread(frozen.communicate)
        assert "SessionError This run has lost session 's'" in out
        assert "asked 5" not in out
        assert model.calls == []


@pytest.mark.live
async def test_a_server_that_restarts_connections_is_no_failure(
    postgres_url: str, faults: Faults
) -> None:
    url = f"{postgres_url}&application_name=restarted"
    async with open_store(url) as store, store.lock("s") as held:
        await held.add(title="", spec="{}")
        for _ in range(faults.times(5)):
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'restarted'"
                )
            await put(held)
            assert [row.session for row in await alist_sessions(store=store.address)] == ["s"]


@pytest.fixture
def pooled(postgres_server: str) -> Iterator[tuple[str, str]]:
    """Yield the address of a connection pooler, and the address of the server behind it."""
    database = f"d{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
        with pgbouncer(postgres_server, database) as found:
            yield found
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())


@pytest.mark.live
async def test_behind_a_pooler_by_transaction(pooled: tuple[str, str]) -> None:
    address, server = pooled
    with pytest.raises(StoreError, match="a connection pooler answers there; add direct="):
        await take(address)
    url = f"{address}?direct={quote(server, safe='')}&pool_size=3"
    talks = (
        aconverse(GARDEN, session=f"s{n}", store=url, model=ScriptedChatModel(script=GOOD))
        for n in range(20)
    )
    ended = await asyncio.gather(*talks)
    assert {one.outcome.reason.value for one in ended if one.outcome} == {"max_iterations"}
    async with open_store(url) as store, store.lock("s"):
        with pytest.raises(SessionError, match="'s' is busy"):
            await elsewhere(lambda: take(url))
        assert await store.is_locked("s")
        assert not await store.is_locked("s1")


@pytest.mark.live
async def test_a_pooler_without_free_connections_ends_a_run_that_resumes(
    pooled: tuple[str, str],
) -> None:
    address, server = pooled
    url = f"{address}?direct={quote(server, safe='')}&connect_timeout=1"
    left = list(GOOD)
    with ExitStack() as others:

        def hold_all(_: Prompt) -> str:
            if len(left) == len(GOOD) - 2:
                for _number in range(4):
                    # Its transaction stays open.
                    held = others.enter_context(psycopg.connect(address))
                    held.execute("SELECT 1")
            return left.pop(0)

        model = ScriptedChatModel(script=hold_all)
        problem = "the connection pooler had no free connection for 1 s; raise its pool size"
        with pytest.raises(StoreError, match=problem):
            await aconverse(GARDEN, session="s", store=url, model=model)
        with pytest.raises(StoreError, match=problem):
            await take(url, "another")
    ended = await aconverse(GARDEN, session="s", store=url, model=ScriptedChatModel(script=GOOD))
    assert ended.outcome is not None
    assert ended.outcome.reason.value == "max_iterations"


@pytest.mark.parametrize(
    ("query", "said"),
    read_rows(__file__, "parameters_that_are_not_valid_are_named"),
)
async def test_parameters_that_are_not_valid_are_named(query: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        await take(f"postgresql://me:s3cret@127.0.0.1:1/db?{query}")
    assert "s3cret" not in str(caught.value)


async def test_one_store_for_all_that_use_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    opened = list[Store]()

    async def use(cancelled: bool) -> None:
        async with open_store(path) as store:
            opened.append(store)

            await asyncio.sleep(10 if cancelled else 0.05)

    # The task that opens the store is cancelled while it opens; the others do not notice.
    first = asyncio.create_task(use(cancelled=True))
    others = [asyncio.create_task(use(cancelled=False)) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(*others)
    assert len(opened) == 5
    assert len(set(map(id, opened))) == 1
    await asyncio.wait([first])
    async with open_store(path) as store:
        assert store is not opened[0]


async def test_many_wait_for_one_session_and_each_gets_it(tmp_path: Path) -> None:
    """A short lease makes no other run fail with a "busy" error."""
    held = 0

    async def hold() -> None:
        nonlocal held
        async with open_store(tmp_path / "x.db") as store, store.lock("s"):
            held += 1
            assert held == 1
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(hold() for _ in range(3)))
