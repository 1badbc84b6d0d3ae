"""Where calls go, and the clients of each event loop, whose connections are closed when it ends."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakKeyDictionary


@dataclass(frozen=True)
class Endpoint:
    """A server that speaks OpenAI's API."""

    url: str | None
    """Its address. None: OpenAI's own."""
    key: str = field(repr=False)
    """The key that it is sent."""
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    """Its name for the longest answer."""
    shown: str | None = None
    """Its address in errors, without a password. None: it is a child of this process."""
    max_tokens: int | None = None
    """The longest answer of calls that set none, in tokens. None: the server's own limit."""
    uses_proxies: bool = True
    """Whether requests go through the proxies that the environment names."""


# An HTTP connection belongs to the event loop it was made in, so each loop has its own clients.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()


def clients_of_loop(loop: asyncio.AbstractEventLoop) -> dict[object, Any]:
    """Return the loop's cache of clients."""
    return _clients.setdefault(loop, {})


async def close_with_loop() -> None:
    """Have the connections of the running event loop closed when it ends."""
    cached = clients_of_loop(asyncio.get_running_loop())
    if _CLOSING not in cached:
        cached[_CLOSING] = _open_until_closed(cached)
        await anext(cached[_CLOSING])


_CLOSING = "closing"


async def _open_until_closed(cached: dict[object, Any]) -> AsyncGenerator[None, None]:
    """Close the connections when the loop, at its end, closes this generator."""
    try:
        yield
    finally:
        connections = [cached[uses] for uses in (True, False) if uses in cached]
        cached.clear()
        for connection in connections:
            await connection.aclose()
