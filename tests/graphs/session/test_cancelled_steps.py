"""A run that is cancelled within a step: the session goes on, and the store has no lock left."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from langgraph.errors import NodeCancelledError

from duologue import Session, aconverse
from duologue.graphs.rules.transitions import Node
from duologue.graphs.store.sqlite import SqliteStore
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.turn.running_sessions import RunningSessions
from support.fork_help import go_on, plain, texts
from support.stores import EACH_STORE, open_store, store_address

LINES = ["A1", "B1", "A2", "B2"]


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.mark.parametrize("edge", range(5))
async def test_a_run_that_is_cancelled_between_a_node_and_its_edge_goes_on(
    edge: int, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, decided = 0, RunningSessions.take_decision

    def cancelled(*given: Any) -> Node | None:
        nonlocal passed
        passed += 1
        if passed > edge:
            raise asyncio.CancelledError
        return decided(*given)

    options: Any = {"session": "s1", "store": store, "model": ScriptedChatModel(script=LINES)}
    with monkeypatch.context() as patch:
        patch.setattr(RunningSessions, "take_decision", cancelled)
        with pytest.raises(NodeCancelledError):
            await aconverse(plain(), **options)
    # Completed calls are not repeated.
    result = await asyncio.to_thread(go_on, Session("s1", store=store), LINES[edge:])
    assert texts(result) == LINES


async def test_a_write_under_way_when_the_store_is_closed_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that LangGraph leaves behind after a cancelled step locks nothing."""
    path = tmp_path / "sessions.db"
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c"}}
    commit = SqliteStore._commit
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(self: SqliteStore, jobs: Any) -> Any:  # noqa: ANN401
        if any("INTO writes" in statement.sql for job in jobs for statement in job.statements):
            loop.call_soon_threadsafe(begun.set)
            time.sleep(0.05)
        return commit(self, jobs)

    monkeypatch.setattr(SqliteStore, "_commit", late)
    async with open_store(path) as store, store.lock("t") as held:
        writing = asyncio.create_task(held.checkpointer.aput_writes(config, [("a", 1)], "task"))
        await begun.wait()
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("BEGIN IMMEDIATE")
        assert connection.execute("SELECT count(*) FROM writes").fetchall() == [(1,)]
        assert connection.execute("SELECT * FROM duologue_leases").fetchall() == []
    finally:
        connection.close()
    await writing
