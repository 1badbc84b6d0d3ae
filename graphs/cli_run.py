"""Runs a conversation for the command line: shows its events, and stops at a signal.

What the events look like is in `duologue.graphs.terminal`.
"""

import asyncio
import os
import signal
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import typer

from duologue.graphs.cli_exit import Again, ExitCode
from duologue.graphs.converse import astream
from duologue.graphs.errors import DuologueError, ModelError, SpecError, StoreError
from duologue.graphs.events import SessionStarted
from duologue.graphs.running import Options, Source
from duologue.graphs.settings import load_settings
from duologue.graphs.store import open_store
from duologue.graphs.terminal import JsonLines, Transcript, View, plain, stderr, stdout

_PATIENCE = 3  # signals: the first asks to stop, and `uv run` and the like may send it twice


def follow(
    source: Source | None, session: str | None, again: Again, *, reset: bool, as_json: bool
) -> None:
    """Run a session to its outcome and show what happens.

    Args:
        source: The conversation. None: go on with the session.
        session: The session's id.
        again: Where the session is kept, and its model.
        reset: Whether to delete what is stored of that session first.
        as_json: Whether to show events as JSON.

    Raises:
        typer.Exit: A signal ended it, after which it can be resumed.
        DuologueError: As in `converse`.
    """
    view = JsonLines() if as_json else Transcript(again, stdout(), stderr())
    code = asyncio.run(_Run(view, again).play(source, session, reset=reset))
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


@dataclass
class _Run:
    view: View
    again: Again
    session: str | None = None
    signals: list[int] = field(default_factory=list)

    async def play(self, source: Source | None, session: str | None, *, reset: bool) -> ExitCode:
        self._listen()
        options: Options = {"store": self.again.store, "model": self.again.model}
        try:
            async with aclosing(astream(source, session=session, reset=reset, **options)) as events:
                async for event in events:
                    if isinstance(event, SessionStarted):
                        self.session = event.session
                    self.view.show(event)
        except asyncio.CancelledError:
            # On Windows the loop itself turns Ctrl-C into this.
            code = ExitCode(128 + (self.signals or [signal.SIGINT])[0])
            self._pause()
            plain(stderr(), f"\n{'Interrupted' if code is ExitCode.INTERRUPTED else 'Terminated'}.")
            await self._say_how_to_go_on()
            return code
        except (ModelError, SpecError, StoreError):
            self._pause()
            await self._say_how_to_go_on()
            raise
        return ExitCode.DONE

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        run = asyncio.current_task()
        assert run is not None  # noqa: S101  # a coroutine runs in a task

        def stop(number: int) -> None:
            self.signals.append(number)
            if len(self.signals) == 1:
                run.cancel()
            elif len(self.signals) >= _PATIENCE:
                # What is answered is stored already: nothing is lost by not waiting.
                os._exit(128 + number)

        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, stop, number)

    def _pause(self) -> None:
        if isinstance(self.view, Transcript):
            self.view.pause()

    async def _say_how_to_go_on(self) -> None:
        if self.session is not None and await _waits(self.session, self.again.store):
            plain(stderr(), f"Go on with: {self.again.command('resume', self.session)}")


async def _waits(session: str, store: str | None) -> bool:
    """Whether another process will find this session unfinished."""
    target = store or load_settings().store
    if target is not None and target.startswith("memory:"):
        return False
    try:
        async with open_store(target) as opened:
            row = await opened.get(session)
    except DuologueError:
        return False
    return row is not None and row.status == "unfinished"
