"""The progress of a run, shown to the person who waits for its result.

A notebook shows the progress in a line below the cell, and a terminal shows it in a line of stderr.
Elsewhere, such as in a pipe or a log, a long run writes a line to stderr now and then.
For a notebook, the functions use the IPython of the running kernel; they never import IPython.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from shutil import get_terminal_size
from typing import Any, Final, TypeAlias
from uuid import uuid4

from ..common.sanitize import clean
from ..common.settings import load_settings
from ..events import Event, MessageSaid, QuestionAsked
from .activity import TERMINAL, AtWork
from .options import Options
from .status import status

_log = logging.getLogger("duologue")

_PATIENCE: Final = 1.0
"""Seconds before the line is shown. The line of a shorter run could not be read."""

_TICK: Final = 0.5
"""Interval between two updates of the line, in seconds."""

_FIRST_LINE: Final = 10.0
"""Seconds until a line is written if there is neither a notebook nor a terminal. The time to each
further line is three times as long.
"""

_Show: TypeAlias = Callable[[str], None]
"""A function that shows a line in place of the previous line. An empty line erases it."""


@asynccontextmanager
async def show_progress(
    options: Options,
) -> AsyncIterator[tuple[Options, Callable[[Event], object]]]:
    """Show the progress of a run while the block lasts.

    Args:
        options: The run's options.

    Yields:
        The options to run the session with, and a function to call with each event.

    Raises:
        SpecError: A setting has an invalid value.
    """
    progress, callbacks = _find_progress(), options.get("callbacks")
    if progress is None or not (await asyncio.to_thread(load_settings)).progress:
        yield options, lambda event: None
        return
    # `check_run` rejects callbacks of a wrong type.
    if isinstance(progress, AtWork) and isinstance(callbacks, list | tuple | None):
        options = {**options, "callbacks": [*(callbacks or ()), progress]}
    line = asyncio.create_task(_draw(progress))
    try:
        yield options, progress.saw
    finally:
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)


async def _draw(progress: "_Progress | _SparseProgress") -> None:
    """Update the line until the task is cancelled, then erase it."""
    await asyncio.sleep(_PATIENCE)
    try:
        while True:
            progress.show(progress.line())
            await asyncio.sleep(_TICK)
    finally:
        progress.show("")


class _Progress(AtWork):
    """The progress of a run: the call that it waits for, and its round and usage.

    Args:
        show: Shows the line.
    """

    def __init__(self, show: _Show) -> None:
        super().__init__()
        self.show = show
        self._doing = "Working", self.clock()

    def saw(self, event: Event) -> None:
        """Record an event, which shows whether the run waits for an answer."""
        if isinstance(event, QuestionAsked):
            # The tool call that asked the question has stopped.
            self.running.clear()
            self._doing = "Waiting for an answer", self.clock()
        elif self._doing[0] != "Working":
            self._doing = "Working", self.clock()

    def line(self) -> str:
        """Return the line: the current call, its duration, and the progress of the conversation."""
        doing, since = next(reversed(self.running.values()), self._doing)
        return " · ".join([f"{doing}… {self.clock() - since:.0f} s", *status(self.state or {})])


class _TerminalProgress(_Progress):
    """The progress of a run on a terminal, shown only while a model is called.

    At other times, one of the user's functions may ask a question on the terminal.
    """

    def saw(self, event: Event) -> None:
        """Record an event, and erase the line before a question is asked."""
        super().saw(event)
        if not self.running:
            self.show("")

    def on_tool_start(self, *given: object, **kwargs: Any) -> None:
        """Record nothing, since the tool may use the terminal."""

    def line(self) -> str:
        """Return the line, or an empty line if no model is called."""
        return super().line() if self.running else ""

    def _end(self, *given: object, **kwargs: Any) -> None:
        super()._end(*given, **kwargs)
        if not self.running:
            self.show("")

    on_llm_end = on_llm_error = on_tool_end = on_tool_error = _end


class _SparseProgress:
    """The progress of a long run in a pipe or a log, where no line can be erased.

    It is no callback handler, because callbacks would slow down each step of a service.
    """

    def __init__(self, show: _Show) -> None:
        self.show = show
        self._began = time.monotonic()
        self._next = _FIRST_LINE
        self._messages = 0
        self._doing = "no message yet"
        self._line = ""

    def saw(self, event: Event) -> None:
        """Count the messages, and record whether the run waits for an answer."""
        if isinstance(event, MessageSaid):
            self._messages += 1
            number = "1 message" if self._messages == 1 else f"{self._messages:,} messages"
            self._doing = f"{number}, the newest from {event.speaker}"
        elif isinstance(event, QuestionAsked):
            self._doing = "waiting for an answer"

    def line(self) -> str:
        """Return the newest line. It is empty until the first line is due."""
        passed = time.monotonic() - self._began
        if passed >= self._next:
            self._next *= 3
            self._line = f"duologue: {passed:.0f} s so far · {self._doing}"
        return self._line


def _find_progress() -> _Progress | _SparseProgress | None:
    """Return the progress for this process, or None if its log shows it or there is no stderr."""
    show = _display_function()
    if show is not None:
        return _Progress(_in_cell(show))
    # If logging is on, the log already shows the progress.
    if _log.isEnabledFor(logging.INFO) or sys.stderr is None:
        return None
    if _has_terminal():
        return _TerminalProgress(_TerminalLine().show)
    return _SparseProgress(_StderrLine().show)


def _display_function() -> Callable[..., object] | None:
    """Return the function that shows output in a notebook, or None if no kernel runs."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shows: Callable[..., object] = shell.display_pub.publish
    return shows


def _in_cell(publish: Callable[..., object]) -> _Show:
    """Return a function that shows a line below the cell."""
    place: Mapping[str, str] = {"display_id": uuid4().hex}
    is_drawn = False

    def show(line: str) -> None:
        nonlocal is_drawn
        if line or is_drawn:
            # A kernel accepts output from any thread, such as that of the background loop.
            publish(data={"text/plain": line}, transient=place, update=is_drawn)
            is_drawn = True

    return show


def _has_terminal() -> bool:
    """Return whether stderr is a terminal on which a line can be erased."""
    with suppress(ValueError):  # a closed file
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return False


class _StderrLine:
    """The lines of a run on stderr. If several runs are shown at once, only one of them writes."""

    def __init__(self) -> None:
        self._is_held = False
        self._written = ""

    def show(self, line: str) -> None:
        """Show a line, or end with an empty line."""
        if not self._is_held and (not line or not TERMINAL.acquire(blocking=False)):
            return
        self._is_held = True
        with suppress(OSError, ValueError):
            self._write(" ".join(clean(line).split()))
        if not line:
            self._is_held = False
            TERMINAL.release()

    def _write(self, line: str) -> None:
        """Write a line unless it is already there."""
        if line and line != self._written:
            self._written = line
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


class _TerminalLine(_StderrLine):
    """A line of the terminal, which replaces the line before."""

    def _write(self, line: str) -> None:
        """Show a line in place of the one before, or erase it."""
        # The terminal would wrap a longer line, which can't be erased.
        cut = _fit(line, get_terminal_size().columns - 1)
        sys.stderr.write(f"\r\x1b[2K{cut}")
        sys.stderr.flush()


def _fit(line: str, width: int) -> str:
    """Cut a line that is wider than the terminal."""
    # This import takes time that runs without a terminal save.
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - 1)) + "…"
