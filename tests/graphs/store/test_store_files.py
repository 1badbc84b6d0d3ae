"""SQLite files that are read-only, or are deleted, moved or replaced while they are in use."""

import os
import shutil
import sqlite3
import subprocess
import sys
from asyncio import to_thread
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from duologue.graphs import Session, StoreError, alist_sessions, converse, list_sessions, role_play
from duologue.nodes.testing import ScriptedChatModel
from support.stores import open_store

GARDEN = role_play("Plan a garden", "Cook", "Gardener", specify_task=False)


def fill(file: Path, session: str) -> None:
    script = ["Instruction: Dig.\nInput: None", "Solution: Dug. Next request.", "<CAMEL_TASK_DONE>"]
    converse(GARDEN, session=session, model=ScriptedChatModel(script=script), store=file)


@contextmanager
def powerless(folder: Path) -> Iterator[None]:
    """Make a folder read-only, and give up root's rights, which modes do not limit."""
    everything = [folder, *folder.rglob("*")]
    for one in everything:
        one.chmod(0o555 if one.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for one in everything:
            one.chmod(0o700 if one.is_dir() else 0o600)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user can reach, unlike `tmp_path`."""
    with TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def read(file: Path) -> list[str]:
    """List, show and export the sessions of a store."""
    session = Session("first", store=file)
    assert session.state().transcript[0] == ("Cook", "Instruction: Dig.\nInput: None")
    assert "Dig." in session.export("markdown")
    return [row.session for row in list_sessions(store=file)]


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param((), id="closed"),
        pytest.param(("-wal", "-shm"), id="killed"),
        pytest.param(("-wal",), id="without the index of the WAL"),
    ],
)
async def test_a_read_only_store_is_listed_shown_and_exported(
    beside: tuple[str, ...], folder: Path
) -> None:
    file, copy = folder / "x.db", folder / "copy" / "x.db"
    await to_thread(lambda: fill(file, "first"))
    copy.parent.mkdir()
    async with open_store(file) as store:
        async with store.lock("late") as held:
            await held.add(title="", spec=GARDEN.model_dump_json())
        assert await to_thread(lambda: read(file)) == ["late", "first"]
        for end in ("", *beside):
            shutil.copy(f"{file}{end}", f"{copy}{end}")
    if not beside:
        shutil.copy(file, copy)
    before = contents(copy.parent)
    with powerless(copy.parent):
        assert await to_thread(lambda: read(copy)) == ["late", "first"]
        for change in (Session("first", store=copy).adelete(), to_thread(lambda: fill(copy, "x"))):
            with pytest.raises(StoreError, match=r"x\.db can't be used: the file is read-only or"):
                await change
    assert contents(copy.parent) == before


async def test_a_read_only_store_shows_a_run_that_another_process_writes(folder: Path) -> None:
    file = folder / "x.db"
    async with open_store(file) as store, store.lock("late") as held:
        await held.add(title="", spec=GARDEN.model_dump_json())
        with powerless(folder):
            rows = await to_thread(lambda: list_sessions(store=file, status="running"))
        assert [row.session for row in rows] == ["late"]


async def test_a_change_of_a_store_that_is_read_as_unchangeable_is_noticed(folder: Path) -> None:
    file = folder / "x.db"
    await to_thread(lambda: fill(file, "first"))
    with powerless(folder):
        shown = open_store(file)
        store = await shown.__aenter__()
    await to_thread(lambda: fill(file, "second"))
    with pytest.raises(StoreError, match="it was changed while it was read; open it again"):
        await alist_sessions(store=store.address)
    await shown.__aexit__(None, None, None)


async def test_a_folder_that_is_read_only_gets_no_store(folder: Path) -> None:
    with powerless(folder):
        for file in (folder / "x.db", folder / "y" / "x.db"):
            with pytest.raises(StoreError, match=r"x\.db can't be used: Permission denied"):
                async with open_store(file):
                    pytest.fail("opened")


def names(file: Path) -> list[str]:
    return [row.session for row in list_sessions(store=file)]


def is_sound(file: Path) -> bool:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


REFUSED = r"x\.db-wal or x\.db-shm was deleted or replaced while a run used it; wait until"


@pytest.mark.parametrize("change", ["deleted", "replaced", "moved", "-wal", "-shm"])
async def test_a_file_that_changes_place_in_use_spoils_no_other(
    change: str, tmp_path: Path
) -> None:
    file, other, moved = (tmp_path / f"{name}.db" for name in ("x", "other", "moved"))
    await to_thread(lambda: fill(file, "first"))
    await to_thread(lambda: fill(other, "other"))
    async with open_store(file) as store:
        async with store.lock("late") as held:
            await held.add(title="", spec="x" * 100_000)
        if change == "moved":
            file.rename(moved)
        else:
            file.with_name("x.db" + change * change.startswith("-")).unlink()
        if change in ("replaced", "moved"):
            other.rename(file)
        with pytest.raises(StoreError, match=REFUSED):
            await to_thread(lambda: fill(file, "new"))
        with pytest.raises(StoreError, match="newer messages are not in it"):
            await store.request_stop("late")
    # The run has ended, and has moved its messages out of the WAL.
    replaced = {"deleted": [], "replaced": ["other"], "moved": ["other"]}
    after = replaced.get(change, ["late", "first"])
    await to_thread(lambda: fill(file, "new"))
    assert await to_thread(lambda: names(file)) == ["new", *after]
    assert is_sound(file)
    if change == "moved":
        assert await to_thread(lambda: names(moved)) == ["late", "first"]
        assert is_sound(moved)


HOLDING = """
import asyncio, sys
from duologue.graphs.store.open import open_store
async def main():
    async with open_store(sys.argv[1]):
        print("open", flush=True)
        sys.stdin.read()
asyncio.run(main())
"""


def test_a_store_that_another_process_opens_at_the_same_time_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, others = tmp_path / "x.db", list[subprocess.Popen[str]]()
    list_folder = Path.iterdir

    def open_before(folder: Path) -> Iterator[Path]:
        if folder.suffix == ".locks" and not others:
            command = [sys.executable, "-c", HOLDING, str(file)]
            others.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert others[0].stdout is not None
            assert others[0].stdout.readline() == "open\n"
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", open_before)
    try:
        fill(file, "first")
    finally:
        for other in others:
            other.communicate()
    assert len(others) == 1
    assert names(file) == ["first"]


KILLED = """
import asyncio, os, sys
from duologue.graphs.store.open import open_store
async def main():
    async with open_store(sys.argv[1]) as store, store.lock("late") as held:
        await held.add(title="", spec="x" * 100_000)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


def test_the_wal_of_a_killed_run_is_not_added_to_another_file(tmp_path: Path) -> None:
    file, other, copy = (tmp_path / name / "x.db" for name in ("a", "b", "c"))
    fill(file, "first")
    fill(other, "other")
    subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    shutil.copytree(file.parent, copy.parent)
    # A copy of the whole folder is complete.
    assert names(copy) == ["late", "first"]
    other.rename(file)
    with pytest.raises(StoreError, match=REFUSED):
        names(file)
    for end in ("-wal", "-shm"):
        file.with_name(f"x.db{end}").unlink()
    assert names(file) == ["other"]
    assert is_sound(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_store_on_a_full_disk_is_listed_shown_and_exported(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this container mounts nothing")
    try:
        file, filler = tmp_path / "x.db", tmp_path / "filler"
        fill(file, "first")
        with suppress(OSError), filler.open("wb", buffering=0) as written:
            while True:
                written.write(b"x" * 4096)
        assert read(file) == ["first"]
        for change in (Session("first", store=file).delete, lambda: fill(file, "new")):
            with pytest.raises(StoreError, match="read-only or its disk is full; make room"):
                change()
        filler.unlink()
        fill(file, "new")
        assert names(file) == ["new", "first"]
        assert is_sound(file)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
