"""Processes that run batches, to be killed and started again. No tests here.

They are forked from the server of `support.children`, which has imported the library.
"""

import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

CONCURRENCY = 8
"""Number of sessions that run at once."""


class Command:
    """A `duologue` command in a separate process, and its output."""

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
        """Return whether the process is still running."""
        return self._process.is_alive()

    def says(self, text: str, seconds: float = 30) -> None:
        """Wait until the process has printed a text to stderr."""
        until = time.monotonic() + seconds
        while text not in self.errors:
            assert time.monotonic() < until and self.is_running, self.errors  # noqa: PT018
            time.sleep(0.01)

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()
        self._process.join()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(int(self._process.pid or 0), number)

    def stop(self, seconds: float = 60) -> None:
        """Send SIGSTOP, and wait until each thread has stopped. A busy one may still write."""
        self.signal(signal.SIGSTOP)
        until = time.monotonic() + seconds
        while any(state != "T" for state in self._states()):
            assert time.monotonic() < until, "it does not stop"
            time.sleep(0.001)

    def _states(self) -> list[str]:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return [thread.read_text().rpartition(") ")[2][0] for thread in threads]

    def ended(self, seconds: float = 60) -> int:
        """Wait for the process to end, and return its exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"it does not end: {self.errors}"
        return code

    @property
    def output(self) -> str:
        """Return its output on stdout."""
        return self._printed.read_text() if self._printed.exists() else ""

    @property
    def errors(self) -> str:
        """Return its output on stderr."""
        printed = self._printed.with_suffix(".err")
        return printed.read_text() if printed.exists() else ""


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
    # A shell starts its commands with this handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["most_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["most_bytes"],) * 2)
    from support.cli_help import main

    main()


if __name__ == "__child__":
    _main(globals()["ORDER"])
