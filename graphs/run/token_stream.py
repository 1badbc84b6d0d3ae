"""Turning LangGraph's streamed pieces of messages into token events, none of them twice."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..events import (
    Event,
    HistoryShortened,
    MessageSaid,
    MessageStarted,
    MessageToken,
    ReplyRejected,
    ThoughtReceived,
)


@dataclass
class _Message:
    """The message that is being streamed."""

    answer: str | None = None
    """The answer that it is read from."""
    told: str = ""
    """What was told of the message."""
    says: str = ""
    """What of that this answer has said itself."""
    space: str = ""
    """Space that is the end of the content, or not."""
    is_beside: bool = False
    """Whether something is said beside calls already."""
    thought: str = ""
    """The thought that was told of it."""


class TokenStream:
    """Makes events of the pieces of messages as they arrive, one speaker at a time.

    The tokens after the newest `MessageStarted` in front of a message, joined, are what others hear
    of it. An answer that broke off and was asked for again goes on where it was, as far as it says
    the same again; where it does not, a second `MessageStarted` says that it begins anew.
    """

    def __init__(self, beside: Collection[str] = ()) -> None:
        self._beside = beside
        self._now = _Message()
        self._rejected = False

    def content(self, speaker: str, text: str, answer: str | None) -> Iterator[Event]:
        """Take a piece of what a model writes as a message's content."""
        if answer != self._now.answer:
            self._now = _Message(answer, self._now.told, thought=self._now.thought)
        now = self._now
        if now.is_beside:
            # It comes after what is said beside the calls, and is told there.
            return
        if speaker in self._beside:
            # Space at the end is left out where something is said beside calls.
            text = now.space + text
            now.space = text[len(text.rstrip()) :]
            text = text.rstrip()
        yield from self._told(speaker, text)

    def beside(self, speaker: str, text: str) -> Iterator[Event]:
        """Take a piece of what is said beside calls; as for `content`."""
        self._now.is_beside = True
        yield from self._told(speaker, text)

    def thought(self, speaker: str | None, text: str, answer: str | None = None) -> Iterator[Event]:
        """Take what was thought; what was told of it is not told again."""
        new = text.removeprefix(self._now.thought).strip()
        self._now.thought = text
        if new:
            yield ThoughtReceived(speaker=speaker, text=new)

    def whole(self, event: Event) -> Iterator[Event]:
        """Take an event of a message that stands in the log."""
        if isinstance(event, ThoughtReceived):
            yield from self.thought(event.speaker, event.text)
            self._now.thought = ""
            return
        if isinstance(event, HistoryShortened):
            # It was found out while the message was written, and stands in front of it.
            yield event
            return
        told = self._now.told
        if isinstance(event, ReplyRejected) and told and event.speaker:
            # Its tokens do not count, so that nothing of it is still to be told.
            self._rejected = True
        elif isinstance(event, MessageSaid) and (told or self._rejected) and event.speaker:
            self._rejected = False
            text = event.text if event.heard_text is None else event.heard_text
            if told and text.startswith(told):
                yield from self._token(event.speaker, text[len(told) :])
            else:
                yield MessageStarted(speaker=event.speaker)
                yield from self._token(event.speaker, text)
        self._now = _Message()
        yield event

    def _told(self, speaker: str, piece: str) -> Iterator[Event]:
        if not piece:
            return
        now = self._now
        goes_on = now.says == now.told
        now.says += piece
        if goes_on:
            if not now.told:
                yield MessageStarted(speaker=speaker)
        elif now.told.startswith(now.says):
            # An answer that was asked for again says what was heard before.
            return
        elif now.says.startswith(now.told):
            piece = now.says[len(now.told) :]
        else:
            yield MessageStarted(speaker=speaker)
            piece = now.says
        now.told = now.says
        yield from self._token(speaker, piece)

    @staticmethod
    def _token(speaker: str, piece: str) -> Iterator[Event]:
        if piece:
            yield MessageToken(speaker=speaker, text=piece)
