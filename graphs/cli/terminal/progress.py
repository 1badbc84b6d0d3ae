"""The progress line: the current activity and its duration.

On a screen it is one line with a spinner, which is erased before anything else is printed.
Elsewhere a line is printed now and then.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.spinner import Spinner
from rich.text import Text

from ...session.activity import TERMINAL, AtWork
from .console import beside, on_screen, one_line, plain

if TYPE_CHECKING:
    # Listing the models does not load LangGraph.
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
        what, began = next(reversed(self.running.values()), (self._doing, self._shown_at))
        if not self._is_live:
            self._tell(what, began, now)
        elif now - max(began, self._shown_at) >= _PATIENCE:
            frame = self._spinner.render(now)
            room = self._console.width - 1
            line = one_line(f"{frame} {what}… {now - began:.0f} s", room)
            if self.state is not None:
                # Listing the models has no state, and does not load this module.
                from ...session.status import status

                line = beside(line, status(self.state), room)
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
