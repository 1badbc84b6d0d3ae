"""The sessions of a store.

Listing loads nothing of LangGraph, which would take longer than the list. One session is read in
`graphs.session.session_row`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ..common.settings import load_settings
from ..common.threads import in_background
from ..store.open import Store, open_store
from ..store.rows import SessionRow


@asynccontextmanager
async def known_store(store: str | Path | None, *, create: bool = False) -> AsyncIterator[Store]:
    """Open a store that must exist if it is named, unless it may be created."""
    target = store or (await asyncio.to_thread(load_settings)).store
    async with open_store(target, create=create or not store) as opened:
        yield opened


async def alist_sessions(*, store: str | Path | None = None) -> list[SessionRow]:
    """List the sessions of a store, the newest first, without reading what they hold.

    Args:
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        One row for each session.

    Raises:
        StoreError: The store can't be opened or read.
    """
    async with known_store(store) as opened:
        return await opened.list()


list_sessions = in_background(alist_sessions)
