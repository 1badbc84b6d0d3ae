"""The progress line: the current activity and its duration.

On a screen it is one line with a spinner, which is erased before anything else is printed.
Elsewhere a line is printed now and then.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ...batch.status import BatchStatus, format_duration
from ...session.progress import TERMINAL, AtWork, money
from .console import align_right, cell, on_screen, one_line, plain

if TYPE_CHECKING:
    # Listing the models does not load LangGraph.
    from ...batch.limiter import Figures
    from ...events import Event
    from .events import Transcript

_TICK = 0.1
"""Seconds between two updates of the line."""

_PATIENCE = 0.5
"""Seconds without output before the line appears."""

_FIRST_LINE = 5.0
"""Seconds until a line is printed if there is no screen. The time to each further line is three
times as long.
"""


class Progress(AtWork):
    """A progress line that is shown while its ``with`` block runs. Needs a running event loop.

    The class is a LangChain callback handler, because the callbacks report the running models and
    tools.
    """

    def __init__(
        self, console: Console, doing: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._console = console
        self._is_live = on_screen(console)
        self._spinner = Spinner("line" if console.options.ascii_only else "dots")
        self._doing = doing
        self._shown_at = clock()
        self._is_hidden = False
        self._is_drawn = False
        self._told: tuple[str, float] | None = None
        self._next = _FIRST_LINE
        self._timer: asyncio.TimerHandle | None = None
        self._holds_terminal = False

    def __enter__(self) -> "Progress":
        """Start the line."""
        # A function of the user may run a conversation, which would draw its own line.
        self._holds_terminal = TERMINAL.acquire(blocking=False)
        self._run()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop and erase the line."""
        if self._timer is not None:
            self._timer.cancel()
        self.hide()
        if self._holds_terminal:
            self._holds_terminal = False
            TERMINAL.release()

    def hide(self) -> None:
        """Erase the line, and draw none until an `aside` ends."""
        self._is_hidden = True
        if self._is_drawn:
            self._is_drawn = False
            self._erase()

    @contextmanager
    def aside(self, *, goes_on: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Erase the line while the block prints something else.

        After the block, the line stays hidden if `goes_on` returns True.
        """
        self.hide()
        try:
            yield
        finally:
            self._shown_at = self.clock()
            self._is_hidden = goes_on()

    def show(self, event: "Event", transcript: "Transcript") -> None:
        """Show an event. The line is erased only if the transcript prints something."""
        if transcript.shows(event):
            with self.aside(goes_on=lambda: transcript.is_streaming):
                transcript.show(event)
        self.saw(event)

    def saw(self, event: "Event") -> None:
        """Note an event, for the activity that is shown while no model or tool runs."""
        match event.event:
            case "session":
                self._doing = "Preparing the model"
            case "code":
                self._doing = "Running the code"
            case "question":
                # The tool that asks has stopped.
                self.running.clear()
            case "notice":
                pass
            case _:
                self._doing = "Working"

    def tick(self) -> None:
        """Update the line on a screen. Elsewhere, print a line if enough time has passed."""
        if self._is_hidden:
            return
        now = self.clock()
        what, began = self.find_activity(self._doing, self._shown_at)
        if not self._is_live:
            self._tell(what, began, now)
        elif now - max(began, self._shown_at) >= _PATIENCE:
            frame = self._spinner.render(now)
            room = self._console.width - 1
            activity, *parts = self.describe(what, began, now)
            line = align_right(one_line(f"{frame} {activity}", room), parts, room)
            # In one write, so that the screen never shows the erased line.
            with self._console:
                self._erase()
                self._console.print(Text(line, "dim"), end="", soft_wrap=True)
            self._is_drawn = True

    def _tell(self, what: str, began: float, now: float) -> None:
        if self._told != (what, began):
            self._told = (what, began)
            self._next = _FIRST_LINE
        if now - began >= self._next:
            plain(self._console, one_line(f"{what}: {now - began:.0f} s so far."))
            self._next *= 3

    def _erase(self) -> None:
        start = (ControlType.ERASE_IN_LINE, 2)
        self._console.control(Control(ControlType.CARRIAGE_RETURN, start))

    def _run(self) -> None:
        # An error of the screen is raised by the next output that matters.
        with suppress(OSError):
            self.tick()
        self._timer = asyncio.get_running_loop().call_later(_TICK, self._run)


_FIRST_BATCH_LINE: Final = 5.0
"""Seconds until the first line. The time to each further line is three times as long."""

_SELDOM: Final = 60.0
"""Maximum number of seconds between two lines."""


class BatchView:
    """A display of the status of a batch, shown while its ``with`` block runs."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._done_before: int | None = None
        self._pause = _FIRST_BATCH_LINE
        self._is_down = False
        self._next = self._began + self._pause
        screen = on_screen(console)
        self._live = Live(console=console, auto_refresh=False, transient=True) if screen else None

    def __enter__(self) -> "BatchView":
        """Start the table."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop and erase the table."""
        if self._live is not None:
            self._live.stop()

    def show(self, status: BatchStatus, pace: "Figures | None" = None) -> None:
        """Show the current status of a batch, and its pace if it is known."""
        if self._done_before is None:
            self._done_before = status.done
        if self._live is not None:
            self._live.update(self._table(status, pace), refresh=True)
            return
        outages = _outages(pace)
        if bool(outages) is not self._is_down:
            self._is_down = bool(outages)
            for line in outages or ["All model servers answer again."]:
                self.say(line)
        if self._clock() >= self._next:
            plain(self._console, one_line(" · ".join(self._words(status, pace))))
            self._pause = min(3 * self._pause, _SELDOM)
            self._next = self._clock() + self._pause

    def say(self, text: str) -> None:
        """Print a line above the table."""
        plain(self._console, text)

    def _table(self, status: BatchStatus, pace: "Figures | None") -> RenderableType:
        # ProgressBar alone does not end its line.
        bar = Table.grid()
        width = min(60, self._console.width)
        bar.add_row(ProgressBar(max(1, status.cells), status.done, width=width))
        grid = Table.grid(padding=(0, 2))
        for name, number in status.rows():
            grid.add_row(Text(cell(name)), Text(f"{number:,}", justify="right"))
        return Group(
            Text(f"Batch {cell(status.batch)}: {status.done:,} of {status.cells:,} done", "bold"),
            bar,
            grid,
            Text(one_line(" · ".join(self._used(status, pace)), self._console.width), "dim"),
            *(Text(line, "yellow") for line in _outages(pace)),
        )

    def _words(self, status: BatchStatus, pace: "Figures | None") -> list[str]:
        rows = [f"{number:,} {cell(name)}" for name, number in status.rows()]
        return [f"{status.done:,} of {status.cells:,} done", *rows, *self._used(status, pace)]

    def _used(self, status: BatchStatus, pace: "Figures | None") -> list[str]:
        calls, tokens, cost = status.calls, status.tokens, status.cost
        if pace is not None:
            # The rows of running cells do not contain their calls yet.
            whole = pace.used
            calls, tokens, cost = whole.calls, whole.tokens, whole.cost
        used = [f"{calls:,} calls", f"{tokens:,} tokens"]
        if cost:
            used.append(f"{money(cost)} spent")
        if pace is not None:
            used += [f"{pace.calls_per_second:.1f} calls/s"]
            used += [f"{pace.refusals:,} refused (429)"] if pace.refusals else []
        # The time left is not known until a cell has ended since the first status.
        done = status.done - (self._done_before or 0)
        if done and status.left and status.is_running:
            seconds = round((self._clock() - self._began) / done * status.left)
            used.append(f"about {format_duration(seconds)} left")
        return used


def _outages(pace: "Figures | None") -> list[str]:
    """Return a line for each server that is down."""
    told = () if pace is None else pace.outages
    return [one_line(f"{outage[:1].upper()}{outage[1:]}.") for outage in told]
