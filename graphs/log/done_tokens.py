"""Done tokens in the log: who says which, and what others hear of it. Pure functions."""

from collections.abc import Iterator
from typing import Final

from langchain_core.messages import BaseMessage

from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, leaves
from ..text.done_words import says, settled, without
from ..text.fences import prose_places
from .formats.marks import begins, length_of
from .messages import About, Source

DATA: Final = (Source.CODE, Source.TOOL)
"""Sources of replies that nobody worded: no word in them ends anything, and no code is run."""


def done_tokens(conversation: Conversation, speaker: str | None, text: str) -> list[str]:
    """Give the done tokens that a message says, of those that its speaker may say."""
    mine = _tokens_of(conversation, speaker)
    return [
        end.token
        for end in mine
        if end.token in text
        and says(end.token, _bare(conversation, speaker, end, text), end.counts)
    ]


def heard_text(conversation: Conversation, message: BaseMessage, about: About) -> str:
    """Give what others hear of a message: all but the done tokens that it says."""
    text: str = message.text
    if about.counts and about.source not in DATA:
        return _without(conversation, about.speaker, text)
    return text


class HeardText:
    """What others hear of a message that comes in pieces: what may be a done token is held back.

    Args:
        conversation: The spec. None: no done token counts where it is said.
        speaker: Who says it.
    """

    def __init__(self, conversation: Conversation | None, speaker: str) -> None:
        self._conversation, self._speaker = conversation, speaker
        self._ends = [] if conversation is None else [*_tokens_of(conversation, speaker)]
        self._text = ""
        self._told = 0

    def take(self, piece: str, *, is_over: bool) -> str:
        """Take the next piece; give what is sure to be heard now."""
        self._text += piece
        before, conversation = self._told, self._conversation
        if conversation is None:
            self._told = len(self._text)
            return piece
        if is_over:
            return _without(conversation, self._speaker, self._text)[before:]
        known = (
            settled(
                end.token, _bare(conversation, self._speaker, end, self._text), end.counts, before
            )
            for end in self._ends
        )
        self._told = min(known, default=len(self._text))
        return self._text[before : self._told]


def _without(conversation: Conversation, speaker: str | None, text: str) -> str:
    for end in _tokens_of(conversation, speaker):
        if end.token in text:
            shown = _bare(conversation, speaker, end, text)
            text = without(end.token, text, end.counts, shown)
    return text


def _bare(conversation: Conversation, speaker: str | None, end: DoneToken, text: str) -> str:
    """A message with white space for its first mark, so that all else keeps its place.

    "Instruction: ###STOP###" has nothing else to say.
    """
    marks = None if speaker is None or end.counts != "last" else conversation.speaker(speaker).marks
    if marks is None or end.token not in text:
        return text
    for start, one in prose_places(text):
        if begins(one, marks.lines[0]):
            length = length_of(marks.lines[0], one)[0]
            return f"{text[:start]}{' ' * length}{text[start + length :]}"
    return text


def _tokens_of(conversation: Conversation, speaker: str | None) -> Iterator[DoneToken]:
    for _, end in leaves(conversation.end_chat.when):
        if isinstance(end, DoneToken) and end.by in (None, speaker):
            yield end
