"""Endpoints, and the clients of each event loop.

The connections of the clients are closed when the event loop ends.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet


@dataclass(frozen=True)
class Endpoint:
    """A server with OpenAI's API."""

    url: str | None = field(repr=False)
    """Address of the server. OpenAI's own if None."""
    key: str = field(repr=False)
    """The API key to send."""
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    """The server's name for the output token limit."""
    shown: str | None = None
    """Address of the server in errors, without secrets. None if the server is a child of this
    process.
    """
    max_tokens: int | None = None
    """Output token limit of calls that set none. The server's limit if None."""
    uses_proxies: bool = True
    """Whether requests use the proxies of the environment."""


# An HTTP connection belongs to the event loop that opened it, so each loop has its own clients.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()


def clients_of_loop(loop: asyncio.AbstractEventLoop) -> dict[object, Any]:
    """Return the cache of an event loop's clients."""
    return _clients.setdefault(loop, {})


async def close_pool_with_loop(pool: object) -> None:
    """Arrange that a pool of connections is closed when the running event loop ends."""
    await close_with_loop()
    clients_of_loop(asyncio.get_running_loop()).setdefault(_POOLS, WeakSet()).add(pool)


async def close_with_loop() -> None:
    """Arrange that the connections of the running event loop are closed when it ends."""
    cached = clients_of_loop(asyncio.get_running_loop())
    if _CLOSING not in cached:
        cached[_CLOSING] = _open_until_closed(cached)
        await anext(cached[_CLOSING])


_CLOSING = "closing"
_POOLS = "pools"


async def _open_until_closed(cached: dict[object, Any]) -> AsyncGenerator[None, None]:
    """Close the connections when the loop, at its end, closes this generator."""
    try:
        yield
    finally:
        connections = [cached[uses] for uses in (True, False) if uses in cached]
        connections += cached.get(_POOLS, ())
        cached.clear()
        for connection in connections:
            await connection.aclose()
