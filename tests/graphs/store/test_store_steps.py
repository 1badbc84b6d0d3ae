"""Writes of a session's steps, the tables of a store, and the errors of its driver."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.utils import pending_writes_sql
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from duologue.graphs import (
    Session,
    SessionError,
    StoreError,
    aconverse,
    alist_sessions,
    astream,
    role_play,
)
from duologue.graphs.common.data import Versions
from duologue.graphs.events import MessageSaid
from duologue.graphs.store import saver, sql_tables as tables
from duologue.graphs.store.errors import store_errors
from duologue.graphs.store.in_memory import MemoryStore
from duologue.graphs.store.lease import Job, Lease, Results, Statement, Writer
from duologue.graphs.store.rows import Wanted
from duologue.graphs.store.saver import SqliteSessionSaver
from duologue.graphs.store.sql_tables import RELEASE
from duologue.nodes.testing import Prompt, ScriptedChatModel
from support.log import place_of
from support.stores import SessionLease, Store, open_store
from support.tables import read_rows

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.live)]

NODE = "~__pregel_pull, user_agent"
"""LangGraph's path of a node's task."""

HERE: RunnableConfig = {
    "configurable": {"thread_id": "s", "checkpoint_ns": "", "checkpoint_id": "1"}
}


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sessions.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Any]]:
    """Return a list of all commits; there is no other writer, so no writes are grouped."""
    found: list[Sequence[Any]] = []
    write = Writer.write

    async def noted(self: Writer, *statements: Any, **named: Any) -> int:
        found.append(statements)
        return await write(self, *statements, **named)

    monkeypatch.setattr(Writer, "write", noted)
    # On a busy machine a checkpoint may be late, and the writes that wait for it come first.
    monkeypatch.setattr(saver, "_SOON", 600.0)
    return found


def speak(prompt: Prompt) -> str:
    who = str(prompt[0]["content"]).split(",")[0].rpartition(" ")[2]
    return f"{who} after {len(prompt)} lines: " + "word " * 40


async def run(rounds: int, store: str, session: str = "s") -> None:
    model = ScriptedChatModel(script=speak)
    conversation = {
        "task": "Agree on a price",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": rounds},
    }
    result = await aconverse(conversation, model=model, store=store, session=session)
    assert result.outcome is not None
    assert len(model.calls) == 2 * rounds


async def test_an_utterance_is_one_transaction(target: str, written: list[Sequence[Any]]) -> None:
    async with open_store(target):
        pass  # creates the tables
    counts = []
    for rounds in (1, 2, 7):
        before = len(written)
        await run(rounds, target, f"s{rounds}")
        counts.append(len(written) - before)
    # The lease, the row and the steps before the first message are one transaction.
    assert counts == [1 + 2 * rounds for rounds in (1, 2, 7)]


async def test_a_new_session_is_stored_before_a_model_rewrites_its_task(
    target: str, written: list[Sequence[Any]]
) -> None:
    async with open_store(target):
        pass  # creates the tables
    before = len(written)
    commits = list[int]()

    def speak_later(prompt: Prompt) -> str:
        commits.append(len(written) - before)
        return speak(prompt)

    talk = role_play("Agree on a price", "Ann", "Bob", end_chat={"max_iterations": 1})
    await aconverse(talk, model=ScriptedChatModel(script=speak_later), store=target, session="s")
    # Otherwise a second run of the same session would call the model before it is refused.
    assert commits[0] == 1


@pytest.mark.exhaustive
async def test_a_round_of_short_messages_takes_at_most_five_kibibytes(tmp_path: Path) -> None:
    sizes = []
    for rounds in (10, 40):
        path = tmp_path / f"{rounds}.db"
        await run(rounds, f"sqlite:///{path}")
        sizes.append(path.stat().st_size)
    assert (sizes[1] - sizes[0]) / (40 - 10) <= 5 * 1024


async def read(held: SessionLease | Store) -> list[tuple[str, Any]]:
    """Return the tasks' writes to the only checkpoint."""
    found = await held.checkpointer.aget_tuple(HERE)
    assert found is not None
    return [(channel, value) for _, channel, value in found.pending_writes or ()]


ROOT: RunnableConfig = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}


async def begun(held: SessionLease) -> None:
    await held.add(title="", spec="{}")
    await held.checkpointer.aput(ROOT, empty_checkpoint() | {"id": "1"}, {}, {})


@pytest.fixture
async def store(target: str) -> AsyncIterator[Store]:
    async with open_store(target) as opened:
        yield opened


@pytest.fixture
async def held(store: Store) -> AsyncIterator[SessionLease]:
    """Yield the lease on a session with one checkpoint."""
    async with store.lock("s") as lease:
        await begun(lease)
        yield lease


async def test_what_a_node_wrote_is_saved_with_the_checkpoint_that_it_leads_to(
    store: Store, held: SessionLease, written: list[Sequence[Any]]
) -> None:
    before = len(written)
    await held.checkpointer.aput_writes(HERE, [("said", "hi"), ("plain", 1)], "task", NODE)
    await held.checkpointer.aput_writes(HERE, [("plain", 1)], "other", NODE)
    assert len(written) == before
    version = held.checkpointer.get_next_version(None, None)
    led_to = empty_checkpoint() | {
        "id": "2",
        "channel_values": {"plain": 1},
        "channel_versions": {"plain": version, "said": version},
    }
    place = await held.checkpointer.aput(HERE, led_to, {}, led_to["channel_versions"])
    assert len(written) == before + 1
    assert place["configurable"] == HERE["configurable"] | {"checkpoint_id": "2"}
    # The other one is in the checkpoint.
    assert await read(store) == [("said", "hi")]


async def test_no_timer_of_a_session_outlives_its_lease(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that ends would start a save for the timer, and never run it."""
    monkeypatch.setattr(saver, "_SOON", 600.0)
    loop: Any = asyncio.get_running_loop()

    def timers() -> int:
        late = loop.time() + 300
        return sum(not one.cancelled() and one.when() > late for one in loop._scheduled)

    async with open_store(target) as store:
        before = timers()
        async with store.lock("s") as held:
            await begun(held)
            await held.checkpointer.aput_writes(HERE, [("said", "hi")], "task", NODE)
            assert timers() == before + 1
        assert timers() == before


async def test_what_waits_for_its_checkpoint_is_not_lost_where_none_comes(target: str) -> None:
    async with open_store(target) as store:
        async with store.lock("s") as held:
            await begun(held)
            await held.checkpointer.aput_writes(HERE, [("said", "hi"), ("plain", 1)], "task", NODE)
            assert await read(store) == []
            # A writer reads its own writes.
            assert await read(held) == [("said", "hi"), ("plain", 1)]
            await held.checkpointer.aput_writes(HERE, [("said", "ho")], "this", NODE)
        assert await read(store) == [("said", "hi"), ("plain", 1), ("said", "ho")]


async def test_a_session_is_read_as_it_stood_at_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read is consistent, although LangGraph reads a checkpoint and its writes separately."""
    path = tmp_path / "sessions.db"
    async with open_store(f"sqlite:///{path}") as store, store.lock("s") as held:
        await begun(held)
        await held.checkpointer.aput_writes(HERE, [("said", "hi"), ("plain", 1)], "task", NODE)
        led_to = empty_checkpoint() | {"id": "2", "channel_values": {"plain": 1}}
        loop = asyncio.get_running_loop()

        def saved_between(has_task_path: bool) -> str:
            monkeypatch.undo()
            saving = held.checkpointer.aput(HERE, led_to, {}, {})
            asyncio.run_coroutine_threadsafe(saving, loop).result()
            return pending_writes_sql(has_task_path)

        monkeypatch.setattr("langgraph.checkpoint.sqlite.pending_writes_sql", saved_between)
        found = await store.checkpointer.aget_tuple(ROOT)
        assert found is not None
        assert (found.checkpoint["id"], found.pending_writes) == ("1", [])
        after = await store.checkpointer.aget_tuple(ROOT)
        assert after is not None
        assert (after.checkpoint["id"], after.pending_writes) == ("2", [])


async def test_writes_of_another_step_are_saved_whole(held: SessionLease) -> None:
    """With `durability="async"`, the writes of the next step are saved completely."""
    await held.checkpointer.aput_writes(HERE, [("plain", 1)], "task", NODE)
    elsewhere: RunnableConfig = {"configurable": HERE["configurable"] | {"checkpoint_id": "0"}}
    other = empty_checkpoint() | {"id": "2", "channel_values": {"plain": 2}}
    await held.checkpointer.aput(elsewhere, other, {}, {})
    assert await read(held) == [("plain", 1)]


async def test_what_is_told_is_saved_while_its_reader_takes_time(target: str) -> None:
    """A streamed step is saved while its reader is busy."""
    conversation = {"task": "Agree", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}
    told = 0
    events = astream(
        conversation | {"end_chat": {"max_iterations": 2}},
        model=ScriptedChatModel(script=speak),
        store=target,
        session="s",
    )
    async for event in events:
        if not isinstance(event, MessageSaid):
            continue
        told += 1
        async with asyncio.timeout(10):
            while event.id not in await stored(target):  # noqa: ASYNC110  # no event shows it
                await asyncio.sleep(0.01)
    assert told == 4


async def stored(target: str) -> list[str]:
    """Return the ids of the session's messages in its store."""
    return [place_of(message) for message in (await Session("s", store=target).astate()).messages]


async def test_a_write_that_fails_takes_none_of_another_step_with_it(
    store: Store, held: SessionLease
) -> None:
    """With `durability="async"`, a failed write does not affect the writes of another step."""
    await held.checkpointer.aput_writes(HERE, [("said", "hi")], "task", NODE)
    inner: RunnableConfig = {"configurable": HERE["configurable"] | {"checkpoint_ns": "in"}}
    with pytest.raises(TypeError):
        await held.checkpointer.aput_writes(inner, [("said", object())], "inner", NODE)
    await held.checkpointer.aput(HERE, empty_checkpoint() | {"id": "2"}, {}, {})
    assert await read(store) == [("said", "hi")]


async def test_what_could_not_be_saved_is_saved_with_its_checkpoint(
    store: Store, held: SessionLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*statements: Any, **named: Any) -> int:
        raise StoreError("disk full")

    await held.checkpointer.aput_writes(HERE, [("said", "hi")], "task", NODE)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "write", full)
        with pytest.raises(StoreError, match="disk full"):
            await read(held)
    await held.checkpointer.aput(HERE, empty_checkpoint() | {"id": "2"}, {}, {})
    assert await read(store) == [("said", "hi")]


async def test_a_step_that_runs_again_adds_nothing_to_what_it_wrote(target: str) -> None:
    """A repeated step adds nothing to its earlier writes, which later checkpoints share."""
    writes = [("plain", 1), ("said", "hi")]
    led_to = empty_checkpoint() | {"id": "2", "channel_values": {"plain": 1}}
    async with open_store(target) as store:
        async with store.lock("s") as held:
            await begun(held)
            led_to["channel_versions"] = {"plain": held.checkpointer.get_next_version(None, None)}
            await held.checkpointer.aput_writes(HERE, writes, "task", NODE)
            await held.checkpointer.aput(HERE, led_to, {}, led_to["channel_versions"])
            await held.checkpointer.aput_writes(HERE, writes, "task", NODE)
        assert [value for channel, value in await read(store) if channel == "said"] == ["hi"]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("channel", "path", "namespace"),
    read_rows(__file__, "what_no_checkpoint_follows_is_saved_at_once"),
)
async def test_what_no_checkpoint_follows_is_saved_at_once(
    channel: str, path: str, namespace: str, held: SessionLease, written: list[Sequence[Any]]
) -> None:
    place = HERE["configurable"] | {"checkpoint_ns": namespace}
    before = len(written)
    await held.checkpointer.aput_writes({"configurable": place}, [(channel, 1)], "task", path)
    assert len(written) == before + 1


async def test_a_run_that_lost_its_session_saves_nothing_of_a_step(
    store: Store, held: SessionLease
) -> None:
    await held.checkpointer.aput_writes(HERE, [("said", "hi")], "task", NODE)
    await store.write("DELETE FROM duologue_leases")
    with pytest.raises(SessionError, match="This run has lost"):
        await held.checkpointer.aput(HERE, empty_checkpoint() | {"id": "2"}, {}, {})
    assert await read(store) == []
    found = await store.checkpointer.aget_tuple(ROOT)
    assert found is not None
    assert found.checkpoint["id"] == "1"


async def test_only_the_lease_on_a_session_in_memory_writes_its_steps(tmp_path: Path) -> None:
    """Each event loop opens another store. LangGraph saves several checkpoints at once."""

    async def put(held: SessionLease, *names: str) -> list[str]:
        saved = [
            held.checkpointer.aput(ROOT, empty_checkpoint() | {"id": name}, {}, {})
            for name in names
        ]
        return [
            str(one) if isinstance(one, SessionError) else "saved"
            for one in await asyncio.gather(*saved, return_exceptions=True)
        ]

    async with AsyncExitStack() as stack:
        both = list[SessionLease]()
        for _ in range(2):
            store = MemoryStore(f"memory:{tmp_path.name}")
            await store.open()
            stack.push_async_callback(store.close)
            held = await stack.enter_async_context(store.lock("s", is_new=True, is_random=True))
            await held.begin(title="", spec="{}")
            both.append(held)
        first, second = both
        assert await put(first, "1", "2") == ["saved"] * 2
        assert all("is busy" in one for one in await put(second, "3", "4"))
    assert all("has lost" in one for one in await put(first, "5"))
    assert [one.checkpoint["id"] async for one in store.checkpointer.alist(ROOT)] == ["2", "1"]


def joined(kept: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*kept, *(one for write in writes for one in write)]


class Said(TypedDict):
    log: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=3)]
    plain: int


def asking(held: SessionLease | Store) -> Any:  # noqa: ANN401
    """Return a graph that adds a word at each step, and asks for the fifth word."""

    async def speak(state: Said) -> dict[str, Any]:
        number = len(state["log"])
        word = interrupt("which?") if number == 4 else str(number)
        return {"log": [word], "plain": number}

    def again(state: Said) -> str:
        return END if len(state["log"]) == 9 else "speak"

    builder = StateGraph(Said)
    builder.add_node("speak", speak)
    builder.add_edge(START, "speak")
    builder.add_conditional_edges("speak", again, ["speak", END])
    return builder.compile(checkpointer=held.checkpointer)


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_all_steps_are_read_back_with_snapshots_and_questions_among_them(
    target: str, durability: str
) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "s"}}
    async with open_store(target) as store:
        async with store.lock("s") as held:
            found = await asking(held).ainvoke({"log": []}, config, durability=durability)
            assert found["__interrupt__"][0].value == "which?"
        async with store.lock("s") as held:
            await asking(held).ainvoke(Command(resume="this"), config, durability=durability)
        graph = asking(store)
        words = ["0", "1", "2", "3", "this", "5", "6", "7", "8"]
        assert (await graph.aget_state(config)).values == {"log": words, "plain": 8}
        history = [step.values async for step in graph.aget_state_history(config)]
        logs = [values.get("log", []) for values in reversed(history)]
        assert [words[: len(log)] for log in logs] == logs
        assert [len(log) for log in logs] == [0, 0, *range(1, 10)]


async def test_a_session_whose_versions_are_langgraphs_own_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with LangGraph's own versions, which are longer than duologue's, continues."""
    config: RunnableConfig = {"configurable": {"thread_id": "s"}}
    async with open_store(tmp_path / "sessions.db") as store:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteSessionSaver, "get_next_version", SqliteSaver.get_next_version)
            async with store.lock("s") as held:
                await asking(held).ainvoke({"log": []}, config)
        async with store.lock("s") as held:
            await asking(held).ainvoke(Command(resume="this"), config)
        state = await asking(store).aget_state(config)
        assert state.values["log"] == ["0", "1", "2", "3", "this", "5", "6", "7", "8"]


async def test_versions_grow_and_are_more_than_any_of_langgraphs_own(tmp_path: Path) -> None:
    long = SqliteSaver(sqlite3.connect(":memory:")).get_next_version
    versions: list[str] = [long(None, None), long("00000000000000000000000000000399.0.5", None)]
    async with open_store(tmp_path / "sessions.db") as store:
        first = store.checkpointer.get_next_version(None, None)
        for _ in range(1200):
            versions.append(store.checkpointer.get_next_version(versions[-1], None))
    assert versions == sorted(versions)
    assert first > versions[1]


async def test_what_cannot_be_stored_keeps_no_session_locked(target: str) -> None:
    async with open_store(target) as store:
        async with store.lock("s") as held:
            await begun(held)
            await held.checkpointer.aput_writes(HERE, [("said", object())], "task", NODE)
        assert not await store.is_locked("s")
        assert await read(store) == []


def commit_end_first(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Commit each end of a session, then raise the next error, or commit the end once more."""
    left = iter(errors)
    write = Writer._results

    async def commit(self: Writer, jobs: Sequence[Job]) -> Results:
        found = await write(self, jobs)
        if not any(job.lease and RELEASE in map(_generic, job.statements) for job in jobs):
            return found
        error = next(left, None)
        return await write(self, jobs) if error is None else [error] * len(jobs)

    monkeypatch.setattr(Writer, "_results", commit)


def _generic(statement: Statement) -> str:
    return statement.sql.replace("%s", "?")


async def test_an_end_whose_commit_is_repeated_is_no_lost_session(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after a connection that broke before it reported the commit.
    commit_end_first(monkeypatch)
    await run(1, target)
    assert (await Session("s", store=target).astate()).stop_reason == "max_iterations"


async def test_an_error_after_the_commit_of_an_end_is_the_error_of_the_run(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_end_first(monkeypatch, StoreError("the file was deleted"))
    with pytest.raises(StoreError, match="deleted"):
        await run(1, target)
    assert (await Session("s", store=target).astate()).stop_reason == "max_iterations"


@pytest.mark.parametrize(
    ("wanted", "index"),
    read_rows(__file__, "a_page_of_sessions_is_read_by_an_index_and_never_sorted"),
)
async def test_a_page_of_sessions_is_read_by_an_index_and_never_sorted(
    tmp_path: Path, wanted: dict[str, Any], index: str
) -> None:
    async with open_store(tmp_path / "sessions.db") as store:
        asked = list[tuple[Any, ...]]()
        read = store.read

        async def noted(sql: Any, *values: object) -> Any:  # noqa: ANN401
            asked.append((sql, *values))
            return await read(sql, *values)

        store.read = noted  # type: ignore[method-assign]
        await store.find(Wanted(**wanted))
        ((sql, *values),) = asked
        (plan,) = await read("EXPLAIN QUERY PLAN " + sql, *values)
        assert f"USING INDEX duologue_sessions_{index}" in plan[3]


@pytest.mark.every_store
async def test_a_lock_is_freed_if_its_first_write_fails_after_the_commit(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = import_module("psycopg" if target.startswith("postgresql") else "sqlite3")

    def fail(lease: Lease, *_: object, **__: object) -> None:
        raise errors.OperationalError("the connection is lost")

    async def begin(store: Store) -> None:
        async with store.lock("s", is_new=True) as held:
            await held.begin(title="", spec="")
            await held.drain()

    monkeypatch.setattr(Lease, "note_write", fail)
    async with open_store(target) as store:
        with pytest.raises(StoreError):
            await begin(store)
        assert [*await store.read("SELECT session FROM duologue_leases")] == []


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("version", "error"),
    [
        (tables.STORE_VERSIONS.oldest - 1, "were written by a development version before 0.1.0"),
        (99, "have format 99, .* Upgrade duologue"),
    ],
)
async def test_a_store_of_another_format_is_refused_and_unchanged(
    version: int, error: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(target) as store, store.lock("one") as held:
        row = await held.add(title="", spec="{}")
        await store.write("UPDATE duologue_schema SET version = ?", version)
    with pytest.raises(StoreError, match=error):
        async with open_store(target):
            pytest.fail("opened")
    monkeypatch.setattr(tables, "STORE_VERSIONS", Versions(version))
    async with open_store(target) as store:
        assert await alist_sessions(store=store.address) == [row]


@pytest.mark.every_store
async def test_a_later_format_is_made_of_this_one_by_its_steps(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(target) as store, store.lock("one") as held:
        await held.add(title="", spec="{}")
    steps = (
        ("ALTER TABLE duologue_sessions ADD COLUMN mood TEXT",),
        ("UPDATE duologue_sessions SET mood = 'good'",),
    )
    now = tables.STORE_VERSIONS
    monkeypatch.setattr(tables, "STORE_VERSIONS", Versions(now.oldest, (*now.steps, *steps)))
    for _ in range(2):  # the second time there is nothing to do
        async with open_store(target) as store:
            moods = await store.read("SELECT mood FROM duologue_sessions")
            (found,) = await store.read("SELECT version FROM duologue_schema")
            assert [*map(tuple, moods)] == [("good",)]
            assert tuple(found) == (now.newest + 2,)


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), store_errors("memory:"):
        raise KeyError


async def test_errors_in_a_block_name_the_store_without_its_password() -> None:
    with (
        pytest.raises(StoreError, match=r"postgres://me:\*\*\*@host/db can't be used: why not\.$"),
        store_errors("postgres://me:s3cret@host/db"),
    ):
        raise sqlite3.OperationalError("why\nnot.")
