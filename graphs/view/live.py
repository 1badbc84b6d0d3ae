"""A session followed by what its store holds, whoever runs it, as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Final

from ..common.errors import DuologueError
from ..sessions.checkpoints import config_of
from ..sessions.exports.page import read_for_page
from ..store.address import Store
from .pages import news
from .runs import Runs
from .standing import standing_of, status_of

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
                seen, told = await asyncio.to_thread(news, read, standing, seen)
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
