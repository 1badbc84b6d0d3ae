"""Processes of their own that run batches, to be killed and started again. No tests here.

They are forked from the server of `support.children`, which has imported the library.
"""

import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

CELLS, CALLS, CONCURRENCY = 30, 4, 8
"""How many cells a batch has, how many calls each takes, and how many run at once."""


def batch(cells: int = CELLS, **fields: Any) -> dict[str, Any]:
    """A batch whose cells are told apart by their task."""
    conversation = {
        "task": "Plan.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": CALLS // 2},
        "model": "scripted",
    }
    tasks = [f"Plan garden {number}." for number in range(1, cells + 1)]
    return {"conversation": conversation | fields, "vary": {"task": tasks}}


class Player:
    """Answers for all sessions, and knows what it was asked."""

    def __init__(self, delay: float = 0.01) -> None:
        self.delay = delay
        self.asked = list[tuple[str, int]]()
        """The cell's task, and how much was said in it before, of each call."""
        self._changed = threading.Condition()

    def __call__(self, prompt: Sequence[Any]) -> Any:  # noqa: ANN401
        from duologue.nodes.testing import Reply

        text = prompt[0]["content"]
        task = text[text.index("Plan garden") :].partition(".")[0]
        own = sum(message["role"] == "assistant" for message in prompt)
        call = task, 2 * own + ("You are Bob" in text)
        with self._changed:
            self.asked.append(call)
            self._changed.notify_all()
        return Reply(text=f"{call[1]} of {task}", delay=self.delay)

    def wait_for(self, calls: int, seconds: float = 20) -> bool:
        """Wait until so many calls were made in all; whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.asked) >= calls, seconds)

    def repeated(self, since: int = 0) -> int:
        """How many calls were made that had been made before."""
        return sum(Counter(self.asked[since:]).values()) - len(set(self.asked[since:]))


class Command:
    """A command of duologue in a process of its own, and what it has printed."""

    def __init__(
        self, folder: Path, *arguments: str, environ: Mapping[str, str], most_bytes: int = 0
    ) -> None:
        from support.children import CONTEXT

        self._printed = folder / f"{uuid4().hex}.txt"
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "printed": str(self._printed),
            "most_bytes": most_bytes,
            "environ": dict(environ),
        }
        self._process = CONTEXT.Process(
            target=runpy.run_path, args=(__file__, {"ORDER": order}, "__child__"), daemon=True
        )
        self._process.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.join()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(int(self._process.pid or 0), number)

    def ended(self, seconds: float = 60) -> int:
        """Wait for its end, and give its exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"it does not end: {self.errors}"
        return code

    @property
    def output(self) -> str:
        """What it has printed to stdout."""
        return self._printed.read_text() if self._printed.exists() else ""

    @property
    def errors(self) -> str:
        """What it has printed to stderr."""
        printed = self._printed.with_suffix(".err")
        return printed.read_text() if printed.exists() else ""


def written(folder: Path, batch: dict[str, Any]) -> Path:
    """Write a batch to a file."""
    path = folder / "batch.json"
    path.write_text(json.dumps(batch))
    return path


def wait_until(holds: Any, seconds: float = 30) -> None:  # noqa: ANN401
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.01)


def _main(order: dict[str, Any]) -> None:
    for name in list(os.environ):
        if name.startswith(("DUOLOGUE_", "OPENAI_")):
            del os.environ[name]
    os.environ.update(order["environ"], XDG_DATA_HOME=order["folder"])
    os.chdir(order["folder"])
    printed = Path(order["printed"])
    for number, path in ((1, printed), (2, printed.with_suffix(".err"))):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["duologue", *order["arguments"]]
    # As a shell would have it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["most_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["most_bytes"],) * 2)
    from duologue.graphs.cli.app import main

    main()


if __name__ == "__child__":
    _main(globals()["ORDER"])
