"""One open store for all in this process that use the same address on the same event loop."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from .base import Store, settled


class _Shared:
    """An open store, or one that is being opened, and how many use it."""

    def __init__(self, make: Callable[[], Store]) -> None:
        # A task of its own: the first user may be cancelled while others wait for it.
        self.opening = asyncio.create_task(_opened(make))
        self.users = 0

    async def close(self) -> None:
        """Close the store, or give up opening it."""
        self.opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            store = await self.opening
            await store.close()


async def _opened(make: Callable[[], Store]) -> Store:
    store = make()
    try:
        await store.open()
    except BaseException:
        await settled(store.close())
        raise
    return store


_OPEN: dict[tuple[str, asyncio.AbstractEventLoop], _Shared] = {}
# Kept, because a forked child must not close the SQLite connections that it inherits.
_OF_THE_PARENT: list[object] = []


def _begin_anew() -> None:
    _OF_THE_PARENT.extend(_OPEN.values())
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@asynccontextmanager
async def shared(address: str, make: Callable[[], Store]) -> AsyncIterator[Store]:
    """Use the open store at an address; the first user opens it, the last closes it."""
    key = address, asyncio.get_running_loop()
    store = _OPEN.get(key)
    if store is None:
        store = _OPEN[key] = _Shared(make)
    store.users += 1
    try:
        yield await asyncio.shield(store.opening)
    finally:
        store.users -= 1
        # In a forked child it is the parent's.
        if not store.users and _OPEN.get(key) is store:
            del _OPEN[key]
            await settled(store.close())
