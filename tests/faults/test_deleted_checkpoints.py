"""A session that keeps only its newest checkpoint reads, forks and continues as before."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple

from drawn.player import Player
from drawn.talks import talks
from duologue import Conversation, DuologueError, Session, StoreError, build_graph, converse
from duologue.graphs.session.checkpoints import (
    DELTA_CHANNELS,
    config_of,
    pack_steps,
    read_finished_steps,
)
from duologue.graphs.store.errors import LostSessionError
from duologue.graphs.store.lease import Statement
from duologue.graphs.store.saver import SqlSaver
from duologue.nodes.testing import ScriptedChatModel
from support.breaking import Breakage
from support.cases import drawn_cases
from support.locks import remove_locks
from support.log import place_of
from support.stores import EACH_STORE, Store, open_store, store_address

from .broken_talks import SCRIPTS, SPECS, World, told

QUICK = ("side_by_side",)
"""The conversations of the quick run."""
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in SPECS]
FORMATS = ("markdown", "html", "jsonl", "openai", "sharegpt")


def play(name: str, store: Path | str, **options: Any) -> None:
    """Run one of the conversations to its end."""
    model = ScriptedChatModel(script=SCRIPTS[name])
    given = {**World().options, **options}
    assert converse(SPECS[name], session="garden", store=store, model=model, **given).stop_reason


async def count(store: Store, session: str = "garden") -> int:
    return len([one async for one in store.checkpointer.alist(config_of(session))])


async def shorten(store: Path | str, session: str = "garden") -> tuple[int, int]:
    """Delete the older checkpoints; return how many there were before and after."""
    async with open_store(store) as opened:
        before = await count(opened, session)
        async with opened.lock(session) as held:
            graph = build_graph(checkpointer=held.checkpointer)
            whole = pack_steps(await read_finished_steps(graph, session))
            if whole is not None:
                saver = held.checkpointer
                await saver.flush(*saver.replacement(session, *whole))
        return before, await count(opened, session)


def read(store: Path | str, session: str = "garden") -> dict[str, Any]:
    """Return everything that can be read of a session."""
    handle, options = Session(session, store=store), World().options
    options.pop("answer")
    found = handle.state()
    names = found.conversation.names
    everything: dict[str, Any] = {
        "told": told(found),
        "dump": json.dumps(handle.dump()),
        "why": found.why(),
        "views": [found.viewpoint(name) for name in names],
        "memories": [found.memory(name) for name in names],
    }
    for name in names:
        with suppress(DuologueError):  # no model has spoken for a person
            everything[f"prompt of {name}"] = handle.prompt(name, **options)
    for form in FORMATS:
        everything[form] = handle.export(form, **options)  # type: ignore[arg-type]
    return everything


def without(dump: object, *names: str) -> object:
    """Return a dump without the fields of these names."""
    if isinstance(dump, dict):
        return {key: without(one, *names) for key, one in dump.items() if key not in names}
    return [without(one, *names) for one in dump] if isinstance(dump, list) else dump


def fork_everywhere(store: Path | str, places: list[str]) -> list[Any]:
    """Return the dumps of forks at every message, and of forks of the forks."""
    dumps = []
    for number, place in enumerate(places):
        fork = Session("garden", store=store).fork(at=place, into=f"fork-{place}")
        again = fork.fork(at=places[number // 2], into=f"again-{place}")
        dumps += [without(one.dump(), "message_id") for one in (fork, again)]
    return dumps


def continue_session(name: str, store: Path) -> object:
    """Return the dump of a session that continues with one more message and ends again."""
    session = Session("garden", store=store)
    speaker = session.state().conversation.names[0]
    session.add_message(speaker, "And the herbs?")
    session.resume(model=ScriptedChatModel(script=SCRIPTS[name]), **World().options)
    # The code of the new part has run in two processes.
    return without(session.dump(), "message_id", "seconds", "interpreter")


@pytest.mark.parametrize("name", EACH)
def test_only_the_newest_checkpoint_is_needed(name: str, tmp_path: Path) -> None:
    whole, short = tmp_path / "whole.db", tmp_path / "short.db"
    play(name, whole, keep_checkpoints=True)
    shutil.copy(whole, short)
    before, after = asyncio.run(shorten(short))
    assert before > len(Session("garden", store=whole).state().transcript)
    assert after == 1
    assert read(short) == read(whole)
    places = [place_of(one) for one in Session("garden", store=whole).state().messages]
    forked_at = places if name not in QUICK else places[2::4]
    assert fork_everywhere(short, forked_at) == fork_everywhere(whole, forked_at)
    # The second end deletes the checkpoints of both parts.
    assert continue_session(name, short) == continue_session(name, whole)
    assert asyncio.run(shorten(short)) == asyncio.run(shorten(whole)) == (1, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("done", [False, True])
def test_a_kill_while_they_are_deleted_loses_nothing(done: bool, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    play("side_by_side", whole, keep_checkpoints=True)
    expected = read(whole)
    seen = set[int]()
    for write in range(12):
        store, breakage = tmp_path / f"{write}.db", Breakage(write, done=done)
        shutil.copy(whole, store)
        with breakage.under_way(), suppress(DuologueError):
            asyncio.run(shorten(store))
        assert read(store) == expected
        seen.add(asyncio.run(shorten(store))[0])
        if not breakage.broken:
            break
    assert len(seen) == 2  # some kills came before the deletion, and some after it
    assert 1 in seen


def test_an_error_in_the_middle_of_the_deletion_undoes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.db"
    play("side_by_side", store, keep_checkpoints=True)
    expected = read(store)
    deletion = SqlSaver._deletion

    def broken(saver: SqlSaver, session: str) -> list[Statement]:
        first, *_ = deletion(saver, session)
        return [first, Statement("DELETE FROM no_such_table WHERE 1")]

    monkeypatch.setattr(SqlSaver, "_deletion", broken)
    with pytest.raises(DuologueError, match="no_such_table"):
        asyncio.run(shorten(store))
    assert read(store) == expected


def test_a_run_that_ends_survives_an_error_of_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(SqlSaver, "replacement", fails)
    play("side_by_side", tmp_path / "s.db")
    assert asyncio.run(_count_in(tmp_path / "s.db")) > 1


async def _count_in(store: Path | str) -> int:
    async with open_store(store) as opened:
        return await count(opened)


@pytest.mark.parametrize("kind", EACH_STORE)
def test_a_run_keeps_one_checkpoint_unless_all_are_wanted(
    kind: str, request: pytest.FixtureRequest
) -> None:
    store = store_address(kind, request)
    play("side_by_side", store, keep_checkpoints=True)
    assert asyncio.run(_count_in(store)) > 1
    expected = without(json.loads(read(store)["dump"]), "message_id", "seconds")
    assert asyncio.run(shorten(store))[1] == 1
    Session("garden", store=store).delete()
    play("side_by_side", store)
    assert asyncio.run(_count_in(store)) == 1
    found = read(store)
    assert without(json.loads(found["dump"]), "message_id", "seconds") == expected
    fork = Session("garden", store=store).fork(at=3)
    assert len(fork.dump()["steps"]) > 1


async def test_an_ended_session_in_memory_keeps_one_value_of_each_channel(tmp_path: Path) -> None:
    async with open_store(f"memory:{tmp_path.name}") as opened:
        await asyncio.to_thread(play, "side_by_side", opened.address)
        saver: Any = opened.checkpointer
        channels = [channel for _, _, channel, _ in saver.blobs]
        assert len(channels) == len({*channels}) > 0


@pytest.mark.exhaustive
def test_a_session_that_waits_keeps_all_checkpoints(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    model = ScriptedChatModel(script=SCRIPTS["people"])
    options = World().options
    answer: Callable[[object], Any] = options.pop("answer")
    converse(SPECS["people"], session="garden", store=store, model=model, **options)
    assert asyncio.run(_count_in(store)) > 1
    Session("garden", store=store).resume(model=model, answer=answer, **options)
    assert asyncio.run(_count_in(store)) == 1


@pytest.mark.parametrize("kind", EACH_STORE)
async def test_a_reader_never_sees_an_empty_log_while_they_are_deleted(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph reads the newest checkpoint and the writes before it one after the other."""
    store = store_address(kind, request)
    await asyncio.to_thread(play, "side_by_side", store, keep_checkpoints=True)
    async with open_store(store) as opened:
        reader = opened.checkpointer
        get = reader.aget_tuple
        expected = (await build_graph(checkpointer=reader).aget_state(config_of("garden"))).values

        async def get_then_delete(config: RunnableConfig) -> CheckpointTuple | None:
            found = await get(config)
            monkeypatch.setattr(reader, "aget_tuple", get)
            await shorten(store)
            return found

        graph = build_graph(checkpointer=reader)
        monkeypatch.setattr(reader, "aget_tuple", get_then_delete)
        values = (await graph.aget_state(config_of("garden"))).values
        assert await count(opened) == 1
    assert values == expected
    assert values["messages"]


async def test_a_run_that_loses_its_session_while_it_reads_it_sees_no_empty_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended process reads the newest checkpoint; when it continues, the writes are gone."""
    store = tmp_path / "s.db"
    await asyncio.to_thread(play, "side_by_side", store, keep_checkpoints=True)
    async with open_store(store) as opened, opened.lock("garden") as held:
        saver, before = held.checkpointer, await count(opened)
        get = saver.aget_tuple

        async def get_then_lose_the_session(config: RunnableConfig) -> CheckpointTuple | None:
            found = await get(config)
            monkeypatch.setattr(saver, "aget_tuple", get)
            remove_locks(store)
            assert await asyncio.to_thread(asyncio.run, shorten(store)) == (before, 1)
            return found

        found = await get(config_of("garden"))
        assert found is not None
        monkeypatch.setattr(saver, "aget_tuple", get_then_lose_the_session)
        graph = build_graph(checkpointer=saver)
        assert (await graph.aget_state(config_of("garden"))).values["messages"]
        with pytest.raises(LostSessionError):
            await saver.aput_writes(found.config, [("position", {})], "task")


def test_every_delta_channel_of_the_graph_is_written_whole() -> None:
    channels = build_graph().channels
    deltas = {name for name, channel in channels.items() if isinstance(channel, DeltaChannel)}
    assert deltas == set(DELTA_CHANNELS)


def test_a_damaged_past_is_reported(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    play("side_by_side", store)
    for text in ("", "?", "AAAA", "eJw=", 7):
        with sqlite3.connect(store) as connection:
            ((about,),) = connection.execute("SELECT metadata FROM checkpoints").fetchall()
            changed = json.dumps({**json.loads(about), "duologue_past": text}).encode()
            connection.execute("UPDATE checkpoints SET metadata = ?", (changed,))
        connection.close()
        with pytest.raises(DuologueError, match=r"damaged|can't be read"):
            Session("garden", store=store).dump()


@pytest.mark.exhaustive
@drawn_cases(20, 40, conversation=talks(shaped=True, most=3), seed=st.integers(0, 999))
def test_drawn_sessions_read_and_fork_alike(conversation: Conversation, seed: int) -> None:
    player = Player(conversation, seed)
    model = ScriptedChatModel(script=player.answer)
    with TemporaryDirectory() as folder:
        whole, short = Path(folder) / "whole.db", Path(folder) / "short.db"
        options = {"model": model, "keep_checkpoints": True, **player.registered}
        ended = converse(conversation, session="garden", store=whole, **options)
        shutil.copy(whole, short)
        before, after = asyncio.run(shorten(short))
        assert after == 1 < before
        assert Session("garden", store=short).dump() == Session("garden", store=whole).dump()
        places = [place_of(one) for one in ended.messages][:: max(1, len(ended.messages) // 3)]
        assert fork_everywhere(short, places) == fork_everywhere(whole, places)
