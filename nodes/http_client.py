"""The HTTP client under OpenAI's: how many connections it has, and how long a body may take.

httpx's timeout begins anew with each byte, so a server that sends white space now and then would be
waited for without end. And it takes a connection for each call that is under way, so many
conversations at once would use up the process's file descriptors.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import openai

from duologue.nodes.retries import tell_try

_MOST_CONNECTIONS = 1000

_STREAMS = "duologue.streams"
"""Stands in a request's extensions: whether its answer is read event by event."""


class HttpClient(openai.DefaultAsyncHttpxClient):
    """OpenAI's HTTP client whose read timeout holds for a body, and for each event of a stream.

    Calls beyond its most connections wait for one.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # httpx's own
        most = _most_connections()
        limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
        super().__init__(
            event_hooks={"request": [tell_try], "response": [_time]}, limits=limits, **options
        )

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,  # noqa: ANN401  # httpx's own
    ) -> httpx2.Response:
        """Send a request, as in httpx."""
        request.extensions = {**request.extensions, _STREAMS: stream}
        return await super().send(request, stream=stream, **options)


def _most_connections() -> int:
    """Half of what the process may open, so that stores and the like find room beside it."""
    if sys.platform == "win32":
        return _MOST_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else max(1, min(_MOST_CONNECTIONS, soft // 2))


async def _time(response: httpx2.Response) -> None:
    """Put the time limit on a response whose head has come; redirects are such responses, too."""
    extensions = response.request.extensions
    seconds = extensions.get("timeout", {}).get("read")
    stream = response.stream
    if seconds is not None and isinstance(stream, httpx2.AsyncByteStream):
        says = None
        if extensions.get(_STREAMS) and response.is_success:
            is_packed = "content-encoding" in response.headers
            says = (lambda _: True) if is_packed else _Lines().say_something
        response.stream = _TimedStream(stream, seconds, response.request, says)


class _TimedStream(httpx2.AsyncByteStream):
    """A body that must be there in time.

    Args:
        stream: The body.
        seconds: How long it may take, or a part of it that says something.
        request: What was asked, for the error.
        says: Tells of a part of it whether it says something, so that the time begins anew. None:
            all of it must be there in time.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        seconds: float,
        request: httpx2.Request,
        says: Callable[[bytes], bool] | None,
    ) -> None:
        self._stream = stream
        self._seconds = seconds
        self._request = request
        self._says = says

    async def __aiter__(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        parts = aiter(self._stream)
        left = self._seconds
        while True:
            began = clock()
            try:
                async with asyncio.timeout(left):
                    part = await anext(parts, None)
            except TimeoutError as error:
                slow = httpx2.ReadTimeout("the body takes too long", request=self._request)
                raise slow from error
            if part is None:
                return
            if self._says is not None and self._says(part):
                left = self._seconds
            else:
                left -= clock() - began
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Lines:
    """The lines of a stream of events: white space says nothing, and comments neither."""

    def __init__(self) -> None:
        self._begun = b""
        """The first sign of the line that is under way."""

    def say_something(self, part: bytes) -> bool:
        """Whether a line that says something ends in the next part."""
        *lines, rest = (line.lstrip() for line in re.split(rb"[\r\n]", self._begun + part))
        self._begun = rest[:1]
        return any(line and not line.startswith(b":") for line in lines)
