"""A run that is awaited: from a spec, or a session's id, to the session as it is then.

If a notebook's cell waits for it, a line below the cell says how far the conversation is. IPython
is used if a kernel runs, and never loaded.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple
from uuid import uuid4

from ..events import Event, MessageSaid, Notice, QuestionAsked, SessionStarted
from ..sessions.stored_session import StoredSession
from .answers import GivenAnswer
from .at_work import AtWork
from .engine import ConversationLike, run_session
from .options import Options
from .status import status

_log = logging.getLogger("duologue")

_PATIENCE: Final = 1.0
"""How long nothing is shown, in seconds: what is short is over before it could be read."""

_TICK: Final = 0.5
"""How often the line is drawn, in seconds."""


@asynccontextmanager
async def _shown_in_cell(
    options: Options,
) -> AsyncIterator[tuple[Options, Callable[[Event], object]]]:
    """Show how far a run is while the block lasts, if a notebook's cell waits for it.

    Args:
        options: The run's options.

    Yields:
        The options to run it with, and what is to be told each of its events.
    """
    show, callbacks = _shows(), options.get("callbacks")
    # Callbacks that are none are refused where the others are checked.
    if show is None or not isinstance(callbacks, list | tuple | None):
        yield options, lambda event: None
        return
    progress = _Progress()
    line = asyncio.create_task(_draw(progress, show))
    try:
        yield Options(**{**options, "callbacks": [*(callbacks or ()), progress]}), progress.saw
    finally:
        line.cancel()
        await asyncio.gather(line, return_exceptions=True)


def _shows() -> Callable[..., object] | None:
    """What shows something in a notebook; None where no kernel runs."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    shows: Callable[..., object] = shell.display_pub.publish
    return shows


async def _draw(progress: "_Progress", show: Callable[..., object]) -> None:
    """Show the line until it is cancelled, and erase it then."""
    place, is_drawn = {"display_id": uuid4().hex}, False
    await asyncio.sleep(_PATIENCE)
    try:
        while True:
            # A kernel takes it from any thread, such as that of the loop for synchronous functions.
            show(data={"text/plain": progress.line()}, transient=place, update=is_drawn)
            is_drawn = True
            await asyncio.sleep(_TICK)
    finally:
        if is_drawn:
            show(data={"text/plain": ""}, transient=place, update=True)


class _Progress(AtWork):
    """Knows what a run waits for, and how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self._doing = "Working", self.clock()

    def saw(self, event: Event) -> None:
        """Note an event: it tells whether somebody is to answer."""
        if isinstance(event, QuestionAsked):
            # What has asked has stopped.
            self.running.clear()
            self._doing = "Waiting for an answer", self.clock()
        elif self._doing[0] != "Working":
            self._doing = "Working", self.clock()

    def line(self) -> str:
        """Say who is at work for how long, and how far it is."""
        doing, since = next(reversed(self.running.values()), self._doing)
        return " · ".join([f"{doing}… {self.clock() - since:.0f} s", *status(self.state or {})])


class FinishedRun(NamedTuple):
    """A session after a run, and where it is stored."""

    session: StoredSession
    store: str
    """The address of the store."""


async def run_to_end(
    source: ConversationLike | None,
    session: str | None,
    options: Options,
    *,
    reset: bool = False,
    reply: GivenAnswer | None = None,
    queues: bool = False,
) -> FinishedRun:
    """Run a session to its outcome or a question; `graphs.run.engine.run_session` says more."""
    ended: StoredSession | None = None
    store = ""
    async with _shown_in_cell(options) as (shown, saw):
        run_of_it = run_session(
            source, session, reset=reset, tokens=False, reply=reply, queues=queues, **shown
        )
        async with aclosing(run_of_it) as events:
            async for event in events:
                if isinstance(event, StoredSession):
                    ended = event
                    continue
                if isinstance(event, SessionStarted):
                    store = event.store
                saw(event)
                _note(event)
    assert ended is not None  # noqa: S101  # a run ends with its session or an error
    return FinishedRun(ended, store)


def _note(event: Event) -> None:
    """Log progress, without what is said."""
    match event:
        case Notice():
            _log.info("%s", event.text)
        case MessageSaid():
            _log.info("%s has said %d characters (%s)", event.speaker, len(event.text), event.id)
