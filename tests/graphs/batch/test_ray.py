"""Batches on Ray: with PostgreSQL or a file, through kills, limits and errors."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from duologue.graphs import (
    BatchError,
    BatchLimits,
    BatchRun,
    ModelError,
    SpecError,
    StoreError,
    run_batch,
)
from duologue.nodes.models.gate import PlannedCall
from duologue.nodes.testing import Prompt, ScriptedChatModel
from duologue.nodes.testing.server import Request, ScriptedServer
from support.stores import BatchRow, Store, open_store

pytestmark = [pytest.mark.ray, pytest.mark.live]

CALLS = 9
"""Number of model calls per session, including the call for the specified task."""

COMMAND = [sys.executable, "-c", "from duologue.graphs.cli.app import main; main()"]

TALK = {
    "kind": "role_play",
    "assistant_role": "Gardener",
    "model": "scripted",
    "end_chat": {"max_iterations": 2},
}
"""The conversation of a batch, without the fields that vary."""


def batch(sessions: int, **fields: Any) -> dict[str, Any]:
    vary = {"task": [f"Plan garden {number}" for number in range(sessions)], "user_role": ["Cook"]}
    return {"conversation": TALK, "vary": vary, **fields}


def said(request: Request) -> str:
    """Return a hash of the whole prompt, which differs between calls."""
    return hashlib.sha1(json.dumps(request.body["messages"]).encode()).hexdigest()  # noqa: S324


def speak(prompt: Prompt, request: Request) -> str:
    time.sleep(0.1)
    return f"Water bed {said(request)}."


def served(server: ScriptedServer) -> Counter[str]:
    return Counter(said(one) for one in server.calls)


def processes(name: str, of: int | None = None) -> list[int]:
    """Return the processes of Ray's actors with a name that descend from a process."""
    parents, named = dict[int, int](), list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, line = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
        if line.startswith(f"ray::{name}"):
            named.append(int(folder.name))

    def descends(pid: int) -> bool:
        return pid == (of or os.getpid()) or (pid in parents and descends(parents[pid]))

    return [pid for pid in named if descends(pid)]


def kill(name: str, of: int | None = None) -> int:
    found = processes(name, of)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


@pytest.fixture
def cluster() -> Iterator[None]:
    """Join a cluster as a program does; the cluster's machine lacks the settings of the tests."""
    import duologue.graphs.batch.ray  # noqa: F401  (Ray reads its settings when it is imported)

    import ray  # isort: skip

    ray.init("local", include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:  # noqa: ANN401
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    with ScriptedServer(speak, api_key="right") as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def test_workers_limiter_and_driver_are_killed_and_only_calls_in_flight_are_repeated(
    server: ScriptedServer, postgres_url: str, tmp_path: Path
) -> None:
    at_once, sessions = 6, 20
    (tmp_path / "grid.json").write_text(json.dumps(batch(sessions)))
    command = [
        *COMMAND,
        *("batch", "run", "grid.json"),
        *("--ray", "auto", "--store", postgres_url, "--concurrency", str(at_once), "--json"),
    ]

    def started() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe)

    driver = started()
    server.wait_for(20, timeout=100)
    assert kill("WorkerActor", driver.pid) == len(os.sched_getaffinity(0))
    server.wait_for(50, timeout=100)
    assert kill("LimiterActor", driver.pid) == 1
    server.wait_for(80, timeout=100)
    driver.kill()
    driver.communicate()
    out, err = started().communicate(timeout=200)
    # Only the rows are printed, without messages of Ray.
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[-1]["finished"] == sessions
    assert {row["status"] for row in rows[:-1]} == {"finished"}
    assert "Traceback" not in err
    status = BatchRun("grid", store=postgres_url).status()
    assert (status.finished, status.calls) == (sessions, sessions * CALLS)
    assert not status.is_running
    calls = served(server)
    assert len(calls) == status.calls
    assert calls.total() - len(calls) <= 2 * at_once


def test_a_stopped_driver_and_its_workers_write_nothing_over_the_next_driver(
    server: ScriptedServer, postgres_url: str, tmp_path: Path
) -> None:
    at_once, sessions = 4, 12
    (tmp_path / "grid.json").write_text(json.dumps(batch(sessions)))

    def started(name: str, *options: str) -> subprocess.Popen[str]:
        store = f"{postgres_url}&application_name={name}"
        command = [*COMMAND, "batch", "run", "grid.json", "--concurrency", str(at_once)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*command, "--store", store, *options], text=True, stdout=pipe, stderr=pipe
        )

    first = started("first", "--ray", "auto")
    server.wait_for(20, timeout=100)
    first.send_signal(signal.SIGSTOP)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # This includes the connections of its workers, which survive and make new ones.
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'first'"
        )
    second = started("second")
    _, err = second.communicate(timeout=200)
    assert second.returncode == 0, err
    before = BatchRun("grid", store=postgres_url).status()
    assert (before.finished, before.calls) == (sessions, sessions * CALLS)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=100)
    assert first.returncode == 4, err
    assert err.splitlines()[-1].startswith("Error: This run has lost batch 'grid'")
    assert err.count("Error") == 1
    assert BatchRun("grid", store=postgres_url).status() == before
    calls = served(server)
    assert len(calls) == sessions * CALLS
    assert calls.total() - len(calls) <= at_once


@pytest.mark.usefixtures("cluster")
def test_limits_hold_for_all_workers_and_after_the_limiter_was_killed(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """Limits apply to all workers, which share a file, and survive a kill of the limiter."""
    at_once, store = 4, f"sqlite:///{tmp_path / 'sessions.db'}"

    def meanwhile() -> None:
        server.wait_for(40, timeout=100)
        kill("LimiterActor")

    killing = threading.Thread(target=meanwhile)
    killing.start()
    tokens = 50 * 150
    limited = batch(20, limits={"max_tokens": tokens})
    status = run_batch(limited, name="b", ray="auto", store=store, concurrency=at_once)
    killing.join()
    most = max(len(json.dumps(one.body["messages"]).split()) for one in server.calls) + 10
    assert (status.stopped or "").startswith(f"limits.max_tokens of {tokens} is used up")
    # Calls in flight at the kill may count twice, and calls at the end are added.
    assert abs(status.tokens - tokens) <= 2 * at_once * most
    assert processes("WorkerActor") + processes("LimiterActor") == []
    status = run_batch(batch(20), name="b", ray="auto", store=store, concurrency=at_once)
    assert (status.finished, status.calls) == (20, 20 * CALLS)
    assert served(server).total() == status.calls


def test_a_rejected_key_stops_the_batch_once(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with pytest.raises(ModelError, match="rejected the key"):
        run_batch(batch(40), name="b", ray="auto", store=store, concurrency=4)
    assert len(server.requests) <= 4
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    assert BatchRun("b", store=store).status().left == 40


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"store": "memory:b"}, "ray: other processes can't read memory:b"),
        ({"ray": "ray://host:10001"}, "ray: 'ray://host:10001' can't be joined: pass HOST:PORT"),
        ({"ray": "127.0.0.1:1"}, "ray: '127.0.0.1:1' can't be joined: .*refused"),
        ({"model": ScriptedChatModel(script=["Hello."])}, "model: can't be sent"),
    ],
)
def test_what_can_not_be_done_by_ray_is_refused_before_anything_is_run(
    options: dict[str, Any], refused: str, server: ScriptedServer, tmp_path: Path
) -> None:
    store = tmp_path / "sessions.db"
    with pytest.raises(SpecError, match=refused):
        run_batch(batch(2), **{"name": "b", "ray": "auto", "store": store, **options})
    assert server.calls == []
    with pytest.raises((BatchError, StoreError)):
        BatchRun("b", store=options.get("store", store)).status()


async def test_a_batch_whose_limiter_can_not_be_asked_says_why_it_stops() -> None:
    from duologue.graphs.batch.ray.workers import RayExecutor

    async def failing(why: str | None) -> str | None:
        raise StoreError("the store is gone")

    crew = RayExecutor.__new__(RayExecutor)
    crew._why, crew._limiter = None, SimpleNamespace(paused=SimpleNamespace(remote=failing))
    with pytest.raises(StoreError, match="the store is gone"):
        await crew.paused()
    await crew.pause("the store is gone")
    assert await crew.paused() == "the store is gone"


async def test_no_more_calls_begin_once_the_driver_has_lost_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls stop when the driver has lost the batch, even if the driver can't pause them."""
    from duologue.graphs.batch.ray import workers as actors
    from duologue.graphs.batch.ray.workers import WorkerConfig
    from duologue.graphs.batch.worker import CellRules

    monkeypatch.setattr(actors, "BEAT", 0.02)
    path = tmp_path / "sessions.db"
    now = datetime(2026, 1, 2, tzinfo=UTC)
    row = BatchRow(
        batch="b", title="", spec="{}", settings="{}", cells=1, created_at=now, updated_at=now
    )
    async with open_store(path) as store:
        async with store.lock_batch("b") as lease:
            await lease.put(row)
            _, owner, number = lease.lease.terms
            kit = WorkerConfig("b", (owner, number), str(path), BatchLimits(), 0, CellRules({}), {})
            limiter = actors.LimiterActor(kit)
            assert await limiter.ask("enter", PlannedCall("m", 1)) == 0
            await asyncio.sleep(0.1)
            assert await limiter.paused(None) is None
        async with asyncio.timeout(60):
            while (why := await limiter.paused(None)) is None:  # noqa: ASYNC110  # it updates itself
                await asyncio.sleep(0.01)
        assert why.startswith("This run has lost batch 'b'")
        assert str(await limiter.ask("enter", PlannedCall("m", 1))) == why
        await limiter.close()


async def test_a_limiter_that_can_not_read_its_batch_closes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duologue.graphs.batch.ray import workers as actors
    from duologue.graphs.batch.worker import CellRules

    path = tmp_path / "sessions.db"
    open_now: list[str] = []

    @asynccontextmanager
    async def counted(url: str, *, create: bool) -> AsyncIterator[Store]:
        async with open_store(url, create=create) as store:
            open_now.append(url)
            yield store
            open_now.remove(url)

    monkeypatch.setattr(actors, "open_store", counted)
    kit = actors.WorkerConfig("b", ("me", 1), str(path), BatchLimits(), 0, CellRules({}), {})
    limiter = actors.LimiterActor(kit)
    async with open_store(path):
        for _ in range(2):
            with pytest.raises(BatchError, match="'b'"):
                await limiter.paused(None)
    assert open_now == []
