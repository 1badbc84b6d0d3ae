"""Stopping a session. Nothing of LangGraph is loaded if somebody runs it."""

from ..common.errors import SessionError
from ..store.base import Store
from ..store.errors import unknown_session


async def stop_session(store: Store, session: str) -> bool:
    """Stop a session that waits, or ask whoever runs it to stop after the current turn.

    Returns:
        Whether it has ended.

    Raises:
        SessionError: It does not exist, has ended, or neither runs nor waits; or it waits, and by
            its rules a stop alone does not end it.
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
        raise SessionError(f"Session {session!r} is not running: there is nothing to stop.")
    # It loads LangGraph.
    from .take_over import end_waiting

    await end_waiting(store, session)
    return True
