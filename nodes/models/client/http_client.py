"""The HTTP client below the clients for OpenAI's API, and requests for chat completions through it.

- httpx's timeout restarts with each byte. A server that sends white space now and then would never
  time out.
- A call occupies a connection, so many conversations at once could use up the process's file
  descriptors. A pool of httpx checks all connections at every request. With 500
  conversations at once, these checks take as long as the rest of a call. Therefore there are
  several small pools.
- httpx decompresses a body in pieces of at most 1 MiB, so the size of a small body that becomes
  huge when it is decompressed can be checked after each piece.
"""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import httpx2
import openai
import orjson
from openai._models import FinalRequestOptions
from openai._utils._json import openapi_dumps

from .failures import TooLargeReplyError

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
    limit_size = partial(_limit_size, limit=limit, status=status)
    stream = _Body(stream, limit_size)
    for coding in reversed(codings):
        unpack = partial(_unpack, coding=coding, request=request)
        stream = _Body(_Body(stream, unpack), limit_size)
    # Otherwise httpx would decompress the body again.
    response.headers.pop("content-encoding", None)
    response.stream = stream


class _Body(httpx2.AsyncByteStream):
    """A response's body whose parts pass through a generator."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        read: Callable[[httpx2.AsyncByteStream], AsyncIterator[bytes]],
    ) -> None:
        self._stream = stream
        self._read = read
        self._has_begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # OpenAI's client reads the bytes after the last event in a second loop, and ignores them.
        is_rest, self._has_begun = self._has_begun, True
        try:
            async for part in self._read(self._stream):
                yield part
        except TooLargeReplyError:
            if not is_rest:
                raise

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit_size(
    parts: AsyncIterable[bytes], limit: int, status: int | None
) -> AsyncIterator[bytes]:
    """Yield the parts of a body, up to a number of bytes."""
    size = 0
    async for part in parts:
        size += len(part)
        if size > limit:
            raise TooLargeReplyError(limit, status)
        yield part


async def _unpack(
    body: httpx2.AsyncByteStream, coding: str, request: httpx2.Request
) -> AsyncIterator[bytes]:
    """Yield the parts of a body without one compression layer."""
    headers = {"content-encoding": coding}
    packed = httpx2.Response(200, headers=headers, stream=body, request=request)
    async with aclosing(packed.aiter_bytes()) as parts:
        async for part in parts:
            yield part


_EACH = 32
"""Maximum number of connections per pool."""


class Pools(httpx2.AsyncBaseTransport):
    """A transport that sends each request through the first pool with a free connection.

    A client with few requests therefore opens few connections. If all connections are in use,
    further requests wait.
    """

    def __init__(self, most: int, verify: ssl.SSLContext) -> None:
        self._each = each = min(_EACH, most)
        limits = httpx2.Limits(max_connections=each, max_keepalive_connections=each)
        self._pools = [
            httpx2.AsyncHTTPTransport(verify=verify, limits=limits) for _ in range(most // each)
        ]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Called by httpx."""
        free = (pool for pool in self._pools if _count_requests(pool) < self._each)
        pool = next(free, None) or min(self._pools, key=_count_requests)
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.aclose()


def _count_requests(pool: httpx2.AsyncHTTPTransport) -> int:
    """Return the number of a pool's running requests, up to the end of each response."""
    return len(pool._pool._requests)


_MOST_CONNECTIONS = 1000

_STREAMS = "duologue.streams"
"""Key in a request's extensions: whether its answer is read event by event."""

_MOST_TIMEOUTS = 10
"""Maximum time without an event, as a multiple of the read timeout. Until then comments keep a
stream alive.
"""


class HttpClient(openai.DefaultAsyncHttpxClient):
    """OpenAI's HTTP client with a read timeout for a whole header, and for a whole body or event.

    If all connections are in use, further calls wait.

    Args:
        max_reply_size: The maximum size of a reply, in bytes.
        options: The options of httpx's client.
    """

    def __init__(self, max_reply_size: int, **options: Any) -> None:
        most = _most_connections()
        verify = httpx2.create_ssl_context(trust_env=options.get("trust_env", True))
        super().__init__(
            event_hooks={"response": [partial(_limit, most=max_reply_size)]},
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
        # Not in a hook, since hooks are also called for each redirect.
        async with _header_limit(request):
            return await super().send(request, stream=stream, **options)


@asynccontextmanager
async def _header_limit(request: httpx2.Request) -> AsyncIterator[None]:
    """Limit the time between a request and the whole header of the response."""
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


def _most_connections() -> int:
    """Return half of the process's limit of open files, which leaves room for stores and others."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else max(1, min(_MOST_CONNECTIONS, soft // 2))


async def _limit(response: httpx2.Response, most: int) -> None:
    """Limit the size and the time of a response after its header has arrived.

    httpx calls this hook for each redirect, too.
    """
    extensions = response.request.extensions
    limit_reply(response, most)
    seconds = extensions.get("timeout", {}).get("read")
    stream = response.stream
    if seconds is not None and isinstance(stream, httpx2.AsyncByteStream):
        has_events = bool(extensions.get(_STREAMS)) and response.is_success
        limit_time = partial(
            _limit_time, request=response.request, seconds=seconds, has_events=has_events
        )
        response.stream = _Body(stream, limit_time)


async def _limit_time(
    body: AsyncIterable[bytes], request: httpx2.Request, seconds: float, *, has_events: bool
) -> AsyncIterator[bytes]:
    """Yield the parts of a body, which may take some seconds, or as long for each event.

    Comments keep a stream alive, since many servers send them while a prompt is queued.
    """
    clock, parts = asyncio.get_running_loop().time, aiter(body)
    # Seconds until the next line, and until the next line of an event.
    left, most = seconds, seconds * _MOST_TIMEOUTS
    # The first character of the incomplete line. Empty if the last line is complete.
    begun = b""
    while True:
        began = clock()
        try:
            async with asyncio.timeout(min(left, most)):
                part = await anext(parts, None)
        except TimeoutError as error:
            words = f"was silent for {seconds:g} s"
            if most < left:
                words = f"sent only comments for {seconds * _MOST_TIMEOUTS:g} s"
            raise httpx2.ReadTimeout(words, request=request) from error
        if part is None:
            return
        # Only the server's time counts, not the reader's.
        took = clock() - began
        left, most = left - took, most - took
        if has_events:
            # White space means nothing.
            *lines, rest = (line.lstrip() for line in re.split(rb"[\r\n]", begun + part))
            begun = rest[:1]
            if any(lines):
                left = seconds
            if any(line and not line.startswith(b":") for line in lines):
                most = seconds * _MOST_TIMEOUTS
        yield part


_PATH: Final = "/chat/completions"

_RAW_RESPONSE: Final = {"X-Stainless-Raw-Response": "true"}
"""A header that the stock `ChatOpenAI` sends with a request whose answer is not streamed."""

_BROKEN: Final = (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream)
"""Errors of a connection. httpx does not convert all errors of TLS:
https://github.com/pydantic/httpx2/issues/854.
"""


async def request_completion(
    client: openai.AsyncOpenAI, payload: Mapping[str, Any], *, stream: bool
) -> httpx2.Response:
    """Request a chat completion as OpenAI's client does. The body of a stream is not read.

    The client's own `post` makes a new request of the same parts for each call, which takes several
    times as long.

    Args:
        client: The client.
        payload: The request, with ``extra_body`` and ``extra_headers`` if there are any.
        stream: Whether the answer is read event by event.

    Raises:
        openai.APIError: The connection fails, or the server answers with an error.
    """
    body = {**payload}
    extra_headers = body.pop("extra_headers", None) or {}
    body |= body.pop("extra_body", None) or {}
    if is_patched(type(client).request, "openai._base_client"):
        # Inspect's agent bridge takes the calls of OpenAI's client over.
        answer: Any = await client.post(
            _PATH,
            cast_to=object,
            body=body,
            options={"headers": _own_headers(extra_headers, stream=stream)},
            stream=stream,
            stream_cls=openai.AsyncStream[object],
        )
        found: httpx2.Response = answer.response if stream else answer.http_response
        return found
    url, headers = _find_parts(client, extra_headers, stream=stream)
    request = httpx2.Request(
        "POST",
        url,
        headers=headers,
        cookies=client._client.cookies,
        content=_dump(body),
        extensions={"timeout": httpx2.Timeout(client.timeout).as_dict()},
    )
    await client._prepare_request(request)
    try:
        response = await client._client.send(request, stream=stream)
    except httpx2.TimeoutException as error:
        raise openai.APITimeoutError(request=request) from error
    except _BROKEN as error:
        raise openai.APIConnectionError(request=request) from error
    if not response.is_success:
        await response.aread()
        raise client._make_status_error_from_response(response)
    return response


_parts: Final[WeakKeyDictionary[object, dict[bool, tuple[httpx2.URL, httpx2.Headers]]]] = (
    WeakKeyDictionary()
)
"""The address and the headers of requests without extra headers, by client and ``stream``."""


def _find_parts(
    client: openai.AsyncOpenAI, extra: Mapping[str, str], *, stream: bool
) -> tuple[httpx2.URL, httpx2.Headers]:
    """Return the address and the headers of a request."""
    known = _parts.setdefault(client, {})
    if extra or stream not in known:
        own = _own_headers(extra, stream=stream)
        options = FinalRequestOptions.construct(method="post", url=_PATH, headers=own)
        headers = httpx2.Headers(client._client.headers)
        headers.update(client._build_headers(options))
        found = client._prepare_url(_PATH), headers
        if extra:
            return found
        known[stream] = found
    return known[stream]


def _own_headers(extra: Mapping[str, str], *, stream: bool) -> dict[str, str]:
    return {**extra, **({} if stream else _RAW_RESPONSE)}


def is_patched(function: object, module: str) -> bool:
    """Return whether a program has replaced a function of a library, for example to trace calls."""
    return hasattr(function, "__wrapped__") or getattr(function, "__module__", None) != module


def _dump(body: Mapping[str, Any]) -> bytes:
    """Return a request's body as JSON."""
    try:
        return orjson.dumps(body)
    except TypeError:
        # Such as a whole number of more than 64 bits, or an object of pydantic.
        return openapi_dumps(body)
