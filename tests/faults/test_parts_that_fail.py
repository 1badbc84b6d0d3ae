"""Parts of the program that fail at moments which no conversation can choose."""

import asyncio
import json
import resource
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from drawn_faults import Faults
from duologue.graphs import ModelError, SessionError, StoreError
from duologue.graphs.common.settings import load_settings
from duologue.graphs.store import base, sqlite as sqlite_module
from duologue.graphs.store.lease import Job, Results, Statement, WriteFailure, Writer
from duologue.nodes.models.client import http_client
from duologue.nodes.models.client.clients import fetch_model_names, make_client
from duologue.nodes.models.connections import Endpoint
from duologue.nodes.turn.node_context import NodeContext
from support.breaking import Breakage
from support.faulty_server import FaultyServer, Sent
from support.stores import open_store

from .faulty_talk import set_up
from .test_broken_off import Scene, Undisturbed, undisturbed as undisturbed
from .test_faulty_replies_at_once import Server, errors_of
from .test_reply_size import LIMIT, WORDS, reply
from .test_stores_that_fail import locked, take


@pytest.mark.part(1)
@pytest.mark.parametrize("turns", range(8))
async def test_cancelled_after_any_answer_it_repeats_no_answered_call(
    turns: int, tmp_path: Path, undisturbed: dict[str, Undisturbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel comes a little after the answer, which may not be stored yet."""
    whole = undisturbed["two_questions"]
    count_call = NodeContext.count_call
    answered = 0

    def cancel_later(running: asyncio.Task[Any], left: int) -> None:
        if left == 0:
            running.cancel()
        else:
            asyncio.get_running_loop().call_soon(cancel_later, running, left - 1)

    def count(context: NodeContext, *given: Any) -> None:
        nonlocal answered
        answered += 1
        if answered == number + 1:
            cancel_later(running, turns)
        count_call(context, *given)

    for number in range(0, len(whole.prompts), 3):
        at, answered = Scene("two_questions", tmp_path / f"{number}.db"), 0
        monkeypatch.setattr(NodeContext, "count_call", count)
        running = asyncio.create_task(at.starts(Breakage()))
        with suppress(asyncio.CancelledError):
            assert await running == whole.result
        monkeypatch.setattr(NodeContext, "count_call", count_call)
        # One more call may have been made, without an answer.
        assert len(at.prompts) - answered in (0, 1)
        asked = at.prompts[:answered]
        at.prompts.clear()
        assert await at.goes_on(Breakage()) == whole.result
        assert asked + at.prompts == whole.prompts


async def test_what_waits_is_written_where_its_task_is_cancelled_before_its_first_step() -> None:
    async def commit(jobs: Sequence[Job]) -> Results:
        return [7] * len(jobs)

    writer = Writer(commit, lambda error: WriteFailure(error, is_for_all=True))
    writing = asyncio.create_task(writer.write(Statement("x")))
    await asyncio.sleep(0)
    assert writer._running is not None
    writer._running.cancel()
    assert await asyncio.wait_for(writing, 5) == 7


async def elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on another event loop with another store."""
    await asyncio.to_thread(lambda: asyncio.run(work()))


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


def limit_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, MAX_RETRIES="2", MAX_REPLY_SIZE="64KiB")


async def test_a_list_of_models_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_replies(monkeypatch)
    body = json.dumps([{"id": "one"}]).encode().ljust(LIMIT + 1)
    with FaultyServer(lambda *_: Sent(body)) as server:
        settings = load_settings()
        assert settings.max_reply_size == LIMIT
        settings = settings.model_copy(update={"base_url": server.url, "api_key": SecretStr("k")})
        with pytest.raises(ModelError) as caught:
            await fetch_model_names(settings, print)
        assert str(caught.value) == f"the model server at {server.url} {WORDS}"


async def test_a_model_in_a_child_process_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_replies(monkeypatch)
    with FaultyServer(lambda *_: Sent(reply(LIMIT + 1))) as server:
        loop = asyncio.get_running_loop()
        chat = make_client(
            loop, load_settings(), Endpoint(server.url, "k", uses_proxies=False), "tiny"
        )
        with pytest.raises(ValueError, match=r"more than 64\.0 KiB"):
            await chat.ainvoke("Hi")


@pytest.mark.exhaustive
def test_more_conversations_than_connections_wait_for_one(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(monkeypatch)
    monkeypatch.setattr(http_client, "_MOST_CONNECTIONS", 2)
    server = Server(faults.random(), 0)
    with FaultyServer(server.answer) as http:
        monkeypatch.setenv("OPENAI_BASE_URL", http.url)
        assert asyncio.run(errors_of(8)) == []
        assert http.connections == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(256, 128), (1024, 512), (20_000, 1000), (resource.RLIM_INFINITY, 1000), (1, 1)],
)
def test_connections_take_no_more_than_half_of_what_a_process_may_open(
    descriptors: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert http_client._most_connections() == connections
