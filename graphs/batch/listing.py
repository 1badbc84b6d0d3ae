"""The batches of a store: which there are, how they stand, and deleting one.

As in `graphs.sessions.listing`, nothing of LangGraph is loaded.
"""

from pathlib import Path

from ..common.background import in_background
from ..sessions.listing import known_store
from ..store.batches import CellsWanted
from ..store.errors import unknown_batch
from .status import BatchStatus, read_status


async def aget_batch(name: str, *, store: str | Path | None = None) -> BatchStatus:
    """Read how a batch stands, whoever runs it.

    Args:
        name: The batch's name.
        store: Where its sessions are kept. None: the setting, else the user's data folder.

    Returns:
        How it stands.

    Raises:
        BatchError: There is no such batch.
        StoreError: The store can't be opened or read.
    """
    async with known_store(store) as opened:
        return await read_status(opened, name)


get_batch = in_background(aget_batch)


async def alist_batches(*, store: str | Path | None = None) -> list[BatchStatus]:
    """Read how all batches of a store stand, the newest first.

    Args:
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        How each stands.

    Raises:
        StoreError: The store can't be opened or read.
    """
    async with known_store(store) as opened:
        rows = await opened.batches.list()
        return [await read_status(opened, row.batch, row) for row in rows]


list_batches = in_background(alist_batches)


async def adelete_batch(name: str, *, store: str | Path | None = None) -> None:
    """Delete a batch with all its sessions.

    Args:
        name: The batch's name.
        store: Where its sessions are kept. None: the setting, else the user's data folder.

    Raises:
        BatchError: There is no such batch, or it is running.
        SessionError: One of its sessions is running by itself.
        StoreError: The store can't be opened or written.
    """
    async with known_store(store) as opened, opened.lock_batch(name) as lease:
        if await opened.batches.get(name) is None:
            raise unknown_batch(name, opened.url)
        async for row in opened.batches.each(CellsWanted(batch=name)):
            await lease.check()
            # A cell may have failed before its session was there.
            if await opened.get(row.session) is not None:
                await opened.delete(row.session)
        # The row goes last: a kill in between leaves something that can be deleted again.
        await lease.delete()


delete_batch = in_background(adelete_batch)
