"""The progress of a run, shown to the person who waits for its result.

A notebook shows the progress in a line below the cell, and a terminal shows it in a line of stderr.
Elsewhere, such as in a pipe or a log, a long run writes a line to stderr now and then.
For a notebook, the functions use the IPython of the running kernel; they never import IPython.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler

from ..common.sanitize import clean
from ..common.settings import load_settings
from ..log.metadata import Reflection, SpeakerChoice, SpecifiedTask, Summary, kind_name

if TYPE_CHECKING:
    # Commands that run no conversation show this line, too. They do not load LangGraph.
    from ..events import Event
    from .options import Options

_PURPOSES: Final[Mapping[str, str]] = {
    kind_name(SpecifiedTask): "the task",
    kind_name(Reflection): "the judge",
    kind_name(SpeakerChoice): "the moderator",
    kind_name(Summary): "a summary",
}
"""The name of a model call in the progress line, if the call is not made for a speaker. The key is
the kind of the message that the call writes.
"""


TERMINAL: Final = threading.Lock()
"""The lock on the terminal's progress line. Only the run that holds the lock draws the line."""


class AtWork(BaseCallbackHandler):
    """A LangChain callback handler that records which calls are running."""

    # Called in the event loop, at the moment of each callback.
    run_inline = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.running: dict[UUID, tuple[str, float]] = {}
        """The description and start time of each running call, by its run id, newest last."""
        self.state: Mapping[str, Any] | None = None
        """The state of the graph. None before the first node starts."""

    def on_chain_start(self, serialized: object, inputs: object, **kwargs: object) -> None:
        """Store the state that a node receives."""
        if isinstance(inputs, Mapping) and "position" in inputs:
            self.state = inputs

    def on_chain_end(self, outputs: object, **kwargs: object) -> None:
        """Store the position that a node returns."""
        if isinstance(outputs, Mapping) and outputs.get("position") and self.state is not None:
            self.state = {**self.state, "position": outputs["position"]}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # as in the base class
    ) -> None:
        """Record that a model is called."""
        about = metadata or {}
        purpose, speaker = about.get("purpose"), about.get("speaker")
        who = speaker or _PURPOSES.get(str(purpose), "a model")
        own = " on its task" if speaker and purpose == kind_name(Reflection) else ""
        self._begin(run_id, f"Waiting for {who}{own}")

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Record that a tool is called."""
        self._begin(run_id, f"Waiting for the tool {serialized.get('name', '')}")

    def find_activity(self, doing: str, since: float) -> tuple[str, float]:
        """Return the newest running call and its start time, or the given activity if none runs."""
        return next(reversed(self.running.values()), (doing, since))

    def describe(self, doing: str, since: float, now: float) -> list[str]:
        """Return the parts of the line: an activity with its duration, and the progress so far."""
        return [f"{doing}… {now - since:.0f} s", *describe_progress(self.state or {})]

    def _begin(self, run: UUID, what: str) -> None:
        self.running[run] = (what, self.clock())

    def _end(self, *given: object, run_id: UUID, **kwargs: object) -> None:
        self.running.pop(run_id, None)

    on_llm_end = on_llm_error = on_tool_end = on_tool_error = _end


_LEAST_COST: Final = 0.000001


def money(cost: float) -> str:
    """Format an amount of money, in the currency of the price table."""
    if cost >= 1:
        return f"{cost:,.2f}"
    # A single call may cost a small fraction of a cent.
    return f"{cost:.6f}".rstrip("0") if cost >= _LEAST_COST else f"less than {_LEAST_COST:.6f}"


def describe_progress(state: Mapping[str, Any]) -> Sequence[str]:
    """Return the progress of a conversation: round, calls, tokens, cost, seconds, in this order.

    Args:
        state: The state of the conversation's graph, as plain values.
    """
    spec, position = state.get("spec"), state.get("position")
    if not spec or position is None:
        return ()
    facts = position.get("facts", {})
    calls, tokens, cost = (facts.get(name, 0) for name in ("calls", "tokens", "cost"))
    parts = [
        _describe_round(spec, position.get("turns", 0)),
        "1 call" if calls == 1 else f"{calls:,} calls",
        f"{tokens:,} tokens",
        *([f"{money(cost)} spent"] if cost else []),
        f"{facts.get('seconds', 0):.0f} s in all",
    ]
    return parts if calls else parts[:1]


def _describe_round(spec: Mapping[str, Any], turns: int) -> str:
    # This import takes longer than the rest of a command without a conversation.
    from ..ends.end_chat import EndChat

    complete = turns // len(spec["speakers"])
    left = EndChat.model_validate(spec.get("end_chat", {})).rounds_left(complete)
    if left is None:
        return f"round {complete + 1}"
    return f"round {complete + min(1, left)} of {complete + left}"


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
    options: "Options",
) -> AsyncIterator[tuple["Options", Callable[["Event"], object]]]:
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

    def saw(self, event: "Event") -> None:
        """Record an event, which shows whether the run waits for an answer."""
        if event.event == "question":
            # The tool call that asked the question has stopped.
            self.running.clear()
            self._doing = "Waiting for an answer", self.clock()
        elif self._doing[0] != "Working":
            self._doing = "Working", self.clock()

    def line(self) -> str:
        """Return the line: the current call, its duration, and the progress of the conversation."""
        return " · ".join(self.describe(*self.find_activity(*self._doing), self.clock()))


class _TerminalProgress(_Progress):
    """The progress of a run on a terminal, shown only while a model is called.

    At other times, one of the user's functions may ask a question on the terminal.
    """

    def saw(self, event: "Event") -> None:
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

    def saw(self, event: "Event") -> None:
        """Count the messages, and record whether the run waits for an answer."""
        if event.event == "message":
            self._messages += 1
            number = "1 message" if self._messages == 1 else f"{self._messages:,} messages"
            self._doing = f"{number}, the newest from {event.speaker}"
        elif event.event == "question":
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
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if shell is not None and hasattr(shell, "kernel"):
        return _Progress(_show_in_cell(shell.display_pub.publish))
    # If logging is on, the log already shows the progress.
    if _log.isEnabledFor(logging.INFO) or sys.stderr is None:
        return None
    with suppress(ValueError):  # a closed file
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            return _TerminalProgress(_TerminalLine().show)
    return _SparseProgress(_StderrLine().show)


def _show_in_cell(publish: Callable[..., object]) -> _Show:
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
        # This import takes time that runs without a terminal save.
        from rich.cells import cell_len, set_cell_size

        # The terminal would wrap a longer line, which can't be erased.
        width = get_terminal_size().columns - 1
        if cell_len(line) > width:
            line = set_cell_size(line, max(0, width - 1)) + "…"
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
