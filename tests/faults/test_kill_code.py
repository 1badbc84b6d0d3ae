"""After a kill during code in bubblewrap, the sandbox is gone, and the session continues."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from drawn_faults import Faults
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.sandboxes import family, need, wait_until

pytestmark = pytest.mark.process

SPEC = {
    "task": "Compute.",
    "speakers": [{"name": "Ann", "tools": ["python"]}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
    "sandbox": {"level": "bubblewrap"},
}
KEEPS = "kept = 6\nprint(kept)"
RUNS = """import subprocess, time
subprocess.Popen(["sleep", "{mark}"])
time.sleep(1)
print("kept" in globals())"""


def computes(mark: str) -> Callable[[Prompt], Line]:
    """Run code as Ann: first keep a number, then run for a while and start a process."""

    def answer(prompt: Prompt) -> Line:
        ran = sum(message["role"] == "tool" for message in prompt)
        if "You are Bob" in str(prompt[0]["content"]) or ran == 2:
            return "It is done."
        code = RUNS.format(mark=mark) if ran else KEEPS
        return Reply(
            tool_calls=[ScriptedToolCall(name="python", args={"code": code}, id=f"c{ran}")]
        )

    return answer


def marked(mark: str) -> set[int]:
    """Return the processes that have this mark among their arguments, in a sandbox or not."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if entry.read_bytes() == f"sleep\0{mark}\0".encode():
                found.add(int(entry.parent.name))
    return found


def living(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    return {one for one in processes if one[1] == began(one[0])}


def began(pid: int) -> str:
    """Return a process's start time, since numbers are reused; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@pytest.mark.live
def test_kill_9_while_code_runs_leaves_no_process_and_the_session_ends(
    start_child: Callable[..., Any], tmp_path: Path, faults: Faults
) -> None:
    asyncio.run(need("bubblewrap"))
    random = faults.random("kill while code runs")
    for number in range(faults.times(1)):
        # The sleep is longer than any test, and the number occurs in no other process.
        mark = f"{90_000 + number}.{random.randrange(10**9):09d}"
        kill_and_resume(start_child, tmp_path / f"{number}.db", mark, random.uniform(0, 0.8))


def kill_and_resume(start: Callable[..., Any], store: Path, mark: str, seconds: float) -> None:
    """Kill a session so many seconds after its code began to run, and resume it."""
    with ScriptedServer(computes(mark)) as server:
        common = {
            "environment": {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
            "store": f"sqlite:///{store}",
            "session": "code",
        }
        child = start(conversation=SPEC, **common)
        wait_until("it is so", lambda: bool(marked(mark)))
        time.sleep(seconds)
        started = {(pid, began(pid)) for pid in {*family(child.pid), *marked(mark)}}
        child.kill()
        assert len(started) > 1
        wait_until("it is so", lambda: not marked(mark) and not living(started))
        result = start(**common).result()
        wait_until("it is so", lambda: not marked(mark))
        asked = len(server.calls)
    ran = [one["content"] for one in result["messages"] if one["type"] == "tool"]
    assert ran[0].strip() == "6"
    # Code that ran before the kill is not run again, and the speaker is informed about it.
    assert "variables and files of earlier calls are gone" in ran[1]
    assert ran[1].strip().endswith("False")
    assert result["outcome"]["reasons"] == ["max_iterations"]
    assert asked == 4
