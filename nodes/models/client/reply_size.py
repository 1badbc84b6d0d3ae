"""The limit on the size of a reply, while it is read and unpacked.

httpx unpacks a body in pieces of at most 1 MiB, so a small body that unpacks to a huge one is
stopped after a piece.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import httpx2

from .server_replies import TooLargeReplyError

LIMIT: Final = "duologue.max_reply_size"
"""Key in a request's extensions: the maximum size of its reply, in bytes."""

_MOST_CODINGS: Final = 5
"""How many times a body may be packed; httpx has the same limit."""


def limit_reply(response: httpx2.Response, limit: int) -> None:
    """Replace a response's body with its unpacked bytes, and refuse more than `limit` of them.

    Each layer of packing is limited, and so are the bytes that the server sends.

    Raises:
        TooLargeReplyError: The head announces more.
        httpx2.DecodingError: The body is packed too many times.
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
        raise httpx2.DecodingError(f"it is packed {len(codings)} times", request=request)
    stream = _Limited(stream, limit, status)
    for coding in reversed(codings):
        stream = _Limited(_Unpacked(stream, coding, request), limit, status)
    # Else httpx would unpack the body once more.
    response.headers.pop("content-encoding", None)
    response.stream = stream


class _Limited(httpx2.AsyncByteStream):
    """A body that may have so many bytes and no more."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, status: int | None) -> None:
        self._stream = stream
        self._limit = limit
        self._status = status
        self._read = 0
        self._has_begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # OpenAI's client reads what follows the last event in a second loop, and needs none of it.
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
    """A body without one layer of its packing."""

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
