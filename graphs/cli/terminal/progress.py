"""A progress line: what the run is waiting for, and for how long.

On a terminal it is one line with a spinner, erased before anything else is printed; elsewhere a
plain line now and then.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.spinner import Spinner
from rich.text import Text

from ...log.kinds import Kind
from .console import on_screen, plain
from .text import beside, one_line

if TYPE_CHECKING:
    # What only waits for a list of models does not load LangGraph.
    from ...run.events import Event
    from .events import Transcript

_TICK = 0.1
"""How often the line is drawn, in seconds."""

_PATIENCE = 0.5
"""How long nothing is shown before the line appears, in seconds."""

_FIRST_LINE = 5.0
"""When the first plain line comes, in seconds; the next after three times as long."""

_PURPOSES: Final[Mapping[str, str]] = {
    Kind.SPECIFIED_TASK: "the task",
    Kind.REFLECTION: "the judge",
    Kind.CHOICE: "the moderator",
    Kind.SUMMARY: "a summary",
}
"""What a model is asked for where it is asked for no speaker."""


class Progress(BaseCallbackHandler):
    """Shows progress within its ``with`` block; needs a running event loop.

    As a handler of LangChain's callbacks it is told which models and tools are at work.
    """

    # In the event loop, as it happens.
    run_inline = True

    def __init__(
        self, console: Console, doing: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._is_live = on_screen(console)
        self._spinner = Spinner("line" if console.options.ascii_only else "dots")
        self._doing = doing
        self._running: dict[UUID, tuple[str, float]] = {}
        self._state: Mapping[str, Any] | None = None
        self._shown_at = clock()
        self._is_hidden = False
        self._is_drawn = False
        self._told: tuple[str, float] | None = None
        self._next = _FIRST_LINE
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Progress":
        """Begin."""
        self._run()
        return self

    def __exit__(self, *error: object) -> None:
        """End, and erase the line."""
        if self._timer is not None:
            self._timer.cancel()
        self.hide()

    def hide(self) -> None:
        """Erase the line and draw none until an `aside` ends."""
        self._is_hidden = True
        if self._is_drawn:
            self._is_drawn = False
            self._erase()

    @contextmanager
    def aside(self, *, goes_on: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Erase the line while the block prints something else."""
        self.hide()
        try:
            yield
        finally:
            self._shown_at = self._clock()
            self._is_hidden = goes_on()

    def show(self, event: "Event", transcript: "Transcript") -> None:
        """Show an event; the line is erased only if the transcript prints something."""
        if transcript.shows(event):
            with self.aside(goes_on=lambda: transcript.is_streaming):
                transcript.show(event)
        self.saw(event)

    def saw(self, event: "Event") -> None:
        """Note an event: it tells what is going on while no model or tool is running."""
        match event.event:
            case "session":
                self._doing = "Getting the model ready"
            case "code":
                self._doing = "Running the code"
            case "question":
                # What has asked has stopped.
                self._running.clear()
            case "notice":
                pass
            case _:
                self._doing = "Working"

    def on_chain_start(self, serialized: object, inputs: object, **kwargs: object) -> None:
        """A node begins: it is given the state."""
        if isinstance(inputs, Mapping) and "position" in inputs:
            self._state = inputs

    def on_chain_end(self, outputs: object, **kwargs: object) -> None:
        """A node ends: it gives the new position."""
        if isinstance(outputs, Mapping) and outputs.get("position") and self._state is not None:
            self._state = {**self._state, "position": outputs["position"]}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # as in the class above
    ) -> None:
        """A model is asked."""
        about = metadata or {}
        purpose, speaker = about.get("purpose"), about.get("speaker")
        who = speaker or _PURPOSES.get(str(purpose), "a model")
        own = " on its task" if speaker and purpose == Kind.REFLECTION else ""
        self._begin(run_id, f"Waiting for {who}{own}")

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """A tool is called."""
        self._begin(run_id, f"Waiting for the tool {serialized.get('name', '')}")

    def _end(self, *given: object, run_id: UUID, **kwargs: object) -> None:
        self._running.pop(run_id, None)

    on_llm_end = on_llm_error = on_tool_end = on_tool_error = _end

    def tick(self) -> None:
        """Draw the line, or print one, if it is time to."""
        if self._is_hidden:
            return
        now = self._clock()
        what, began = next(reversed(self._running.values()), (self._doing, self._shown_at))
        if not self._is_live:
            self._tell(what, began, now)
        elif now - max(began, self._shown_at) >= _PATIENCE:
            frame = self._spinner.render(now)
            room = self._console.width - 1
            line = one_line(f"{frame} {what}… {now - began:.0f} s", room)
            if self._state is not None:
                # What only waits for a list of models has no state, and loads none of this.
                from ...run.status import status

                line = beside(line, status(self._state), room)
            # In one write, or the screen shows the line that is gone in between.
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

    def _begin(self, run: UUID, what: str) -> None:
        self._running[run] = (what, self._clock())

    def _erase(self) -> None:
        start = (ControlType.ERASE_IN_LINE, 2)
        self._console.control(Control(ControlType.CARRIAGE_RETURN, start))

    def _run(self) -> None:
        # A screen that is gone is for those to notice who have something to say.
        with suppress(OSError):
            self.tick()
        self._timer = asyncio.get_running_loop().call_later(_TICK, self._run)
