"""Done tokens in the log: who says which, and what others hear of it. Pure functions."""

from collections.abc import Iterable, Iterator
from typing import Final

from langchain_core.messages import BaseMessage

from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, leaves
from ..text.done_words import says, settled, without
from .messages import About, Source

DATA: Final = (Source.CODE, Source.TOOL)
"""Sources of replies that nobody worded: no word in them ends anything, and no code is run."""


def done_tokens(conversation: Conversation, speaker: str | None, text: str) -> list[str]:
    """Give the done tokens that a message says, of those that its speaker may say."""
    mine = _tokens_of(conversation, speaker)
    return [end.token for end in mine if says(end.token, text, end.counts)]


def heard_text(conversation: Conversation, message: BaseMessage, about: About) -> str:
    """Give what others hear of a message: all but the done tokens that it says."""
    text: str = message.text
    if about.counts and about.source not in DATA:
        return _without(_tokens_of(conversation, about.speaker), text)
    return text


class HeardText:
    """What others hear of a message that comes in pieces: what may be a done token is held back.

    Args:
        conversation: The spec. None: no done token counts where it is said.
        speaker: Who says it.
    """

    def __init__(self, conversation: Conversation | None, speaker: str) -> None:
        self._ends = [] if conversation is None else [*_tokens_of(conversation, speaker)]
        self._text = ""
        self._told = 0

    def take(self, piece: str, *, is_over: bool) -> str:
        """Take the next piece; give what is sure to be heard now."""
        self._text += piece
        before = self._told
        if is_over:
            return _without(self._ends, self._text)[before:]
        known = (settled(end.token, self._text, end.counts, before) for end in self._ends)
        self._told = min(known, default=len(self._text))
        return self._text[before : self._told]


def _without(ends: Iterable[DoneToken], text: str) -> str:
    for end in ends:
        text = without(end.token, text, end.counts)
    return text


def _tokens_of(conversation: Conversation, speaker: str | None) -> Iterator[DoneToken]:
    for _, end in leaves(conversation.end_chat.when):
        if isinstance(end, DoneToken) and end.by in (None, speaker):
            yield end
