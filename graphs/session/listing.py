"""The sessions of a store.

This module does not load LangGraph, which takes longer than reading the list.
`graphs.session.session_row` reads a single session.
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
    """Open a store. If `store` is passed, the store must exist, unless `create` is true."""
    target = store or (await asyncio.to_thread(load_settings)).store
    async with open_store(target, create=create or not store) as opened:
        yield opened


async def alist_sessions(*, store: str | Path | None = None) -> list[SessionRow]:
    """List the sessions of a store, newest first, without reading their contents.

    Args:
        store: The store: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. If None, the
            store in the settings, or else an SQLite file in the user's data folder.

    Returns:
        One row for each session.

    Raises:
        StoreError: The store cannot be opened or read.
    """
    async with known_store(store) as opened:
        return await opened.list()


list_sessions = in_background(alist_sessions)
