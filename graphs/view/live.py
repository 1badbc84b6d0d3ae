"""The changes of a session, read from its store and sent as server-sent events.

`Runs` runs the sessions that were answered on the page.
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
"""Seconds to wait for an early error of an answer, such as that another process has already
answered the question.
"""

_NOT_HERE: Final = (
    ". This page can use only the models in this environment and the tools of installed packages. "
    "If the session needs other tools, continue it in the program that registers them."
)


class Runs:
    """A runner that answers the questions of sessions, and continues each session in a task.

    Args:
        store: The store of the sessions.
        model: The model for conversations that name none.
    """

    def __init__(self, store: str | Path | None, model: Chat | str | None) -> None:
        self.problems: dict[str, str] = {}
        """The latest problem of each session, until the next request for it."""
        self._store, self._model = store, model
        self._running = set[asyncio.Task[None]]()

    async def answer(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        """Answer a question of a session and continue it. `problems` then contains early errors."""
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
            hint = _NOT_HERE if isinstance(error, SpecError) else ""
            self.problems[session] = str(error) if not hint else str(error).rstrip(".") + hint
        except Exception as error:
            _log.exception("session %s failed", session)
            self.problems[session] = f"The session failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        """Cancel the running sessions. They can be resumed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


_PAUSE: Final = 0.3
"""Seconds between two checks of a running session."""

_PATIENCE: Final = 50
"""Number of checks without a change after which a session that does not run is checked less often.
"""

_STILL: Final = 2.0
"""Seconds between two checks of a session that is checked less often."""


async def follow(
    store: Store, runs: Runs, session: str, seen: str, is_closing: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield the changes of a session until it has ended or the page is closed.

    Args:
        store: The store of the session.
        runs: The sessions that this page runs.
        session: The session's id.
        seen: The mark of the content that the page already shows.
        is_closing: A function that returns whether the page is being closed.

    Yields:
        Server-sent events.
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
                seen, news = await asyncio.to_thread(draw_news, read, standing, seen)
                yield _event(seen, news)
                if news.get("reload") or news.get("done"):
                    return
            elif not looks % 50:
                # A closed connection is noticed only when something is sent.
                yield ":\n\n"
        except DuologueError as error:
            yield _event(seen, {"problem": str(error)})
            return
        looks += 1
        await asyncio.sleep(_STILL if looks > _PATIENCE and status != "running" else _PAUSE)


def _event(mark: str, news: dict[str, object]) -> str:
    # JSON has no line breaks. A browser that reconnects sends the id of the latest event.
    return f"id: {mark}\ndata: {json.dumps(news)}\n\n"
