"""HTTP connections in several small pools.

A pool of httpx looks at each of its connections at every request: with 500 conversations at once
that costs as much as all the rest of a call.
"""

import ssl
from collections.abc import AsyncIterator, Callable

import httpx2

_EACH = 32
"""The connections of a pool, at most."""


class Pools(httpx2.AsyncBaseTransport):
    """Sends each request through the first pool with room, so that a lone one has few connections.

    Calls beyond the most connections wait for one.
    """

    def __init__(self, most: int, verify: ssl.SSLContext) -> None:
        whole, rest = divmod(most, _EACH)
        sizes = [_EACH] * whole + ([rest] if rest else [])
        self._pools = [_Pool(size, verify) for size in sizes]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, as httpx asks for it."""
        free = (pool for pool in self._pools if pool.taken < pool.size)
        pool = next(free, None) or min(self._pools, key=lambda one: one.taken / one.size)
        return await pool.send(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.transport.aclose()


class _Pool:
    def __init__(self, size: int, verify: ssl.SSLContext) -> None:
        limits = httpx2.Limits(max_connections=size, max_keepalive_connections=size)
        self.transport = httpx2.AsyncHTTPTransport(verify=verify, limits=limits)
        self.size = size
        self.taken = 0
        """Requests that are under way."""

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        self.taken += 1
        try:
            response = await self.transport.handle_async_request(request)
        except BaseException:
            self._free()
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  # of such a transport
        response.stream = _Freeing(response.stream, self._free)
        return response

    def _free(self) -> None:
        self.taken -= 1


class _Freeing(httpx2.AsyncByteStream):
    """A response's body; its connection is free once it is closed."""

    def __init__(self, stream: httpx2.AsyncByteStream, free: Callable[[], None]) -> None:
        self._stream = stream
        self._free: Callable[[], None] | None = free

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        free, self._free = self._free, None
        try:
            await self._stream.aclose()
        finally:
            if free is not None:
                free()
