"""Processes of their own that run conversations, to be killed and resumed. No tests here.

They are forked from a server that has imported the library and run nothing, since importing takes
longer than a whole scripted conversation. This file is also what such a process executes.
"""

import asyncio
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
# What a run would otherwise import in each process anew; what is missing here is left out.
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "duologue.graphs.session.converse",
        "duologue.graphs.cli.run_batch",
        "duologue.graphs.store.postgres",
        "duologue.graphs.store.sqlite_saver",
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
    """A process that runs a conversation and tells how it ended."""

    def __init__(self, folder: Path, order: dict[str, Any]) -> None:
        self._said = folder / f"{uuid4().hex}.json"
        arguments = {"ORDER": order, "FOLDER": str(folder), "SAID": str(self._said)}
        self._process = CONTEXT.Process(
            target=runpy.run_path, args=(__file__, arguments, "__child__"), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        return int(self._process.pid or 0)

    def kill(self) -> None:
        """End it by SIGKILL, without a chance to put anything in order."""
        self._process.kill()
        self.wait(-signal.SIGKILL)

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        os.kill(self.pid, signal.SIGINT)

    def wait(self, code: int = 0) -> None:
        """Wait for its end, which must be this one."""
        self._process.join(60)
        said = self._said.read_text() if self._said.exists() else ""
        assert self._process.exitcode == code, f"{self._process.exitcode}, not {code}: {said}"
        self._process.close()

    def result(self) -> dict[str, Any]:
        """Wait for its end and give what it said: a result, or an ``error``."""
        self.wait()
        said: dict[str, Any] = json.loads(self._said.read_text())
        return said


def start(folder: Path, order: dict[str, Any]) -> Child:
    """Start a process.

    Args:
        folder: Where it works.
        order: ``environment``, ``session``, ``store`` and either ``conversation``, or nothing of
            that to resume; ``tool``: whether it has the tool ``dig``; ``respond``: the answer to
            what the session waits with. It has the tools of `workers`.
    """
    return Child(folder, order)


def workers() -> list[Any]:
    """Tools that note each call in ``calls.txt`` and answer when a file named as they are is there.

    The first two are async, the third runs in a thread.
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
        """Works."""
        return await wait("first", runtime)

    @tool
    async def second(runtime: ToolRuntime[Any, Any]) -> str:
        """Works."""
        return await wait("second", runtime)

    @tool
    def third(runtime: ToolRuntime[Any, Any]) -> str:
        """Works."""
        file = note("third", runtime)
        while not file.exists():
            time.sleep(0.01)
        return "third is done."

    return [first, second, third]


def dig() -> Any:  # noqa: ANN401
    """A tool that answers at once."""
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
    # The fork server's environment is that of the test that started it.
    for name in list(os.environ):
        if name.startswith(("DUOLOGUE_", "OPENAI_")):
            del os.environ[name]
    os.environ.update(order.get("environment", {}), XDG_DATA_HOME=folder)
    os.chdir(folder)
    try:
        found = _run(order)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    # Moved into place, so that what is there is whole.
    part = Path(f"{said}.part")
    part.write_text(json.dumps(found))
    part.replace(said)


if __name__ == "__child__":
    _main(globals()["ORDER"], globals()["FOLDER"], globals()["SAID"])
