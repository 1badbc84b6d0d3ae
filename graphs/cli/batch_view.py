"""The status of a running batch: a table on a screen, an occasional line elsewhere."""

import time
from collections.abc import Callable
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..batch.limiter import Figures
from ..batch.status import BatchStatus, format_duration
from ..session.status import money
from .terminal.console import cell, on_screen, one_line, plain

_FIRST_LINE: Final = 5.0
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
        self._pause = _FIRST_LINE
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

    def show(self, status: BatchStatus, pace: Figures | None = None) -> None:
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

    def _table(self, status: BatchStatus, pace: Figures | None) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for name, number in status.rows():
            grid.add_row(Text(cell(name)), Text(f"{number:,}", justify="right"))
        return Group(
            Text(f"Batch {cell(status.batch)}: {status.done:,} of {status.cells:,} done", "bold"),
            _bar(status.cells, status.done, min(60, self._console.width)),
            grid,
            Text(one_line(" · ".join(self._used(status, pace)), self._console.width), "dim"),
            *(Text(line, "yellow") for line in _outages(pace)),
        )

    def _words(self, status: BatchStatus, pace: Figures | None) -> list[str]:
        rows = [f"{number:,} {cell(name)}" for name, number in status.rows()]
        return [f"{status.done:,} of {status.cells:,} done", *rows, *self._used(status, pace)]

    def _used(self, status: BatchStatus, pace: Figures | None) -> list[str]:
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
        left = self._left(status)
        return used if left is None else [*used, f"about {left} left"]

    def _left(self, status: BatchStatus) -> str | None:
        """Return the estimated time left. None until a cell has ended since the first status."""
        done = status.done - (self._done_before or 0)
        if not done or not status.left or not status.is_running:
            return None
        return format_duration(round((self._clock() - self._began) / done * status.left))


def _outages(pace: Figures | None) -> list[str]:
    """Return a line for each server that is down."""
    told = () if pace is None else pace.outages
    return [one_line(f"{outage[:1].upper()}{outage[1:]}.") for outage in told]


def _bar(most: int, done: int, width: int) -> Table:
    # ProgressBar alone does not end its line.
    bar = Table.grid()
    bar.add_row(ProgressBar(max(1, most), done, width=width))
    return bar
