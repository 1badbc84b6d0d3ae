"""The HTTP client below OpenAI's: its connections, and limits for the size and time of a reply.

- httpx's timeout restarts with each byte. A server that sends white space now and then would never
  time out.
- A call occupies a connection, so many conversations at once could use up the process's file
  descriptors. A pool of httpx checks all of its connections at every request. With 500
  conversations at once, these checks take as long as the rest of a call. Therefore there are
  several small pools.
- httpx decompresses a body in pieces of at most 1 MiB, so the size of a small body that becomes
  huge when it is decompressed can be checked after each piece.
"""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from enum import IntEnum
from typing import Any, Final

import httpx2
import openai

from ....graphs.common.settings import MAX_REPLY_SIZE
from ..gate import tell_try, through_gate
from ..refusals import read_retry_seconds
from ..reported_errors import NO_CREDIT, lacks_credit, read_wait
from .server_replies import TooLargeReplyError

LIMIT: Final = "duologue.max_reply_size"
"""Key in a request's extensions: the reply's maximum size, in bytes."""

_MOST_CODINGS: Final = 5
"""Maximum number of compression layers of a body. httpx has the same limit."""


def limit_reply(response: httpx2.Response, limit: int) -> None:
    """Replace a response's body with its decompressed bytes, and refuse more than `limit` of them.

    The limit applies to each compression layer, and to the bytes that the server sends.

    Raises:
        TooLargeReplyError: The header announces a larger body.
        httpx2.DecodingError: The body has too many compression layers.
    """
    stream, request = response.stream, response.request
    if not isinstance(stream, httpx2.AsyncByteStream):
        return
    status = response.status_code if response.is_error else None
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise TooLargeReplyError(limit, status)
    codings = response.headers.get_list("content-encoding", split_commas=True)
    if len(codings) > _MOST_CODINGS:
        raise httpx2.DecodingError(f"it has {len(codings)} layers of compression", request=request)
    stream = _Limited(stream, limit, status)
    for coding in reversed(codings):
        stream = _Limited(_Unpacked(stream, coding, request), limit, status)
    # Otherwise httpx would decompress the body again.
    response.headers.pop("content-encoding", None)
    response.stream = stream


class _Limited(httpx2.AsyncByteStream):
    """A body with a limited number of bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, status: int | None) -> None:
        self._stream = stream
        self._limit = limit
        self._status = status
        self._read = 0
        self._has_begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # OpenAI's client reads the bytes after the last event in a second loop, and ignores them.
        is_rest, self._has_begun = self._has_begun, True
        async for part in self._stream:
            self._read += len(part)
            if self._read > self._limit:
                if is_rest:
                    return
                raise TooLargeReplyError(self._limit, self._status)
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Unpacked(httpx2.AsyncByteStream):
    """A body from which one compression layer is removed."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, coding: str, request: httpx2.Request
    ) -> None:
        self._stream = stream
        self._packed = httpx2.Response(
            200, headers={"content-encoding": coding}, stream=stream, request=request
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._packed.aiter_bytes()) as parts:
            async for part in parts:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


_EACH = 32
"""Maximum number of connections per pool."""


class Pools(httpx2.AsyncBaseTransport):
    """A transport that sends each request through the first pool with a free connection.

    A client with few requests therefore opens few connections. If all connections are in use,
    further requests wait.
    """

    def __init__(self, most: int, verify: ssl.SSLContext) -> None:
        whole, rest = divmod(most, _EACH)
        sizes = [_EACH] * whole + ([rest] if rest else [])
        self._pools = [_Pool(size, verify) for size in sizes]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Called by httpx."""
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
        """Number of running requests."""

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
    """A response's body that frees its connection when it is closed."""

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


_MOST_CONNECTIONS = 1000

_STREAMS = "duologue.streams"
"""Key in a request's extensions: whether its answer is read event by event."""

_MOST_TIMEOUTS = 10
"""Maximum time without an event, as a multiple of the read timeout. Until then comments keep a
stream alive.
"""


class _Heard(IntEnum):
    """Meaning of a part of a response body."""

    NOTHING = 0
    ALIVE = 1
    """The server is at work. Many servers send comments while a prompt is queued."""
    EVENT = 2


class HttpClient(openai.DefaultAsyncHttpxClient):
    """OpenAI's HTTP client with a read timeout for a whole header, and for a whole body or event.

    If all connections are in use, further calls wait.
    """

    def __init__(self, **options: Any) -> None:  # httpx's own
        most = _most_connections()
        verify = httpx2.create_ssl_context(trust_env=options.get("trust_env", True))
        super().__init__(
            event_hooks={"request": [tell_try], "response": [_limit]},
            limits=httpx2.Limits(max_connections=most, max_keepalive_connections=most),
            verify=verify,
            **options,
        )
        # Passed as an argument, the transport would switch off the proxies of the environment.
        self._transport = Pools(most, verify)

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,  # httpx's own
    ) -> httpx2.Response:
        """Send a request, as in httpx."""
        request.extensions = {**request.extensions, _STREAMS: stream}
        send = super().send

        async def send_once() -> httpx2.Response:
            # Not in a hook, since hooks are also called for each redirect.
            async with _header_limit(request):
                response = await send(request, stream=stream, **options)
            if response.status_code in _EXPLAINED:
                await _read_error(response)
            return response

        return await through_gate(send_once)


@asynccontextmanager
async def _header_limit(request: httpx2.Request) -> AsyncIterator[None]:
    """Limit the time between a request and the whole header of its response."""
    seconds = request.extensions.get("timeout", {}).get("read")
    loop = asyncio.get_running_loop()

    async def trace(event: str, info: object) -> None:
        if seconds is not None and event.endswith(".receive_response_headers.started"):
            limit.reschedule(loop.time() + seconds)
        elif event.endswith(".receive_response_headers.complete"):
            limit.reschedule(None)

    request.extensions = {**request.extensions, "trace": trace}
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError as error:
        raise httpx2.ReadTimeout(f"was silent for {seconds:g} s", request=request) from error


_EXPLAINED: Final = (400, 403, 429, 503, 529)
"""HTTP statuses of errors whose body may say that credit is lacking, or how long to wait."""


async def _read_error(response: httpx2.Response) -> None:
    """Set the status and the wait that an error states in its body.

    OpenAI's client and a gate only look at the status and the headers.
    """
    await response.aread()
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return
    if lacks_credit(body):
        response.status_code = NO_CREDIT
    elif read_retry_seconds(response.headers) is None and (seconds := read_wait(body)) is not None:
        response.headers["retry-after"] = f"{seconds:g}"


def _most_connections() -> int:
    """Return half of the process's limit of open files, which leaves room for stores and others."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else max(1, min(_MOST_CONNECTIONS, soft // 2))


async def _limit(response: httpx2.Response) -> None:
    """Limit the size and the time of a response after its header has arrived.

    httpx calls this hook for each redirect, too.
    """
    extensions = response.request.extensions
    limit_reply(response, extensions.get(LIMIT, MAX_REPLY_SIZE))
    seconds = extensions.get("timeout", {}).get("read")
    stream = response.stream
    if seconds is not None and isinstance(stream, httpx2.AsyncByteStream):
        heard = None
        if extensions.get(_STREAMS) and response.is_success:
            heard = _Lines().heard
        response.stream = _TimedStream(stream, seconds, response.request, heard)


class _TimedStream(httpx2.AsyncByteStream):
    """A response body with a time limit."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        seconds: float,
        request: httpx2.Request,
        heard: Callable[[bytes], _Heard] | None,
    ) -> None:
        self._stream = stream
        self._seconds = seconds
        self._request = request
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        parts = aiter(self._stream)
        # Seconds until the next sign of life, and until the next event.
        left, most = self._seconds, self._seconds * _MOST_TIMEOUTS
        while True:
            began = clock()
            try:
                async with asyncio.timeout(min(left, most)):
                    part = await anext(parts, None)
            except TimeoutError as error:
                words = f"was silent for {self._seconds:g} s"
                if most < left:
                    words = f"sent only comments for {self._seconds * _MOST_TIMEOUTS:g} s"
                raise httpx2.ReadTimeout(words, request=self._request) from error
            if part is None:
                return
            # Only the server's time counts, not the reader's.
            took = clock() - began
            left, most = left - took, most - took
            heard = self._heard(part) if self._heard is not None else _Heard.NOTHING
            if heard >= _Heard.ALIVE:
                left = self._seconds
            if heard == _Heard.EVENT:
                most = self._seconds * _MOST_TIMEOUTS
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Lines:
    """A reader of the lines in an event stream."""

    def __init__(self) -> None:
        self._begun = b""
        """The first character of the incomplete line. Empty if the last line is complete."""

    def heard(self, part: bytes) -> _Heard:
        """Return the meaning of the lines that end in the next part. White space means nothing."""
        *lines, rest = (line.lstrip() for line in re.split(rb"[\r\n]", self._begun + part))
        self._begun = rest[:1]
        heard = (_Heard.ALIVE if line.startswith(b":") else _Heard.EVENT for line in lines if line)
        return max(heard, default=_Heard.NOTHING)
