"""Stopping a session. LangGraph is not loaded if another process runs the session."""

from ..common.errors import SessionError
from ..store.base import Store
from ..store.errors import unknown_session


async def stop_session(store: Store, session: str) -> bool:
    """Stop a session that waits, or request a stop after the current turn of a session that runs.

    Returns:
        Whether the session has ended.

    Raises:
        SessionError: The session does not exist, has already ended, or is neither running nor
            waiting; or it is waiting, and a stop alone does not meet its ``end_chat.when``.
    """
    row = await store.get(session)
    if row is None:
        raise unknown_session(session, store.url)
    if row.status == "finished":
        raise SessionError(f"Session {session!r} has ended already.")
    if await store.is_locked(session):
        await store.request_stop(session)
        return False
    if row.status != "waiting":
        raise SessionError(f"Session {session!r} is not running; there is nothing to stop.")
    # This import loads LangGraph.
    from .take_over import end_waiting

    await end_waiting(store, session)
    return True
