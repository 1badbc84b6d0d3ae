"""Tests that kill a process (U3): with each store, with parallel tools, and by Ctrl-C.

`test_broken_off.py` covers the other moments of interruption. The processes run real clients
against the scripted server, whose record shows whether a call was repeated.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duologue import Session, aconverse, converse, list_sessions
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support import children
from support.sandboxes import wait_until
from support.stores import SHARED_STORES, store_address

from .broken_talks import SCRIPTS, SPECS, told

pytestmark = [pytest.mark.live, pytest.mark.process]

Start = Callable[..., children.Child]
SPEC = SPECS["structured"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS["structured"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        yield server


@pytest.fixture(params=SHARED_STORES)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


def common(server: ScriptedServer, store: str) -> dict[str, Any]:
    """Return the arguments that each process of a session gets."""
    return {
        "environment": {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
        "store": store,
        "session": "garden",
        "tool": True,
    }


def bodies(server: ScriptedServer, first: int = 0) -> list[dict[str, Any]]:
    return [call.body for call in server.calls[first:]]


def asked_twice(server: ScriptedServer) -> list[int]:
    """Return the numbers of the calls that repeat another call."""
    asked = bodies(server)
    return [number for number, body in enumerate(asked) if asked.count(body) > 1]


def test_killed_in_mid_call_repeats_that_call_alone(
    server: ScriptedServer, store: str, start_child: Start
) -> None:
    result = told(converse(SPEC, store="memory:", tools=[children.dig()]))
    whole = len(server.calls)
    server.hold(whole + 5)
    child = start_child(conversation=SPEC, **common(server, store))
    server.wait_for(whole + 6, timeout=60)
    child.kill()
    server.release()
    resumed = start_child(**common(server, store))
    assert resumed.result() == result
    asked = bodies(server)[:whole]
    assert bodies(server, whole) == asked[:6] + asked[5:]
    # After the end, no call is made.
    assert start_child(**common(server, store)).result() == result
    assert len(server.calls) == 2 * whole + 1


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_interrupted_by_ctrl_c_repeats_the_call_in_flight_alone(
    server: ScriptedServer, store: str, start_child: Start
) -> None:
    server.hold(3)
    child = start_child(conversation=SPEC, **common(server, store))
    server.wait_for(4, timeout=60)
    child.interrupt()
    assert child.result()["error"].startswith("KeyboardInterrupt")
    server.release()
    (row,) = list_sessions(store=store)
    assert (row.session, row.status) == ("garden", "unfinished")
    assert Session("garden", store=store).state().outcome is None
    assert "error" not in start_child(**common(server, store)).result()
    assert asked_twice(server) == [3, 4]


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_cancelled_while_a_server_is_asked_it_repeats_that_call_alone(
    server: ScriptedServer, store: str
) -> None:
    server.hold(3)
    options: Any = {"tools": [children.dig()]}
    running = asyncio.create_task(aconverse(SPEC, session="garden", store=store, **options))
    await asyncio.to_thread(server.wait_for, 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    server.release()
    assert (await Session("garden", store=store).aresume(**options)).outcome is not None
    assert asked_twice(server) == [3, 4]


WORKERS = ("first", "second", "third")
WORK = {
    "task": "Work.",
    "speakers": [{"name": "Ann", "tools": WORKERS}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}


def works(prompt: Prompt) -> Line:
    """Call all three tools, then speak."""
    if "You are Bob" in prompt[0]["content"]:
        return "Thank you."
    if prompt[-1]["role"] == "tool":
        return "All is done."
    calls = [ScriptedToolCall(name=name, args={}, id=f"call_{name}") for name in WORKERS]
    return Reply(tool_calls=calls)


def recorded(store: Path) -> int:
    """Count the results of tasks in a store that precede their checkpoint."""
    with closing(sqlite3.connect(store)) as connection:
        query = "SELECT count(*) FROM writes WHERE channel = '__return__'"
        return int(connection.execute(query).fetchone()[0])


def test_killed_while_three_tools_of_one_message_run_calls_the_unfinished_again(
    start_child: Start, tmp_path: Path
) -> None:
    """Calls with a result are not repeated; the others are, under the same call ids."""
    finished = ("second", "third")
    calls = tmp_path / "calls.txt"

    def called() -> list[str]:
        return calls.read_text().splitlines() if calls.exists() else []

    with ScriptedServer(works) as server:
        common = {
            "environment": {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
            "store": f"sqlite:///{tmp_path / 'sessions.db'}",
            "session": "work",
        }
        child = start_child(conversation=WORK, **common)
        wait_until("it is so", lambda: len(called()) == 3)
        for name in finished:
            (tmp_path / name).touch()
        wait_until("it is so", lambda: recorded(tmp_path / "sessions.db") == len(finished))
        child.kill()
        assert len(called()) == 3
        for name in WORKERS:
            (tmp_path / name).touch()
        result = start_child(**common).result()
        asked = len(server.calls)
    again = [f"{name} call_{name} work" for name in WORKERS if name not in finished]
    assert sorted(called()) == sorted([*(f"{name} call_{name} work" for name in WORKERS), *again])
    answers = [message for message in result["messages"] if message["type"] == "tool"]
    assert [(one["tool_call_id"], one["content"]) for one in answers] == [
        (f"call_{name}", f"{name} is done.") for name in WORKERS
    ]
    assert result["outcome"]["reasons"] == ["max_iterations"]
    assert asked == 3
