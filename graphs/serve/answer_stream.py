"""The parts of a streamed answer, from the events of a run. Pure functions and data.

The output is the content. A reply is sent as it is written only if each reply of the conversation
is the output; otherwise the output is known only at the end. Until then, the messages that all
speakers hear are sent as ``reasoning_content``, the field of reasoning models, which clients show
apart from the answer or ignore.
"""

from collections.abc import Iterator

from ..conversation.conversation import Conversation
from ..events import Event, MessageSaid, MessageStarted, MessageToken, ReplyRejected
from .served_models import Output, is_streamed_live

Delta = dict[str, str]
"""The part of a message that a chunk adds."""


class AnswerStream:
    """A converter of the events of one run into parts of an answer.

    Args:
        conversation: The conversation.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._people = conversation.people
        self._is_live = is_streamed_live(conversation)
        self._shows_messages = not self._is_live
        self._sent = ""
        self._has_started = False
        self._held: MessageSaid | None = None

    def deltas_of(self, event: Event) -> Iterator[Delta]:
        """Yield the parts that an event adds."""
        if self._is_live:
            yield from self._live_deltas(event)
        elif self._shows_messages and isinstance(event, MessageSaid):
            yield from self._progress_before(event)

    def _progress_before(self, said: MessageSaid) -> Iterator[Delta]:
        """Yield the message before this one. The newest waits, because it may be the output."""
        if said.audience is None and said.speaker not in self._people and _heard(said):
            held, self._held = self._held, said
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

    def last_deltas(self, text: str, output: Output | None) -> Iterator[Delta]:
        """Yield the parts that complete the answer.

        Args:
            text: The whole content.
            output: The output of the conversation. None if the content is not its output.
        """
        held = self._held
        if held is not None and (output is None or held.id != output.place):
            yield _progress(held)
        # A word that ends the conversation is not part of the output, but may have been sent.
        if self._sent.startswith(text):
            return
        rest = text[len(self._sent) :] if text.startswith(self._sent) else f"\n\n{text}"
        yield {"content": rest}


def _progress(said: MessageSaid) -> Delta:
    return {"reasoning_content": f"{said.speaker}: {_heard(said)}\n\n"}


def _heard(said: MessageSaid) -> str:
    """Return the text that the others hear. Blank if the message only ends the conversation."""
    return (said.text if said.heard_text is None else said.heard_text).strip()
