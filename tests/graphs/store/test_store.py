"""One test suite for every kind of store."""

import asyncio
import math
import operator
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from duologue.graphs import SessionError, alist_sessions
from support.stores import (
    EACH_STORE,
    SHARED_STORES,
    BatchRow,
    CellRow,
    SessionLease,
    Store,
    open_store,
    store_address,
)

pytestmark = pytest.mark.every_store

PATHS = [str(Path(__file__).parents[up]) for up in (0, 2)]
"""Import paths of the child processes: this folder, and the tests' folder."""


@pytest.fixture(params=EACH_STORE)
def target(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request, "folder/sessions")


@pytest.fixture(params=SHARED_STORES)
def shared(request: pytest.FixtureRequest) -> str:
    """Return the address of a store that other processes can open, too."""
    return store_address(request.param, request)


@pytest.fixture
async def store(target: str) -> AsyncIterator[Store]:
    async with open_store(target) as opened:
        yield opened


class State(TypedDict):
    log: Annotated[list[AnyMessage], operator.add]
    plain: dict[str, Any]


def graph_on(store: Store | SessionLease) -> CompiledStateGraph[State, None, State, State]:
    async def speak(state: State) -> dict[str, Any]:
        said = [AIMessage(f"reply {len(state['log'])}", id=f"m{len(state['log'])}")]
        return {"log": said, "plain": {"n": len(state["log"]), "none": None, "x": [1, 2.5, "ü"]}}

    builder = StateGraph(State)
    builder.add_node("speak", speak)
    builder.add_edge(START, "speak")
    builder.add_edge("speak", END)
    return builder.compile(checkpointer=store.checkpointer)


async def add(store: Store, session: str, title: str = "", spec: str = "{}") -> Any:  # noqa: ANN401
    async with store.lock(session) as held:
        return await held.add(title=title, spec=spec)


async def row_of(store: Store, session: str) -> Any:  # noqa: ANN401
    row = await store.get(session)
    assert row is not None
    return row


async def say(store: Store, session: str, text: str) -> State:
    async with store.lock(session) as held:
        return await say_in(held, text)


async def say_in(held: SessionLease, text: str) -> State:
    given: State = {"log": [HumanMessage(text)], "plain": {}}
    said = await graph_on(held).ainvoke(given, {"configurable": {"thread_id": held.session}})
    return State(log=said["log"], plain=said["plain"])


async def texts(store: Store, session: str) -> list[str]:
    found = await graph_on(store).aget_state({"configurable": {"thread_id": session}})
    return [message.text for message in found.values.get("log", [])]


async def test_a_row_knows_the_session_that_it_was_forked_from(store: Store) -> None:
    async with store.lock("other") as held:
        row = await held.add(title="", spec="{}", forked_from="garden")
    assert row.forked_from == "garden"
    assert await store.get("other") == row
    assert await alist_sessions(store=store.address) == [row]
    assert (await add(store, "garden")).forked_from is None


async def test_a_row_is_added_once_and_read_back(store: Store) -> None:
    row = await add(store, "s-1", "A talk", '{"task": "ü"}')
    assert row.digest == sha256('{"task": "ü"}'.encode()).hexdigest()
    assert (row.status, row.reason, row.stop_requested) == ("unfinished", None, False)
    assert row.created_at == row.updated_at
    assert row.created_at.utcoffset() == timedelta(0)
    assert await store.get("s-1") == row
    assert await store.get("other") is None
    with pytest.raises(SessionError, match="'s-1' already exists"):
        await add(store, "s-1", "again")
    assert await alist_sessions(store=store.address) == [row]


async def test_an_end_and_a_stop_change_only_their_session(store: Store) -> None:
    one, two = [await add(store, name, name) for name in ("one", "two")]
    await store.request_stop("one")
    assert await store.stop_requested("one")
    assert not await store.stop_requested("two")
    async with store.lock("one") as held:
        await held.finish("stopped")
        changed = await row_of(store, "one")
        for _ in range(2):
            await held.clear_stop()
    cleared = await row_of(store, "one")
    assert one.updated_at <= changed.updated_at <= cleared.updated_at
    expected = {"status": "finished", "reason": "stopped", "updated_at": cleared.updated_at}
    assert cleared == one.model_copy(update=expected)
    stopped = {"stop_requested": True, "updated_at": changed.updated_at}
    assert changed == cleared.model_copy(update=stopped)
    assert await store.get("two") == two


async def test_after_a_write_a_stop_is_read_only_if_one_was_requested(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duologue.graphs.store.postgres._FRESH", math.inf)
    async with store.lock("s") as held:
        await held.add(title="", spec="{}")
        queries, read = list[str](), store.read

        async def noted(sql: str, *values: object) -> Sequence[Sequence[Any]]:
            queries.append(sql)
            return await read(sql, *values)

        monkeypatch.setattr(store, "read", noted)
        assert not await held.stop_requested("s")
        assert queries == []
        await store.request_stop("s")
        assert await held.stop_requested("s")


async def test_sessions_are_found_by_what_is_said_of_them_page_by_page(
    store: Store, target: str
) -> None:
    titles = {
        "a": "Plan 100% of it",
        "b": "Plant beans",
        "c": "Peas!",
        "d": "PLANKS_",
        "e": "Äpfel",
    }
    for session, title in titles.items():
        async with store.lock(session) as held:
            await held.add(title=title, spec="{}")
            if session in "bd":
                await held.finish("quit" if session == "b" else "max_iterations")
            elif session == "c":
                await held.wait()

    async def found(**wanted: Any) -> str:
        return "".join(row.session for row in await alist_sessions(store=target, **wanted))

    assert await found() == "edcba"
    assert await found(text="plan") == "dba"
    # Wildcards match only themselves.
    assert [await found(text=sign) for sign in ("%", "_", "!", "'", "0% o")] == [*"adc", "", "a"]
    assert await found(text="Äpf") == "e"
    assert await found(status="finished") == "db"
    assert await found(status="waiting") == "c"
    assert await found(reason="quit") == "b"
    assert await found(text="PLAN", status="finished", limit=1) == "d"
    async with store.lock("d"):
        assert await found(status="running") == "d"
        assert set(await store.locked(["a", "d"])) == {"d"}
    async with store.lock_batch("lot") as lease:
        now = datetime.now(UTC)
        about: dict[str, Any] = {"title": "", "spec": "{}", "settings": "{}", "cells": 1}
        await lease.put(BatchRow(batch="lot", created_at=now, updated_at=now, **about))
        await lease.put_cell(CellRow(batch="lot", number=1, session="b", updated_at=now))
    assert await found(batch="lot") == "b"
    pages, after = "", None
    while rows := await found(limit=2, after=after):
        pages, after = f"{pages}{rows} ", rows[-1]
    assert pages == "ed cb a "
    assert await found(text="plan", after="d") == "ba"
    changed = "UPDATE duologue_sessions SET updated_at = '2020' || SUBSTR(updated_at, 5)"
    await store.write(f"{changed} WHERE session = ?", "b")
    assert await found(older_than=timedelta(days=1), text="plan") == "b"


async def test_an_unknown_session_is_named(store: Store) -> None:
    async def held(change: Callable[[SessionLease], Awaitable[None]]) -> None:
        async with store.lock("gone") as gone:
            await change(gone)

    for call in (
        held(lambda gone: gone.finish("x")),
        held(lambda gone: gone.clear_stop()),
        store.request_stop("gone"),
        store.stop_requested("gone"),
        store.delete("gone"),
    ):
        with pytest.raises(SessionError, match="no session 'gone'"):
            await call
    assert not await store.is_locked("gone")


async def test_a_graph_goes_on_after_reopening(target: str) -> None:
    async with open_store(target) as store:
        await add(store, "s")
        await say(store, "s", "hello")
    async with open_store(target) as store:
        assert await texts(store, "s") == ["hello", "reply 1"]
        state = await say(store, "s", "and?")
        assert [m.text for m in state["log"]] == ["hello", "reply 1", "and?", "reply 3"]
        assert state["plain"] == {"n": 3, "none": None, "x": [1, 2.5, "ü"]}
        graph = graph_on(store)
        history = [c async for c in graph.aget_state_history({"configurable": {"thread_id": "s"}})]
        assert len(history) == 6


async def test_deleting_takes_the_checkpoints_of_that_session_only(store: Store) -> None:
    for name in ("one", "two"):
        await add(store, name)
        await say(store, name, f"I am {name}")
    await store.delete("one")
    assert await store.get("one") is None
    assert await texts(store, "one") == []
    everything = [found async for found in store.checkpointer.alist(None)]
    assert {found.config["configurable"]["thread_id"] for found in everything} == {"two"}
    assert await texts(store, "two") == ["I am two", "reply 1"]


@pytest.mark.usefixtures("impatient")
async def test_a_lock_is_refused_to_others_until_it_is_free(store: Store, target: str) -> None:
    await add(store, "s")
    async with open_store(target) as other:
        async with store.lock("s"):
            for one in (store, other):
                assert await one.is_locked("s")
                assert not await one.is_locked("S")
                with pytest.raises(SessionError, match="'s' is busy"):
                    async with one.lock("s"):
                        pytest.fail("locked twice")
                with pytest.raises(SessionError, match="'s' is busy"):
                    await one.delete("s")
            async with other.lock("S"):
                pass
        assert not await store.is_locked("s")
        async with other.lock("s"):
            assert await store.is_locked("s")
        await other.delete("s")


async def test_a_lock_is_freed_by_an_error_and_by_cancelling(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        async with store.lock("s"):
            _ = 1 // 0
    held = asyncio.Event()

    async def hold() -> None:
        async with store.lock("s"):
            held.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await held.wait()
    task.cancel()
    await asyncio.wait([task])
    async with store.lock("s"):
        pass


async def test_what_is_being_written_when_a_run_ends_is_kept(store: Store) -> None:
    async with store.lock("s") as held:
        await held.add(title="", spec="{}")
        writing = asyncio.create_task(held.finish("stopped"))
        await asyncio.sleep(0)
        writing.cancel()
    row = await store.get("s")
    assert row is not None
    assert row.status == "finished"
    assert not await store.is_locked("s")


async def test_one_of_many_tasks_gets_the_lock(store: Store) -> None:
    done = asyncio.Event()
    waiting = 8

    async def contend() -> bool:
        nonlocal waiting
        try:
            async with store.lock("s"):
                await done.wait()
                return True
        except SessionError:
            return False
        finally:
            waiting -= 1
            if waiting == 1:
                done.set()

    assert sum(await asyncio.gather(*(contend() for _ in range(8)))) == 1


HOLDER = """
import asyncio, sys
from duologue.graphs.store.open import open_store
async def main():
    async with open_store(sys.argv[1]) as store, store.lock("s"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["kill -9", "leaving"])
async def test_another_process_holds_a_lock_until_it_dies(shared: str, how: str) -> None:
    async with open_store(shared) as store:
        with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
            [sys.executable, "-c", HOLDER, shared], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            assert await store.is_locked("s")
            with pytest.raises(SessionError, match="busy"):
                async with store.lock("s"):
                    pytest.fail("locked twice")
            if how == "kill -9":
                holder.kill()
            else:
                assert holder.stdin is not None
                holder.stdin.close()
            await asyncio.to_thread(holder.wait)
        while await store.is_locked("s"):  # noqa: ASYNC110 - the server sees a death a bit later
            await asyncio.sleep(0.01)
        async with store.lock("s"):
            pass


async def test_a_looker_does_not_make_a_session_busy(store: Store) -> None:
    done = False

    async def look() -> None:
        while not done:
            await store.is_locked("s")
            await asyncio.sleep(0)

    lookers = [asyncio.create_task(look()) for _ in range(3)]
    for _ in range(20):
        async with store.lock("s"):
            pass
    done = True
    await asyncio.gather(*lookers)


async def test_many_sessions_at_once_do_not_mix(store: Store) -> None:
    names = [f"s{i}" for i in range(8)]

    async def live(name: str) -> None:
        async with store.lock(name) as held:
            await held.add(title=name, spec="{}")
            for turn in range(3):
                await say_in(held, f"{name} {turn}")
                assert not await store.stop_requested(name)
            await held.finish("done")

    await asyncio.gather(*map(live, names))
    assert {
        row.session for row in await alist_sessions(store=store.address) if row.status == "finished"
    } == set(names)
    for name in names:
        assert [text for text in await texts(store, name) if "reply" not in text] == [
            f"{name} {turn}" for turn in range(3)
        ]


# Imported once and forked, because importing takes far longer than the tested code.
WRITERS = """
import asyncio, os, sys
sys.path[:0] = sys.argv[2:]
from test_store import say_in
from duologue.graphs.store.open import open_store
async def live(store, name):
    async with store.lock(name) as held:
        await held.add(title=name, spec="{}")
        for turn in range(3):
            await say_in(held, f"{name} {turn}")
        await held.finish("done")
async def main(process):
    async with open_store(sys.argv[1]) as store:
        await asyncio.gather(*(live(store, f"p{process}-{i}") for i in range(4)))
children = []
for process in range(8):
    if not (child := os.fork()):
        try:
            asyncio.run(main(process))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.mark.process
async def test_eight_processes_write_at_once(shared: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITERS, shared, *PATHS)
    assert await process.wait() == 0
    async with open_store(shared) as store:
        rows = await alist_sessions(store=store.address)
        assert len(rows) == 32
        assert all(row.status == "finished" for row in rows)
        for row in rows:
            assert len(await texts(store, row.session)) == 6


async def test_strict_deserialising_is_silent(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    assert os.environ["LANGGRAPH_STRICT_MSGPACK"] == "true"
    await say(store, "s", "hello")
    state = await say(store, "s", "again")
    kinds = [type(message).__name__ for message in state["log"]]
    assert kinds == ["HumanMessage", "AIMessage"] * 2
    assert caplog.records == []


async def test_cancelled_writes_block_nobody(shared: str) -> None:
    async with open_store(shared) as store:
        for steps in range(12):
            name = f"s{steps}"
            config: RunnableConfig = {
                "configurable": {"thread_id": name, "checkpoint_ns": "", "checkpoint_id": "1"}
            }
            async with store.lock(name) as held:
                writes: list[Coroutine[Any, Any, Any]] = [
                    held.checkpointer.aput(config, empty_checkpoint(), {}, {}),
                    held.checkpointer.aput_writes(config, [("a", 1), ("b", 2)], "task"),
                    held.add(title="", spec=""),
                    say_in(held, "hello"),
                ]
                for write in writes:
                    task = asyncio.create_task(write)
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
            # Another loop has a separate store, which an open transaction would block.
            await asyncio.to_thread(asyncio.run, add_alone(shared, f"{steps}-other"))
        assert not await store.is_locked("s11")


async def add_alone(target: str, session: str) -> None:
    async with open_store(target) as store:
        await add(store, session)


async def test_ids_of_sessions_are_checked() -> None:
    async with open_store("memory:ids") as store:
        for session in ("a", "A.b_c-9", "...", "x" * 128):
            assert (await add(store, session)).session == session
        for session in ("", ".", "..", "a/b", "a b", "x" * 129, "ü", "a\n", "٣"):
            with pytest.raises(SessionError) as caught:
                await add(store, session)
            assert repr(session) in str(caught.value)


async def test_verdicts_are_kept_beside_a_session_and_go_with_it(store: Store) -> None:
    async with store.lock("a") as held, store.lock("b") as other:
        for lease in (held, other):
            await lease.add(title="A", spec="{}")
            for number in (1, 2, 10):
                await lease.put_verdict(number, f'{{"of": "{lease.session}{number}"}}')
        # A write that is repeated changes nothing.
        await held.put_verdict(10, '{"of": "a10"}')
    assert await store.verdicts("a") == ['{"of": "a1"}', '{"of": "a2"}', '{"of": "a10"}']
    await store.delete("a")
    assert await store.verdicts("a") == []
    assert len(await store.verdicts("b")) == 3
    async with store.lock("b") as held:
        await held.delete_verdicts()
    assert await store.verdicts("b") == []
