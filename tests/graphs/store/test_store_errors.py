"""Faults in a store's address, file or server, and their error messages."""

import asyncio
import sqlite3
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from duologue.graphs import StoreError, alist_sessions
from support.postgres import server
from support.stores import SessionLease, Store, open_store
from support.tables import read_rows


async def refused(target: str | Path | None) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with open_store(target):
            pytest.fail("opened")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "target",
    [
        *("", "sqlite:///", "sqlite://x.db", "sqlite:x.db", ":memory:", "sqlite:///:memory:"),
        *("mysql://me:s3cret@host/db", "memory:a/b", "postgresql:x", "http://host/x.db"),
    ],
)
async def test_other_addresses_are_refused(target: str) -> None:
    said = str(await refused(target))
    assert repr(target.replace("s3cret", "***")) in said
    assert "sqlite:///file.db, postgresql://…, memory:" in said


@pytest.mark.parametrize(
    "target",
    read_rows(__file__, "the_other_form_of_postgres_is_refused_without_its_password"),
)
async def test_the_other_form_of_postgres_is_refused_without_its_password(target: str) -> None:
    said = str(await refused(target))
    assert "s3cret" not in said
    assert "use a file's path, sqlite:///file.db, postgresql://…" in said


async def test_a_files_name_may_look_like_a_setting(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/host=a.db") as store:
        await add(store, "s")


async def test_what_is_no_address_is_refused() -> None:
    odd: Any = 3
    assert str(await refused(odd)).startswith("Sessions can't be kept in int: use a file's path, ")


async def test_the_default_is_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "duologue" / "sessions.db"
    async with open_store() as store:
        assert store.url == f"sqlite:///{file}"
        await add(store, "s")
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        private = [f for f in file.parent.rglob("*") if f.is_file()]
        assert {stat.S_IMODE(f.stat().st_mode) for f in private} == {0o600}
        assert {f.name for f in private} >= {"sessions.db", "sessions.db-wal"}


async def test_a_path_and_its_address_are_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store(tmp_path / "x.db") as store:
        await add(store, "s")
    for target in ("x.db", "sqlite:///x.db", f"sqlite:///{tmp_path}/x.db", Path("x.db")):
        async with open_store(target) as store:
            assert store.url == f"sqlite:///{tmp_path}/x.db"
            assert await store.get("s") is not None


async def test_an_open_store_has_one_lock_file_and_leaves_none(tmp_path: Path) -> None:
    locks = tmp_path / "x.db.locks"
    locks.mkdir()
    left = locks / ("0" * 32)
    left.touch()
    async with open_store(tmp_path / "x.db") as store, open_store(tmp_path / "x.db"):
        async with store.lock("s"), store.lock("t"):
            assert len(list(locks.iterdir())) == 1
        assert not left.exists()
    assert list(locks.iterdir()) == []


async def test_a_closed_store_is_one_complete_file(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    async with open_store(file) as store:
        await add(store, "s")
    assert {found.name for found in tmp_path.iterdir()} == {"x.db", "x.db.locks"}  # noqa: ASYNC240
    # The file is moved and replaced by a new one while it is not open here.
    file.rename(tmp_path / "moved.db")
    for name, sessions in {"x.db": [], "moved.db": ["s"]}.items():
        async with open_store(tmp_path / name) as store:
            assert [row.session for row in await alist_sessions(store=store.address)] == sessions


async def test_a_store_closes_after_what_a_cancelled_reader_reads(tmp_path: Path) -> None:
    reads, goes_on = Event(), Event()
    async with open_store(tmp_path / "x.db") as opened:
        store: Any = opened
        connection = store._reading.connection

        def read() -> None:
            reads.set()
            goes_on.wait(5)
            ended.append(connection.execute("SELECT count(*) FROM duologue_sessions").fetchone())

        ended: list[object] = []
        reading = asyncio.create_task(store._reading.run(read))
        await asyncio.to_thread(reads.wait, 5)
        reading.cancel()
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    assert ended == [(0,)]


async def test_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary, " * 100)
    error = await refused(file)
    assert str(error) == (
        f"The sessions in sqlite:///{file} can't be used: file is not a database; "
        "restore a backup, or choose another store."
    )
    assert isinstance(error.__cause__, sqlite3.Error)


async def test_a_file_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "typo.db"
    for target in (file, str(file), f"sqlite:///{file}"):
        with pytest.raises(StoreError) as caught:
            async with open_store(target, create=False):
                pytest.fail("opened")
        expected = f"The sessions in sqlite:///{file} can't be used: there is no such file."
        assert str(caught.value) == expected
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a test may block
    async with open_store(file):
        pass
    async with open_store(file, create=False) as store:
        assert await alist_sessions(store=store.address) == []


async def test_memory_needs_no_file(tmp_path: Path) -> None:
    async with open_store(f"memory:{tmp_path.name}", create=False) as store:
        assert await alist_sessions(store=store.address) == []


async def test_a_folder(tmp_path: Path) -> None:
    error = await refused(tmp_path)
    assert str(error) == f"The sessions in sqlite:///{tmp_path} can't be used: Is a directory."


async def add(store: Store, session: str) -> None:
    async with store.lock(session) as held:
        await held.add(title="", spec="")


async def put(held: SessionLease, size: int) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"]["text"] = "x" * size
    config: Any = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
    await held.checkpointer.aput(config, checkpoint, {}, {})


async def test_a_full_disk_is_named_and_leaves_the_file_usable(tmp_path: Path) -> None:
    async with open_store(tmp_path / "x.db") as opened:
        store: Any = opened
        connection = store._writing.connection
        async with store.lock("s") as held, store.lock("t") as other:
            await store._writing.run(connection.execute, "PRAGMA max_page_count = 20")
            config: Any = {
                "configurable": {"thread_id": "s", "checkpoint_ns": "", "checkpoint_id": "1"}
            }
            large = [("small", "x"), ("large", "x" * 500_000)]
            calls = (
                put(held, 500_000),
                held.checkpointer.aput_writes(config, large, "task"),
                held.add(title="", spec="x" * 500_000),
                # This write is committed together with the failing ones, but does not fail with
                # them.
                other.add(title="", spec=""),
            )
            *failed, added = await asyncio.gather(*calls, return_exceptions=True)
            for error in failed:
                assert isinstance(error, StoreError)
                assert "x.db can't be used: database or disk is full" in str(error)
            assert not isinstance(added, BaseException)
            assert not connection.in_transaction
        assert [row.session for row in await alist_sessions(store=store.address)] == ["t"]
        assert await store.read("SELECT count(*) FROM writes") == [(0,)]


@pytest.mark.exhaustive
async def test_a_limit_on_file_sizes_is_named(tmp_path: Path) -> None:
    script = """
import resource, sys
from duologue import StoreError, chat, converse
from duologue.nodes.testing import ScriptedChatModel

def begin(text):
    model = ScriptedChatModel(["Fine."])
    converse(chat(), message=text, model=model, store=sys.argv[1])

begin("Hi.")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    begin("x" * 500_000)
except StoreError as error:
    print(error)
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, str(tmp_path / "x.db")), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert "x.db can't be used: disk I/O error" in out.decode()


async def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "duologue.graphs.store.postgres", raising=False)
    assert "run `pip install '.[postgres]'` or" in str(
        await refused("postgresql://me:s3cret@host/db")
    )


async def test_an_unreachable_server_is_named_without_its_password() -> None:
    for address in ("me:s3cret@127.0.0.1:1/db", "127.0.0.1:1/db?user=me&password=s3cret"):
        error = await refused(f"postgresql://{address}")
        assert address.replace("s3cret", "***") in str(error)
        assert "onnection refused" in str(error)
        assert type(error.__cause__).__module__.startswith("psycopg")


@pytest.mark.parametrize(
    "address", ["me:s3c@ret/x@host/db", "me:s3cret@host/db?nonsense=1", "me:s3cret%@host/db"]
)
async def test_a_malformed_address_does_not_show_its_password(address: str) -> None:
    error = await refused(f"postgresql://{address}")
    assert "s3c" not in str(error)
    assert "s3c" not in repr(error.__cause__)


@pytest.mark.live
async def test_a_wrong_password_is_not_shown(postgres_url: str) -> None:
    if "s3cret" not in postgres_url:
        pytest.skip("this server's password is not ours to get wrong")
    error = await refused(postgres_url.replace("s3cret", "wr0ng"))
    assert "password authentication failed" in str(error)
    assert "wr0ng" not in str(error)
    assert "tester:***@" in str(error)


@pytest.mark.process
@pytest.mark.live
async def test_a_server_that_goes_away_in_mid_run_is_named() -> None:
    """The error names a server that stops during a run."""
    with ExitStack() as stack:
        url = stack.enter_context(server(apart=True))
        address = f"{url}&connect_timeout=1"
        async with open_store(address) as store, store.lock("s") as held:
            await held.add(title="", spec="")
            await put(held, 10)
            await asyncio.to_thread(stack.close)
            for call in (put(held, 10), held.finish("x"), alist_sessions(store=store.address)):
                with pytest.raises(StoreError, match=r"can't be used: .*connect"):
                    await call
