"""A SQLite file between two sessions of one process: it is complete, and can be changed freely."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, nullcontext
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from duologue import Session, aconverse, converse, list_sessions
from duologue.nodes.testing import Prompt, ScriptedChatModel
from support.stores import open_store

TALK = {
    "task": "Plan",
    "speakers": [{"name": "Ann"}, {"name": "Ben"}],
    "end_chat": {"max_iterations": 1},
}


def talk(store: Path | str, session: str) -> None:
    converse(TALK, session=session, store=store, model=ScriptedChatModel(["Hi.", "Ho."]))


def names(store: Path | str) -> list[str]:
    """Return the sessions of a store, all of whose messages can be read."""
    found = [row.session for row in list_sessions(store=store)]
    for one in found:
        assert Session(one, store=store).state().transcript == [("Ann", "Hi."), ("Ben", "Ho.")]
    return sorted(found)


CHANGES: dict[str, tuple[Callable[[Path, Path], object], list[str]]] = {
    "nothing": (lambda file, other: None, ["first", "second"]),
    "deleted": (lambda file, other: file.unlink(), ["second"]),
    "moved away": (lambda file, other: file.rename(file.with_name("moved.db")), ["second"]),
    "replaced": (lambda file, other: other.replace(file), ["other", "second"]),
    "overwritten": (lambda file, other: shutil.copyfile(other, file), ["other", "second"]),
    "its folder deleted": (lambda file, other: shutil.rmtree(file.parent), ["second"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_can_be_changed_between_two_sessions(change: str, tmp_path: Path) -> None:
    file, other = tmp_path / "a" / "x.db", tmp_path / "b" / "other.db"
    talk(file, "first")
    talk(other, "other")
    act, expected = CHANGES[change]
    act(file, other)
    # Another event loop has another store.
    model = ScriptedChatModel(["Hi.", "Ho."])
    asyncio.run(aconverse(TALK, session="second", store=file, model=model))
    assert names(file) == expected
    talk(file, "third")
    assert names(file) == sorted([*expected, "third"])
    if change == "moved away":
        assert names(file.with_name("moved.db")) == ["first"]


@pytest.mark.parametrize("lasts", [False, True])
def test_a_copied_file_is_complete_after_the_last_session(lasts: bool, tmp_path: Path) -> None:
    """Other files are beside it only while it is in use."""
    file, copy = tmp_path / "x.db", tmp_path / "copy.db"

    async def run() -> None:
        async with open_store(file) if lasts else nullcontext():
            model = ScriptedChatModel(["Hi.", "Ho."])
            await aconverse(TALK, session="first", store=file, model=model)

    asyncio.run(run())
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["x.db", "x.db.locks"]
    shutil.copyfile(file, copy)
    assert names(copy) == ["first"]


def test_a_copy_between_two_sessions_releases_no_lock_of_the_second(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the process's POSIX locks on it."""
    file = tmp_path / "x.db"
    talk(file, "first")
    shutil.copyfile(file, tmp_path / "copy.db")
    look = "import sys, duologue; duologue.list_sessions(store=sys.argv[1])"

    def say(prompt: object) -> str:
        # The last process that closes the file deletes its WAL, unless another has a lock.
        subprocess.run([sys.executable, "-c", look, str(file)], check=True)
        return "Ho." if model.calls[1:] else "Hi."

    model = ScriptedChatModel(script=say)
    converse(TALK, session="second", store=file, model=model)
    assert names(file) == ["first", "second"]


def test_a_relative_path_belongs_to_the_folder_of_its_session(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with chdir(tmp_path / name):
            talk("x.db", name)
    assert [names(tmp_path / name / "x.db") for name in ("a", "b")] == [["a"], ["b"]]


@pytest.mark.process
def test_a_forked_child_and_its_parent_run_sessions_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    talk(file, "first")
    child = os.fork()
    if not child:
        try:
            talk(file, "in-the-child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    talk(file, "last")
    assert names(file) == ["first", "in-the-child", "last"]


async def test_no_session_blocks_the_event_loop(tmp_path: Path) -> None:
    """The dev server refuses blocking calls, such as those of SQLite."""

    async def run(store: Path | str, session: str) -> None:
        model = ScriptedChatModel(["Hi.", "Ho."])
        result = await aconverse(TALK, session=session, store=store, model=model)
        assert (await Session(session, store=store).astate()).messages == result.messages

    for store in (f"memory:{tmp_path.name}", tmp_path / "x.db"):
        await run(store, "first")  # imports modules
        with blockbuster_ctx():
            await run(store, "second")
            await Session("second", store=store).adelete()


async def test_a_session_in_memory_ends_after_the_main_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No executor takes a call then, but other threads may still hold conversations."""

    def speak(prompt: Prompt) -> str:
        monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
        return f"Hi, {len(prompt)}."

    model = ScriptedChatModel(speak)
    result = await aconverse(TALK, store=f"memory:{tmp_path.name}", model=model)
    monkeypatch.undo()
    assert result.outcome is not None
