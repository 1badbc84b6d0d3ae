"""Who speaks next where speakers hand over to one another. Pure functions."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from ..log.messages import metadata
from ..log.metadata import SpeakerReply, Speech, ToolCalls
from ..spec.conversation import Conversation
from ..spec.handoffs import first_of, named_in, targets


def next_speaker(conversation: Conversation, name: str, log: Sequence[BaseMessage]) -> str:
    """Give who speaks after this speaker's turn, the newest one.

    That is whom it names; else who has handed over to it; else the next in order that may be.
    """
    turns = _turns(conversation, log)
    now, before = next(turns, None), next(turns, None)
    may = targets(conversation, name)
    if now is not None and now.speaker == name:
        if now.named is not None:
            return now.named
        if before is not None and before.named == name and before.speaker in may:
            return before.speaker
    order = conversation.order
    place = order.index(name) + 1
    return next(other for other in (*order[place:], *order[:place]) if other in may)


class _Turn(NamedTuple):
    """A turn in the rounds."""

    speaker: str
    named: str | None  # whom it names to speak next


def _turns(conversation: Conversation, log: Sequence[BaseMessage]) -> Iterator[_Turn]:
    """The turns in the rounds, the newest first."""
    speaker: str | None = None
    named: str | None = None
    for message in reversed(log):
        about = metadata(message)
        if about.ends_turn and about.is_aloud:
            if speaker is not None:
                yield _Turn(speaker, named)
            speaker, named = about.speaker or "", None
        if speaker is None or named is not None or about.speaker != speaker:
            continue
        if isinstance(about, Speech | ToolCalls):
            named = _named(conversation, speaker, message, about)
    if speaker is not None:
        yield _Turn(speaker, named)


def _named(
    conversation: Conversation, name: str, message: BaseMessage, about: SpeakerReply
) -> str | None:
    """Whom a line names to speak next, of those who may."""
    given = (*about.handed_to, *named_in(conversation, about.parsed))
    return first_of(conversation, name, given) or _addressed(message.text, conversation, name)


def _addressed(text: str, conversation: Conversation, name: str) -> str | None:
    """Whom a message begins with, as ``@Name``; of names that begin alike, the longest."""
    if not text.lstrip().startswith("@"):
        return None
    said = text.lstrip()[1:].casefold()
    may = targets(conversation, name)
    found = [one for one in may if said.startswith(one.casefold())]
    ended = [one for one in found if not said[len(one.casefold()) :][:1].isalnum()]
    return max(ended, key=len, default=None)
