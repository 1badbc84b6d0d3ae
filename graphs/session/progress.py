"""The progress of a run, shown to the person who waits for its result.

A notebook shows the progress in a line below the cell, and a terminal shows it in a line of stderr.
For a notebook, the functions use the IPython of the running kernel; they never import IPython.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from shutil import get_terminal_size
from typing import Any, Final, TypeAlias
from uuid import uuid4

from ..common.sanitize import clean
from ..common.settings import load_settings
from ..events import Event, QuestionAsked
from .activity import TERMINAL, AtWork
from .options import Options
from .status import status

_log = logging.getLogger("duologue")

_PATIENCE: Final = 1.0
"""Seconds before the line is shown. The line of a shorter run could not be read."""

_TICK: Final = 0.5
"""Interval between two updates of the line, in seconds."""

_Show: TypeAlias = Callable[[str], None]
"""A function that shows a line in place of the previous line. An empty line erases it."""


@asynccontextmanager
async def show_progress(
    options: Options,
) -> AsyncIterator[tuple[Options, Callable[[Event], object]]]:
    """Show the progress of a run while the block lasts, if a person can see it.

    Args:
        options: The run's options.

    Yields:
        The options to run the session with, and a function to call with each event.

    Raises:
        SpecError: A setting has an invalid value.
    """
    progress, callbacks = _find_progress(), options.get("callbacks")
    # `check_run` rejects callbacks of a wrong type.
    is_shown = progress is not None and isinstance(callbacks, list | tuple | None)
    if progress is None or not is_shown or not (await asyncio.to_thread(load_settings)).progress:
        yield options, lambda event: None
        return
    line = asyncio.create_task(_draw(progress))
    try:
        yield Options(**{**options, "callbacks": [*(callbacks or ()), progress]}), progress.saw
    finally:
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)


async def _draw(progress: "_Progress") -> None:
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


def _find_progress() -> _Progress | None:
    """Return the progress for a notebook or a terminal, or None if neither is there."""
    show = _display_function()
    if show is not None:
        return _Progress(_in_cell(show))
    # If logging is on, the log already shows the progress.
    if not _log.isEnabledFor(logging.INFO) and _has_terminal():
        return _TerminalProgress(_TerminalLine().show)
    return None


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
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return False


class _TerminalLine:
    """A line of the terminal. If several runs are shown at once, only one of them uses it."""

    def __init__(self) -> None:
        self._is_held = False

    def show(self, line: str) -> None:
        """Show a line in place of the one before, or erase it."""
        if not self._is_held and (not line or not TERMINAL.acquire(blocking=False)):
            return
        self._is_held = True
        # The terminal would wrap a longer line, which can't be erased.
        cut = _fit(" ".join(clean(line).split()), get_terminal_size().columns - 1)
        with suppress(OSError, ValueError):
            sys.stderr.write(f"\r\x1b[2K{cut}")
            sys.stderr.flush()
        if not line:
            self._is_held = False
            TERMINAL.release()


def _fit(line: str, width: int) -> str:
    """Cut a line that is wider than the terminal."""
    # This import takes time that runs without a terminal save.
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - 1)) + "…"
