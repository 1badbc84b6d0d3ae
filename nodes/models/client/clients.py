"""Clients for OpenAI's API, created once per event loop, and the HTTP client below them.

This module imports OpenAI's client, so adapters import it in a thread when they need a client.

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
import json
import re
import ssl
import sys
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final

import httpx2
import openai
from pydantic import SecretStr

from ....graphs.common.addresses import OPENAI, remember_secrets
from ....graphs.common.errors import ModelUnavailableError
from ....graphs.common.sanitize import escape_invisible, excerpt
from ....graphs.common.settings import MAX_REPLY_SIZE, Settings
from ..connections import Endpoint, clients_of_loop, close_with_loop
from .chat_model import ChatModel
from .failures import TooLargeReplyError, UnreadableReplyError, address_of, failures, repeat_call
from .reply_reader import model_names

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
    """

    def __init__(self, **options: Any) -> None:  # httpx's own
        most = _most_connections()
        verify = httpx2.create_ssl_context(trust_env=options.get("trust_env", True))
        super().__init__(
            event_hooks={"response": [_limit]},
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


_CONNECT_SECONDS = 10.0

_making = threading.Lock()


class ApiClient(openai.AsyncOpenAI):
    """OpenAI's client with a size limit for replies. Its user agent is that of the stock client.

    Args:
        max_reply_size: The maximum size of a reply, in bytes.
        options: The options of `openai.AsyncOpenAI`.
    """

    def __init__(
        self,
        *,
        max_reply_size: int = MAX_REPLY_SIZE,
        **options: Any,  # as in the base class
    ) -> None:
        super().__init__(**options)
        self._max_reply_size = max_reply_size

    async def _prepare_request(self, request: httpx2.Request) -> None:
        request.extensions = {**request.extensions, LIMIT: self._max_reply_size}
        await super()._prepare_request(request)

    @property
    def user_agent(self) -> str:
        """The stock client's user agent, since some gateways accept only known clients."""
        return super().user_agent.replace(type(self).__name__, openai.AsyncOpenAI.__name__, 1)


def _http(loop: asyncio.AbstractEventLoop, *, uses_proxies: bool) -> HttpClient:
    """Return the loop's HTTP client."""
    cached = clients_of_loop(loop)
    if uses_proxies not in cached:
        cached[uses_proxies] = HttpClient(trust_env=uses_proxies)
    found: HttpClient = cached[uses_proxies]
    return found


def _api(settings: Settings, url: str | None, key: str, http: HttpClient) -> ApiClient:
    remember_secrets(url or "")
    return ApiClient(
        api_key=key,
        # OpenAI's client would read its variable, even a blank one.
        base_url=url or OPENAI,
        timeout=_timeout(settings),
        # `repeat_call` repeats calls.
        max_retries=0,
        http_client=http,
        max_reply_size=settings.max_reply_size,
    )


def make_client(
    loop: asyncio.AbstractEventLoop, settings: Settings, endpoint: Endpoint, name: str
) -> ChatModel:
    """Return the client of one model, and create it at the first use. Reads files, so it blocks.

    Args:
        loop: The event loop that calls the model.
        settings: The limits on calls.
        endpoint: The server.
        name: The server's name for the model.
    """
    place = (endpoint, name, settings.timeout, settings.max_retries, settings.max_reply_size)
    with _making, failures(name, endpoint.shown):
        http = _http(loop, uses_proxies=endpoint.uses_proxies)
        cached = clients_of_loop(loop)
        if place not in cached:
            api = _api(settings, endpoint.url, endpoint.key, http)
            cached[place] = ChatModel(
                model=name,
                base_url=endpoint.url or OPENAI,
                api_key=SecretStr(endpoint.key),
                timeout=_timeout(settings),
                max_retries=settings.max_retries,
                max_tokens=endpoint.max_tokens,
                stream_usage=True,
                limit_name=endpoint.limit_name,
                # The timeout above already limits the time between pieces.
                stream_chunk_timeout=None,
                root_async_client=api,
                async_client=api.chat.completions,
                http_socket_options=(),
            )
        found: ChatModel = cached[place]
        return found


def _timeout(settings: Settings) -> openai.Timeout:
    # Waiting for a free connection has no limit, since the server does not cause it.
    connect = min(_CONNECT_SECONDS, settings.timeout)
    return openai.Timeout(settings.timeout, connect=connect, pool=None)


async def fetch_model_names(settings: Settings, notify: Callable[[str], None]) -> list[str]:
    """Return the names of a server's models."""
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    loop = asyncio.get_running_loop()
    await close_with_loop()

    def make() -> ApiClient:
        with _making:
            return _api(settings, settings.base_url, key, _http(loop, uses_proxies=True))

    address = address_of(settings)
    with failures("models", address):
        asking = await asyncio.to_thread(make)
        try:
            # OpenAI's own `models.list` raises TypeError if the reply is not a list of models.
            found = await repeat_call(
                lambda: asking.get("/models", cast_to=object),
                label="models",
                address=address,
                retries=settings.max_retries,
                notify=notify,
            )
            names = model_names(found)
        except openai.NotFoundError as error:
            raise _no_list(address, "404") from error
        except TooLargeReplyError:
            raise
        except UnreadableReplyError as error:
            raise _no_list(address, str(error)) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _no_list(address, f"the reply is not JSON: {error}") from error
        # A name with invisible characters can't be typed by a user.
        return [name for name in names if escape_invisible(name) == name]


def _no_list(address: str, why: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"the model server at {address} does not list its models ({excerpt(why)}); check its "
        "address, which usually ends in /v1, or name a model"
    )
