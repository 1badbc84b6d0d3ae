"""The response to one request: its parts, and the connection that receives them."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request

from ..events import Event
from .answer_stream import AnswerStream, Delta
from .chat_requests import ChatRequest
from .chat_turns import Answer, ChatTurn
from .openai_format import Envelope
from .served_models import is_streamed_live

SILENCE: Final = 10.0
"""Seconds without an event after which a stream sends a comment, so that no proxy closes it.

A stream begins after this time even if there is nothing to send. An error before its beginning is a
response with a status; a later error is a part of the stream.
"""


class ChatResponse:
    """The response to one request, whose parts arrive during the run.

    Args:
        asked: The request.
        turn: The run.
    """

    def __init__(self, asked: ChatRequest, turn: ChatTurn) -> None:
        number = secrets.token_hex(12)
        self.envelope = Envelope(f"chatcmpl-{number}", int(time.time()), asked.model)
        self.news = asyncio.Queue[Delta | None]()
        """The parts of a streamed answer. The last is None."""
        self.begun = asyncio.Event()
        """Is set as soon as there is a part."""
        self._asked = asked
        self._stream = AnswerStream(turn.tool.conversation)
        self.shows_tokens = asked.stream and is_streamed_live(turn.tool.conversation)
        """Whether the pieces of a reply are sent as they arrive."""

    def note(self, event: Event) -> None:
        """Add the parts for an event of the run."""
        if self._asked.stream:
            for delta in self._stream.deltas_of(event):
                self.news.put_nowait(delta)
                self.begun.set()

    def end(self) -> None:
        """Note that the run has ended."""
        self.news.put_nowait(None)
        self.begun.set()

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the answer as one object."""
        return self.envelope.completion(answer.text, answer.ending, answer.usage)

    def last_chunks(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the last parts of a streamed answer."""
        for delta in self._stream.last_deltas(answer.text, answer.output):
            yield self.envelope.chunk(delta)
        yield self.envelope.chunk({}, answer.ending)
        if self._asked.include_usage:
            yield self.envelope.usage_chunk(answer.usage)


class GoneError(Exception):
    """The client has closed its connection."""


class Client:
    """The connection of a request whose body was read.

    Args:
        request: The request.
        run: The run that answers it. It is cancelled if the client closes the connection.
    """

    def __init__(self, request: Request, run: asyncio.Task[Answer]) -> None:
        self._gone = asyncio.create_task(_wait_until_gone(request))
        self._gone.add_done_callback(lambda gone: gone.cancelled() or run.cancel())

    async def waits_for(
        self, run: asyncio.Task[Answer], *events: asyncio.Event, seconds: float | None
    ) -> bool:
        """Wait for a run, an event or a time; return whether the client is still connected."""
        waiting = [asyncio.create_task(one.wait()) for one in events]
        try:
            await asyncio.wait(
                {self._gone, run, *waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
        return not self._gone.done()

    async def next_of(self, news: asyncio.Queue[Delta | None]) -> Delta | None:
        """Return the next part. An empty part if there is none for some seconds.

        Raises:
            GoneError: The client has closed its connection.
        """
        getting = asyncio.create_task(news.get())
        try:
            await asyncio.wait(
                {getting, self._gone}, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED
            )
            if self._gone.done():
                raise GoneError
            return getting.result() if getting.done() else {}
        finally:
            getting.cancel()

    def close(self) -> None:
        """Stop watching the connection."""
        self._gone.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
