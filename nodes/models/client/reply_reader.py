"""A reader of HTTP responses with status 200, by their content.

Servers answer a streaming request with plain JSON, a plain request with events, and either with an
error. A failure that a reply reports, or that makes the reply unreadable, is raised like an HTTP
status. All exceptions of this module pass `failed_in_reply`, which knows the module by its name.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, TypeVar

import httpx2
import openai
from openai._streaming import ServerSentEvent

from ..refusals import excerpt_of
from ..reported_errors import read_status
from ..settings import server_at
from .failures import take_repeat
from .server_replies import (
    NoMessageError,
    NoReplyError,
    TooLargeReplyError,
    failure_in,
    fields_of_piece,
    piece_of_reply,
    read_json,
    whole_reply,
)

S = TypeVar("S")
T = TypeVar("T")

_EVENTS: Final = "text/event-stream"
_MARK: Final = b"\xef\xbb\xbf"
"""The byte-order mark of UTF-8, with which some servers begin."""

_FIELD: Final = re.compile(rb":|(?:data|event|id|retry) ?:")
"""The beginning of a stream of events: a comment or a field."""

_LONGEST_FIELD: Final = 7

_DRAIN: Final = 0.1
"""Maximum seconds to wait for the end of a body after its last event."""

_BROKEN: Final = 500
_DOWN: Final = 502
"""HTTP statuses for an API that sends no message, and for a server that sends no JSON."""


class ReplyReader:
    """A reader of one response, with or without events.

    Args:
        response: The response. Its body may have been read.
        client: The client that sent the request.
    """

    def __init__(self, response: httpx2.Response, client: openai.AsyncOpenAI) -> None:
        self.is_unended = False
        """Whether the reply was accepted without a finish reason and without ``[DONE]``."""
        self._response = response
        self._client = client
        self._server = server_at(str(client.base_url))
        self._has_end = False
        self._parts = self._read_body()
        self._begin: bytes | None = None
        """The part of the body by which its form was found."""

    async def is_stream(self) -> bool:
        """Return whether the body is a stream of events."""
        if self._begin is None:
            self._begin = b""
            async for part in self._parts:
                self._begin = (self._begin + part).removeprefix(_MARK).lstrip()
                if len(self._begin) >= _LONGEST_FIELD:
                    break
        if self._begin.startswith((b"{", b"[")):
            return False
        kind = self._response.headers.get("content-type", "").partition(";")[0].strip()
        return kind == _EVENTS or _FIELD.match(self._begin) is not None

    async def read_whole(self) -> dict[str, Any]:
        """Return a reply in plain JSON, in normalized form."""
        parts = [self._begin or b"", *[part async for part in self._parts]]
        reply = self._check(whole_reply, self._call(read_json, b"".join(parts)))
        self._server.has_answered = True
        return reply

    async def read_pieces(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the pieces of a reply in any form, in normalized form.

        A stream without a finish reason and without ``[DONE]`` counts as a broken connection. If
        the repeated call ends so, too, the server is one that sends neither, and its replies are
        accepted as cut off.
        """
        brought = set[str]()
        has_choice = False
        async with aclosing(self._read_objects()) as objects:
            async for found in objects:
                piece = self._check(partial(piece_of_reply, brought=brought), found)
                for choice in piece["choices"]:
                    has_choice = self._server.has_answered = True
                    self._has_end = self._has_end or choice["finish_reason"] is not None
                brought |= fields_of_piece(found)
                yield piece
        if not has_choice:
            raise self._fail("the reply contains no message", _BROKEN)
        if self._has_end:
            return
        if not self._server.sends_no_end and take_repeat():
            broken = httpx2.RemoteProtocolError("the stream has no end")
            raise openai.APIConnectionError(request=self._response.request) from broken
        self._server.sends_no_end = self.is_unended = True

    async def _read_body(self) -> AsyncGenerator[bytes]:
        request = self._response.request
        try:
            async for part in self._response.aiter_bytes():
                yield part
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except httpx2.RequestError as error:
            raise openai.APIConnectionError(request=request) from error

    async def _read_rest(self) -> AsyncGenerator[bytes]:
        yield self._begin or b""
        async for part in self._parts:
            yield part
        # Some servers end the last event without an empty line.
        yield b"\n\n"

    async def _read_objects(self) -> AsyncGenerator[object]:
        """Yield each event, or the whole reply."""
        if not await self.is_stream():
            self._has_end = True
            yield await self.read_whole()
            return
        async for event in self._client._make_sse_decoder().aiter_bytes(self._read_rest()):
            data = event.data.strip()
            if data.startswith("[DONE]"):
                self._has_end = True
                await self._drain()
                return
            if data or event.event == "error":
                yield self._read_event(event)

    def _read_event(self, event: ServerSentEvent) -> object:
        if event.event != "error":
            return self._call(read_json, event.data)
        try:
            found = json.loads(event.data)
        except (ValueError, RecursionError):
            found = event.data
        return found if failure_in(found) else {"error": found or "it states no reason"}

    async def _drain(self) -> None:
        """Read the end of the body, so that the connection can be used again."""
        with suppress(openai.APIError, TooLargeReplyError, TimeoutError):
            async with asyncio.timeout(_DRAIN):
                async for _ in self._parts:
                    pass

    def _check(self, form: Callable[[object], dict[str, Any]], found: object) -> dict[str, Any]:
        """Return a reply or an event in normalized form. Raise the error that it reports."""
        if failure := failure_in(found):
            raise self._fail(failure, read_status(failure))
        return self._call(form, found)

    def _call(self, read: Callable[[S], T], found: S) -> T:
        try:
            return read(found)
        except NoMessageError as error:
            raise self._fail(str(error), _BROKEN) from error
        except NoReplyError as error:
            if not self._server.has_answered:
                # The address may be wrong.
                raise
            raise self._fail(str(error), _DOWN) from error

    def _fail(self, failure: object, status: int) -> openai.APIStatusError:
        """Return the exception that OpenAI's client raises for an error with an HTTP status."""
        response = self._response
        response.status_code = status
        words = f"Error code: {status} - {excerpt_of(failure)}"
        return self._client._make_status_error(words, body=failure, response=response)
