"""Done tokens in the log: who says which, and what others hear of it. Pure functions."""

from collections.abc import Iterator
from typing import Final

from langchain_core.messages import BaseMessage

from ..spec.conversation import Conversation
from ..spec.ends import DoneToken, leaves
from ..text.done_words import says, without
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
        for end in _tokens_of(conversation, about.speaker):
            text = without(end.token, text, end.counts)
    return text


def _tokens_of(conversation: Conversation, speaker: str | None) -> Iterator[DoneToken]:
    for _, end in leaves(conversation.end_chat.when):
        if isinstance(end, DoneToken) and end.by in (None, speaker):
            yield end
