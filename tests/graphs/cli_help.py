"""What the tests of the command line share: a clean environment, scripts, the command itself."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duologue.graphs.cli.app import app
from duologue.nodes.testing import Line
from duologue.nodes.testing.server import ScriptedServer

TASK = ["run", "Plan a garden", "--user-role", "Owner", "--assistant-role", "Gardener"]
SHORT = [*TASK, "--no-specify-task", "--session", "g"]

FIRST = "Instruction: Dig.\nInput: None"
ANSWER = "Solution: Dug.\nNext request."
DONE = "<CAMEL_TASK_DONE>"

COMMAND = [sys.executable, "-c", "from duologue.graphs.cli.app import main; main()"]


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path, **variables: str) -> None:
    """Keep the user's settings out, and sessions in a folder of the test's own."""
    for name in list(os.environ):
        if name.startswith(("DUOLOGUE_", "OPENAI_")):
            monkeypatch.delenv(name)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DUOLOGUE_STORE", str(folder / "sessions.db"))
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def duologue(*arguments: str, lines: str = "") -> Result:
    """Run the command in this process, with what stands in the pipe that it reads."""
    return CliRunner().invoke(
        app, arguments, input=lines, prog_name="duologue", catch_exceptions=False
    )


def started(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Run the command in a process of its own."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *script: Line) -> Iterator[ScriptedServer]:
    """A model server that the command asks."""
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server
