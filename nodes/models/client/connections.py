"""The clients of each event loop, whose HTTP connections are closed when it ends."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from weakref import WeakKeyDictionary

# An HTTP connection belongs to the event loop it was made in, so each loop has its own clients.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()


def made_in(loop: asyncio.AbstractEventLoop) -> dict[object, Any]:
    """Give the loop's cache of clients."""
    return _clients.setdefault(loop, {})


async def close_with_loop() -> None:
    """Have the connections of the running event loop closed when it ends."""
    cached = made_in(asyncio.get_running_loop())
    if _CLOSING not in cached:
        cached[_CLOSING] = _open_until_closed(cached)
        await anext(cached[_CLOSING])


_CLOSING = "closing"


async def _open_until_closed(cached: dict[object, Any]) -> AsyncGenerator[None, None]:
    """Close the connections when the loop, at its end, closes this generator."""
    try:
        yield
    finally:
        connections = [cached[is_child] for is_child in (False, True) if is_child in cached]
        cached.clear()
        for connection in connections:
            await connection.aclose()
