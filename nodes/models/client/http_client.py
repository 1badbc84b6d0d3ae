"""The HTTP client under OpenAI's: how many connections it has, and how long a body may take.

How large a body may be is in `nodes.models.client.reply_size`.

httpx's timeout begins anew with each byte, so a server that sends white space now and then would be
waited for without end. And it takes a connection for each call that is under way, so many
conversations at once would use up the process's file descriptors.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from enum import IntEnum
from typing import Any

import httpx2
import openai

from ....graphs.common.settings import MAX_REPLY_SIZE
from .pools import Pools
from .reply_size import LIMIT, limit_reply
from .retries import tell_try, through_gate

_MOST_CONNECTIONS = 1000

_STREAMS = "duologue.streams"
"""Stands in a request's extensions: whether its answer is read event by event."""

_MOST_TIMEOUTS = 10
"""How many read timeouts a server may keep a stream alive by comments before it sends an event."""


class _Heard(IntEnum):
    """What a part of a response body tells about the server."""

    NOTHING = 0
    ALIVE = 1
    """It is at work: many send comments while a prompt waits for its turn."""
    EVENT = 2


class HttpClient(openai.DefaultAsyncHttpxClient):
    """OpenAI's HTTP client whose read timeout holds for a body, and for each event of a stream.

    Calls beyond its most connections wait for one.
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
        # Given as an argument, it would switch off the proxies that the environment names.
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
        # Here, and not in a hook: those are called for each redirect as well.
        send = super().send
        return await through_gate(lambda: send(request, stream=stream, **options))


def _most_connections() -> int:
    """Half of what the process may open, so that stores and the like find room beside it."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else max(1, min(_MOST_CONNECTIONS, soft // 2))


async def _limit(response: httpx2.Response) -> None:
    """Limit the size and the time of a response whose head has come.

    It is called for each redirect as well.
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
        # Until the server must be heard of, and until it must send an event.
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
            # Only the time that the server takes counts, not that of the reader.
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
    """The lines of a stream of events."""

    def __init__(self) -> None:
        self._begun = b""
        """The first sign of the line that is under way."""

    def heard(self, part: bytes) -> _Heard:
        """Tell what is heard in the lines that end in the next part: white space is nothing."""
        *lines, rest = (line.lstrip() for line in re.split(rb"[\r\n]", self._begun + part))
        self._begun = rest[:1]
        heard = (_Heard.ALIVE if line.startswith(b":") else _Heard.EVENT for line in lines if line)
        return max(heard, default=_Heard.NOTHING)
