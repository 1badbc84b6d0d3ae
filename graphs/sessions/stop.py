"""Stopping a session. Where somebody runs it nothing of LangGraph is loaded."""

from pathlib import Path

from ..common.background import in_background
from ..common.errors import SessionError
from ..store.errors import unknown_session
from ..store.rows import check_session_id
from .listing import known_store


async def astop_session(session: str, *, store: str | Path | None = None) -> bool:
    """Ask whoever runs a session, here or in another process, to stop after its current turn.

    One that waits for a person and that nobody runs ends at once.

    Args:
        session: The session's id.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        Whether it has ended; False where it ends after its current turn.

    Raises:
        SessionError: There is no such session, it has ended already, or nobody runs it and it does
            not wait; or it waits, and a stop alone does not end it by its rules.
        StoreError: The store can't be opened or written.
    """
    check_session_id(session)
    async with known_store(store) as opened:
        row = await opened.get(session)
        if row is None:
            raise unknown_session(session, opened.url)
        if row.status == "finished":
            raise SessionError(f"Session {session!r} has ended already.")
        if await opened.is_locked(session):
            await opened.request_stop(session)
            return False
        if row.status != "waiting":
            raise SessionError(f"Session {session!r} is not running: there is nothing to stop.")
        # It loads LangGraph.
        from .say import end_waiting

        await end_waiting(opened, session)
        return True


stop_session = in_background(astop_session)
