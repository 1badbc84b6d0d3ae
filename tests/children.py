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
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

_CONTEXT = multiprocessing.get_context("forkserver")
# What a run would otherwise import in each process anew; what is missing here is left out.
_CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "duologue.graphs.run.converse",
        "duologue.graphs.store.sql.postgres",
        "duologue.nodes.models.client.clients",
        "anyio._backends._asyncio",
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
        self._process = _CONTEXT.Process(
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
        order: ``environment``, ``session``, ``store``, ``durability`` and either ``conversation``,
            or nothing of that to resume; ``die_at``: the number of the write to the store, from 0,
            instead of which it kills itself; ``tool``: whether it has the tool ``dig``;
            ``answers``: what a person answers, one question after the other; ``respond``: the
            answer to what the session waits with. It has the tools of `workers`, the order
            ``backwards`` and the hooks ``brackets``, ``dies before`` and ``dies after``, which end
            it there.
    """
    return Child(folder, order)


def backwards(said: Sequence[Any], names: tuple[str, ...]) -> str:
    """An order: whoever stands before who spoke last."""
    return names[names.index(said[-1].name) - 1]


def brackets() -> Any:  # noqa: ANN401
    """A hook at all four points, which puts into brackets what passes."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from duologue.tools import Hook

    return Hook(
        before_speaker=lambda turn: HumanMessage(f"({turn.heard})"),
        after_speaker=lambda turn, reply: AIMessage(f"[{reply.text}]"),
        before_tool=lambda turn, call: {**call, "args": {"depth": 2 * call["args"]["depth"]}},
        after_tool=lambda turn, call, result: ToolMessage(f"<{result.text}>", tool_call_id=""),
    )


def dying(point: str) -> Any:  # noqa: ANN401
    """A hook that kills the process at this point."""
    from duologue.tools import Hook

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return Hook(**{point: die})


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


def _run(order: dict[str, Any]) -> dict[str, Any]:
    from langchain_core.tools import tool

    from duologue.graphs import converse, respond, resume

    @tool
    def dig(depth: int) -> str:
        """Dig a hole."""
        return f"A hole of {depth}."

    if "die_at" in order:
        _die_at(order["die_at"])
    options: dict[str, Any] = {
        "store": order["store"],
        "tools": [*workers(), *([dig] if order.get("tool") else [])],
        "orders": {"backwards": backwards},
        "hooks": {
            "brackets": brackets(),
            "dies before": dying("before_speaker"),
            "dies after": dying("after_speaker"),
        },
    }
    if "answers" in order:
        answers = iter(order["answers"])
        options["answer"] = lambda question: next(answers, None)
    if "durability" in order:
        options["durability"] = order["durability"]
    conversation = order.get("conversation")
    if "respond" in order:
        result = respond(order["session"], order["respond"], **options)
    elif conversation is None:
        result = resume(order["session"], **options)
    else:
        result = converse(conversation, session=order["session"], **options)
    return {
        "messages": [
            message.model_dump(mode="json", exclude={"id"}) for message in result.messages
        ],
        "outcome": None
        if result.outcome is None
        else result.outcome.model_dump(mode="json", exclude={"seconds"}),
        "specified_task": result.specified_task,
        "writes": _WRITES[0],
    } | (
        {"pending": [question.model_dump(mode="json") for question in result.pending]}
        if result.pending
        else {}
    )


_WRITES = [0]


def _die_at(number: int) -> None:
    from duologue.graphs.store.writer import Lease, Statement, Writer

    write = Writer.write

    async def counted(writer: Writer, *statements: Statement, lease: Lease | None = None) -> int:
        if _WRITES[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        _WRITES[0] += 1
        return await write(writer, *statements, lease=lease)

    # Each write to a store goes through here, those of leases and of the list of sessions too.
    Writer.write = counted  # type: ignore[method-assign,assignment]


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
