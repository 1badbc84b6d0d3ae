"""The sessions of a store: which there are, what one holds, and deleting one."""

import asyncio
import json
from pathlib import Path

from duologue.graphs.background import run
from duologue.graphs.build import Graph, build_graph
from duologue.graphs.migrations import restored
from duologue.graphs.result import Result
from duologue.graphs.settings import load_settings
from duologue.graphs.spec import Conversation
from duologue.graphs.store import SessionRow, check_session_id, open_store, unknown_session


async def _target(store: str | Path | None) -> str | Path | None:
    return store or (await asyncio.to_thread(load_settings)).store


async def alist_sessions(*, store: str | Path | None = None) -> list[SessionRow]:
    """List the sessions of a store; `list_sessions` says how."""
    async with open_store(await _target(store)) as opened:
        return await opened.list()


async def aget_session(session: str, *, store: str | Path | None = None) -> Result:
    """Read a session; `get_session` says how."""
    check_session_id(session)
    async with open_store(await _target(store)) as opened:
        row = await opened.get(session)
        if row is None:
            raise unknown_session(session, opened.url)
        conversation = restored(json.loads(row.spec), f"session {session!r}: ")
        graph = build_graph(checkpointer=opened.checkpointer)
        return await read_session(session, conversation, graph)


async def read_session(session: str, conversation: Conversation, graph: Graph) -> Result:
    """Read what a graph's checkpointer holds of a session.

    Args:
        session: The session's id.
        conversation: Its spec.
        graph: A graph on the store's checkpointer.

    Returns:
        The session as it stands.
    """
    state = await graph.aget_state({"configurable": {"thread_id": session}})
    return Result.of(session, conversation, state.values)


async def adelete_session(session: str, *, store: str | Path | None = None) -> None:
    """Delete a session; `delete_session` says how."""
    check_session_id(session)
    async with open_store(await _target(store)) as opened:
        await opened.delete(session)


def list_sessions(*, store: str | Path | None = None) -> list[SessionRow]:
    """List the sessions of a store, the newest first, without reading what they hold.

    Args:
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        One row for each session.

    Raises:
        StoreError: The store can't be opened or read.
    """
    return run(alist_sessions(store=store))


def get_session(session: str, *, store: str | Path | None = None) -> Result:
    """Read what a session holds, without running it.

    Args:
        session: The session's id.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        The session as it stands; its outcome is None while it has not ended.

    Raises:
        SessionError: There is no such session.
        StoreError: The store can't be opened or read.
    """
    return run(aget_session(session, store=store))


def delete_session(session: str, *, store: str | Path | None = None) -> None:
    """Delete a session and everything it holds.

    Args:
        session: The session's id.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Raises:
        SessionError: There is no such session, or it is running.
        StoreError: The store can't be opened or written.
    """
    run(adelete_session(session, store=store))
