"""A session followed by the content of its store, as server-sent events.

`Runs` contains the sessions that this page itself runs on after an answer.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from ...nodes.models.adapters.composed import Chat
from ..common.errors import DuologueError, SpecError
from ..session.checkpoints import config_of
from ..session.page import read_for_page
from ..session.session import Session
from ..store.open import Store
from .pages import draw_news, standing_of, status_of

_log = logging.getLogger("duologue")

_AT_ONCE: Final = 1.5
"""Seconds within which it is told at once that an answer does not fit, or that another has it."""

_NOT_HERE: Final = (
    " This page has the models of its own environment, and the tools that installed packages "
    "register: what a program registers can be run by that program alone, or by `duologue answer` "
    "where it is installed."
)


class Runs:
    """Answers sessions and runs them on, each in a task of its own.

    Args:
        store: Where sessions are kept.
        model: What speaks where a conversation names no model.
    """

    def __init__(self, store: str | Path | None, model: Chat | str | None) -> None:
        self.problems: dict[str, str] = {}
        """What went wrong with a session, until it is asked for something again."""
        self._store, self._model = store, model
        self._running = set[asyncio.Task[None]]()

    async def answer(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        """Answer a question of a session and run it on; what fails soon is known after this."""
        self.problems.pop(session, None)
        task = asyncio.create_task(self._run(session, value, question))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait([task], timeout=_AT_ONCE)

    async def _run(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        try:
            handle = Session(session, store=self._store)
            await handle.aanswer(value, question=question, model=self._model)
        except DuologueError as error:
            told = str(error) + (_NOT_HERE if isinstance(error, SpecError) else "")
            self.problems[session] = told
        except Exception as error:
            _log.exception("session %s failed", session)
            self.problems[session] = f"It failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        """Break off what runs; it can be resumed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


_PAUSE: Final = 0.3
"""Seconds between two looks at a session that runs."""

_PATIENCE: Final = 50
"""After so many looks at which nothing was new, one that is not run is looked at less often."""

_STILL: Final = 2.0
"""Seconds between those looks."""


async def follow(
    store: Store, runs: Runs, session: str, seen: str, is_closing: Callable[[], bool]
) -> AsyncIterator[str]:
    """Tell what is new in a session, until it has ended or the page is closed.

    Args:
        store: Where it is kept.
        runs: What this page runs.
        session: The session.
        seen: The mark of what is on the page already.
        is_closing: Whether the page is being closed.

    Yields:
        Events in the form of server-sent events.
    """
    known: object = None
    looks = 0
    while not is_closing():
        try:
            row = await store.get(session)
            if row is None:
                yield _event(seen, {"reload": True})
                return
            status = await status_of(store, row)
            newest = await store.checkpointer.aget_tuple(config_of(session))
            place = newest and (newest.checkpoint["id"], len(newest.pending_writes or ()))
            found = (place, status, row.reason, row.stop_requested, runs.problems.get(session, ""))
            if found != known:
                known, looks = found, 0
                read = await read_for_page(store, session, past=status == "finished")
                standing = standing_of(row, status, read, runs.problems.get(session, ""))
                seen, told = await asyncio.to_thread(draw_news, read, standing, seen)
                yield _event(seen, told)
                if told.get("reload") or told.get("done"):
                    return
            elif not looks % 50:
                # A browser that has gone is noticed by what it does not take.
                yield ":\n\n"
        except DuologueError as error:
            yield _event(seen, {"problem": str(error)})
            return
        looks += 1
        await asyncio.sleep(_STILL if looks > _PATIENCE and status != "running" else _PAUSE)


def _event(mark: str, told: dict[str, object]) -> str:
    # JSON is one line, and a browser that connects again sends the id of the newest event.
    return f"id: {mark}\ndata: {json.dumps(told)}\n\n"
