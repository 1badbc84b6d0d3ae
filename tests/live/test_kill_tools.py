"""Killed while three tools of one message run, a session calls only the unfinished ones again."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer

pytestmark = [pytest.mark.live, pytest.mark.process]

Start = Callable[..., Any]

WORKERS = ("first", "second", "third")
SPEC = {
    "task": "Work.",
    "speakers": [{"name": "Ann", "tools": WORKERS}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}


def works(prompt: Prompt) -> Line:
    """Call all three, then speak."""
    if "You are Bob" in prompt[0]["content"]:
        return "Thank you."
    if prompt[-1]["role"] == "tool":
        return "All is done."
    calls = [ScriptedToolCall(name=name, args={}, id=f"call_{name}") for name in WORKERS]
    return Reply(tool_calls=calls)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.01)


def recorded(store: Path) -> int:
    """How many results of tasks are in a store, in front of the checkpoint that they lead to."""
    with closing(sqlite3.connect(store)) as connection:
        query = "SELECT count(*) FROM writes WHERE channel = '__return__'"
        return int(connection.execute(query).fetchone()[0])


@pytest.mark.parametrize("finished", [("first",), ("second", "third")], ids="-".join)
def test_kill_9_while_three_tools_of_one_message_run(
    finished: tuple[str, ...], start_child: Start, tmp_path: Path
) -> None:
    """What has answered is not called again; the others are, under the same call ids."""
    calls = tmp_path / "calls.txt"

    def called() -> list[str]:
        return calls.read_text().splitlines() if calls.exists() else []

    with ScriptedServer(works) as server:
        common = {
            "environment": {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
            "store": f"sqlite:///{tmp_path / 'sessions.db'}",
            "session": "work",
        }
        child = start_child(conversation=SPEC, **common)
        wait_until(lambda: len(called()) == 3)
        for name in finished:
            (tmp_path / name).touch()
        wait_until(lambda: recorded(tmp_path / "sessions.db") == len(finished))
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
