"""Helpers for the tests of the command line: a clean environment, scripts, the command itself."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from duologue.graphs import Session
from duologue.graphs.cli.app import app as app, main as main
from duologue.nodes.testing import Line
from duologue.nodes.testing.server import ScriptedServer

TASK = ["run", "Plan a garden", "--user-role", "Owner", "--assistant-role", "Gardener"]
SHORT = [*TASK, "--no-specify-task", "--session", "g"]

FIRST = "Instruction: Dig.\nInput: None"
ANSWER = "Solution: Dug.\nNext request."
DONE = "<CAMEL_TASK_DONE>"

COMMAND = [sys.executable, "-c", "from duologue.graphs.cli.app import main; main()"]


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path, **variables: str) -> None:
    """Hide the user's settings, and store sessions in a folder of the test."""
    for name in list(os.environ):
        if name.startswith(("DUOLOGUE_", "OPENAI_")):
            monkeypatch.delenv(name)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DUOLOGUE_STORE", str(folder / "sessions.db"))
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    # On a busy machine a command prints how long it has waited.
    for name in ("_FIRST_LINE", "_FIRST_BATCH_LINE"):
        monkeypatch.setattr(f"duologue.graphs.cli.terminal.progress.{name}", 3600.0)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def duologue(*arguments: str, lines: str = "") -> Result:
    """Run the command in this process, with `lines` as its standard input."""
    with patch("typer.testing._get_command", _command):
        return CliRunner().invoke(
            app, arguments, input=lines, prog_name="duologue", catch_exceptions=False
        )


# Cached, as in a process: building the command takes longer than most commands run.
_command = cache(get_command)


def ways_on(*arguments: str, sample: str = "TEXT", store: str | None = None) -> str:
    """Return the lines that show how to answer session "c"; `arguments` are inserted first."""
    (question,) = Session("c", store=store).state().pending
    options = "".join(f"{one} " for one in arguments)
    return (
        f"Answer it with: duologue answer {options}--question {question.id} c {sample}\n"
        f"Or answer in the terminal: duologue resume {options}c\n"
    )


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start the command in a separate process, connected by pipes."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the signal handlers after the command has run in this process."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main_thread_gets(number: signal.Signals) -> None:
    """Send a signal to the command's thread as soon as it handles the signal."""
    main = threading.main_thread().ident
    assert main is not None
    # A signal without a handler would end the test run.
    assert signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)
    signal.pthread_kill(main, number)


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do some work in another thread while the command runs, and raise its errors at the end."""
    failed: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    doing = threading.Thread(target=do)
    doing.start()
    try:
        yield
    finally:
        doing.join()
    if failed:
        raise failed[0]


Serve = Callable[..., ScriptedServer]
"""The type of the fixture `serve`, which starts a model server with a script."""


@contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, *script: Line, **options: Any
) -> Iterator[ScriptedServer]:
    """Yield a model server that the command calls."""
    with ScriptedServer(script, **options) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server
