"""The response to one request: its parts, and the connection that receives them.

The output is the content. A reply is sent as it is written only if each reply of the conversation
is the output; otherwise the output is known only at the end. Until then, the messages that all
speakers hear are sent as ``reasoning_content``, the field of reasoning models, which clients show
apart from the answer or ignore.
"""

import asyncio
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request

from ..conversation.conversation import Conversation
from ..events import Event, MessageSaid, MessageStarted, MessageToken, ReplyRejected
from .chat_turns import Answer, is_streamed_live
from .openai_format import ChatRequest, Envelope

Delta = dict[str, str]
"""The part of a message that a chunk adds."""


def _progress(said: MessageSaid) -> Delta:
    return {"reasoning_content": f"{said.speaker}: {_heard_text(said)}\n\n"}


def _heard_text(said: MessageSaid) -> str:
    """Return the text that the others hear. Blank if the message only ends the conversation."""
    return (said.text if said.heard_text is None else said.heard_text).strip()


SILENCE: Final = 10.0
"""Seconds without an event after which a stream sends a comment, so that no proxy closes it.

A stream begins after this time even if there is nothing to send. An error before its beginning is a
response with a status; a later error is a part of the stream.
"""


class ChatResponse:
    """The response to one request, whose parts arrive during the run.

    Args:
        asked: The request.
        conversation: The conversation that answers it.
    """

    def __init__(self, asked: ChatRequest, conversation: Conversation) -> None:
        number = secrets.token_hex(12)
        self.envelope = Envelope(f"chatcmpl-{number}", int(time.time()), asked.model)
        self.news = asyncio.Queue[Delta | None]()
        """The parts of a streamed answer. The last is None."""
        self.begun = asyncio.Event()
        """Is set as soon as there is a part."""
        self._asked = asked
        self._people = conversation.people
        self._is_live = self._shows_replies = is_streamed_live(conversation)
        self.shows_tokens = asked.stream and self._is_live
        """Whether the pieces of a reply are sent as they arrive."""
        self._sent = ""
        self._has_started = False
        self._held: MessageSaid | None = None

    def note(self, event: Event) -> None:
        """Add the parts for an event of the run."""
        if not self._asked.stream:
            return
        for delta in self._live_deltas(event) if self._is_live else self._progress_before(event):
            self.news.put_nowait(delta)
            self.begun.set()

    def end(self) -> None:
        """Note that the run has ended."""
        self.news.put_nowait(None)
        self.begun.set()

    def _progress_before(self, event: Event) -> Iterator[Delta]:
        """Yield the message before this one. The newest waits, because it may be the output."""
        if self._shows_replies or not isinstance(event, MessageSaid):
            return
        if event.audience is None and event.speaker not in self._people and _heard_text(event):
            held, self._held = self._held, event
            if held is not None:
                yield _progress(held)

    def _live_deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of a reply, until it is rejected or begins again.

        A client can't take back a piece, so the rest is sent when the whole reply is known.
        """
        match event:
            case MessageStarted() if not self._has_started:
                self._has_started = True
            case MessageStarted() | ReplyRejected():
                self._is_live = False
            case MessageToken(text=text):
                self._sent += text
                yield {"content": text}

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the answer as one object."""
        return self.envelope.completion(answer.text, answer.ending, answer.usage)

    def last_chunks(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """Yield the last parts of a streamed answer."""
        held, output = self._held, answer.output
        if held is not None and (output is None or held.id != output.place):
            yield self.envelope.chunk(_progress(held))
        # A word that ends the conversation is not part of the output, but may have been sent.
        if not self._sent.startswith(answer.text):
            rest = answer.text.removeprefix(self._sent)
            is_next = answer.text.startswith(self._sent)
            yield self.envelope.chunk({"content": rest if is_next else f"\n\n{rest}"})
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

    async def next_delta(self, news: asyncio.Queue[Delta | None]) -> Delta | None:
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
