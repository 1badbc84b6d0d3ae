"""Child processes that run conversations, so that tests can kill and resume them. No tests here.

They are forked from a server that has only imported the library, because importing takes longer
than a whole scripted conversation. This file is also the program of such a process.
"""

import asyncio
import faulthandler
import json
import multiprocessing
import os
import runpy
import signal
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

CONTEXT = multiprocessing.get_context("forkserver")
# Modules that each process would otherwise import for itself. Missing modules are skipped.
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "duologue.graphs.session.converse",
        "duologue.graphs.cli.run_batch",
        "duologue.graphs.store.postgres",
        "duologue.graphs.store.saver",
        "duologue.nodes.models.client.clients",
        "anyio._backends._asyncio",
        "genai_prices.data_snapshot",
        "h2.connection",
        "httpcore2",
        "jiter",
        "langchain_core.tracers.run_collector",
        "langchain_core.tracers.stdout",
        "openai.lib.streaming.chat",
        "openai.pagination",
        "openai.resources.chat.completions.completions",
        "truststore",
    ]
)


class Child:
    """A process that runs a conversation and reports its result."""

    def __init__(self, folder: Path, order: dict[str, Any]) -> None:
        self._said = folder / f"{uuid4().hex}.json"
        arguments = {"ORDER": order, "FOLDER": str(folder), "SAID": str(self._said)}
        self._process = CONTEXT.Process(
            target=runpy.run_path, args=(__file__, arguments, "__child__"), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Return the id of the process while it runs."""
        return int(self._process.pid or 0)

    def kill(self) -> None:
        """End the process by SIGKILL, without any cleanup."""
        self._process.kill()
        self.wait(-signal.SIGKILL)

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        os.kill(self.pid, signal.SIGINT)

    def wait(self, code: int = 0) -> None:
        """Wait for the end of the process, and check its exit code."""
        self._process.join(60)
        if self._process.exitcode is None:
            # The captured output then shows what its threads wait for.
            os.kill(self.pid, signal.SIGUSR1)
            self._process.join(1)
        said = self._said.read_text() if self._said.exists() else ""
        assert self._process.exitcode == code, f"{self._process.exitcode}, not {code}: {said}"
        self._process.close()

    def result(self) -> dict[str, Any]:
        """Wait for the end of the process; return its result, or an object with an ``error``."""
        self.wait()
        said: dict[str, Any] = json.loads(self._said.read_text())
        return said


def start(folder: Path, order: dict[str, Any]) -> Child:
    """Start a process.

    Args:
        folder: Working folder of the process.
        order: ``environment``, ``session``, ``store`` and ``conversation``; without
            ``conversation``, the session is resumed. ``tool`` adds the tool ``dig``, and
            ``respond`` is the answer to the session's question. The tools of `workers` are
            always available.
    """
    return Child(folder, order)


def workers() -> list[Any]:
    """Return tools that log each call in ``calls.txt`` and wait for a file with the tool's name.

    The first two tools are async; the third one runs in a thread.
    """
    from langchain_core.tools import tool
    from langgraph.prebuilt import ToolRuntime

    def note(name: str, runtime: ToolRuntime[Any, Any]) -> Path:
        with Path("calls.txt").open("a") as calls:
            calls.write(f"{name} {runtime.tool_call_id} {runtime.state['session']}\n")
        return Path(name)

    async def wait(name: str, runtime: ToolRuntime[Any, Any]) -> str:
        file = note(name, runtime)
        while not file.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.01)
        return f"{name} is done."

    @tool
    async def first(runtime: ToolRuntime[Any, Any]) -> str:
        """Wait for the file."""
        return await wait("first", runtime)

    @tool
    async def second(runtime: ToolRuntime[Any, Any]) -> str:
        """Wait for the file."""
        return await wait("second", runtime)

    @tool
    def third(runtime: ToolRuntime[Any, Any]) -> str:
        """Wait for the file."""
        file = note("third", runtime)
        while not file.exists():
            time.sleep(0.01)
        return "third is done."

    return [first, second, third]


def dig() -> Any:  # noqa: ANN401
    """Return a tool that answers at once."""
    from langchain_core.tools import tool

    @tool
    def dig(depth: int) -> str:
        """Dig a hole."""
        return f"A hole of {depth}."

    return dig


def _run(order: dict[str, Any]) -> dict[str, Any]:
    from duologue.graphs import Session, converse

    options: dict[str, Any] = {
        "tools": [*workers(), *([dig()] if order.get("tool") else [])],
    }
    conversation = order.get("conversation")
    session = Session(order["session"], store=order["store"])
    if "respond" in order:
        result = session.answer(order["respond"], **options)
    elif conversation is None:
        result = session.resume(**options)
    else:
        result = converse(conversation, session=session, **options)
    return {
        "messages": [
            message.model_dump(mode="json", exclude={"id"}) for message in result.messages
        ],
        "outcome": None
        if result.outcome is None
        else result.outcome.model_dump(mode="json", exclude={"seconds"}),
        "specified_task": result.specified_task,
    } | (
        {"pending": [question.model_dump(mode="json") for question in result.pending]}
        if result.pending
        else {}
    )


def _main(order: dict[str, Any], folder: str, said: str) -> None:
    # The fork server has the environment of the test that started it, so set this test's variables.
    for name in list(os.environ):
        if name.startswith(("DUOLOGUE_", "OPENAI_")):
            del os.environ[name]
    os.environ.update(order.get("environment", {}), XDG_DATA_HOME=folder)
    os.chdir(folder)
    try:
        found = _run(order)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    # Rename the finished file, so that a reader never sees half of it.
    part = Path(f"{said}.part")
    part.write_text(json.dumps(found))
    part.replace(said)


if __name__ == "__child__":
    faulthandler.register(signal.SIGUSR1)
    _main(globals()["ORDER"], globals()["FOLDER"], globals()["SAID"])
