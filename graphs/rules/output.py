"""The output of a conversation: the message that its users want. Pure functions.

It is the last message of the speakers that have ``writes_output`` set, or else of the speakers for
whom no person writes. A message that only ends the conversation does not count.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import AnyMessage, BaseMessage

from ..conversation.conversation import Conversation
from ..log.heard_text import heard_text
from ..log.messages import metadata, since_end
from ..log.metadata import Source, Speech, Stage, is_by_person
from ..speakers.formats import SchemaFormat
from ..text.done_words import without

M = TypeVar("M", bound=BaseMessage)


_WITH_VALUES: Final = (Source.AGENT, Source.CONVERSATION)
"""Sources whose replies may come with values."""


def find_output(conversation: Conversation, log: Sequence[M]) -> M | None:
    """Return the message that is the output since the last earlier end, or None.

    A message that all speakers hear takes precedence over later private ones.
    """
    found = None
    for message in reversed(since_end(log)):
        about = metadata(message)
        if isinstance(about, Speech) and _may_be_output(conversation, message, about):
            if about.audience is None:
                return message
            found = found or message
    return found


def _may_be_output(conversation: Conversation, message: BaseMessage, about: Speech) -> bool:
    is_writers = about.speaker in _writers(conversation) and about.stage is not Stage.PRIVATE
    return is_writers and bool(output_text(conversation, message).strip())


def _writers(conversation: Conversation) -> tuple[str, ...]:
    """Return the names of the speakers whose last message is the output."""
    chosen = tuple(one.name for one in conversation.speakers if one.writes_output)
    agents = tuple(one.name for one in conversation.speakers if one.human is None)
    return chosen or agents or conversation.names


def output_text(conversation: Conversation, message: BaseMessage) -> str:
    """Return the text of a message without the words that end the conversation."""
    about = metadata(message)
    text = heard_text(conversation, message, about)
    for speaker in conversation.speakers:
        human = speaker.human
        if human and human.is_termination is None and speaker.name != about.speaker:
            text = without(human.termination, text, "last", about.speaker)
    return text


def output_value(conversation: Conversation, message: BaseMessage) -> Any:  # noqa: ANN401
    """Return a message as output: the values of its schema's fields, or else its text.

    None if the speaker has a schema that the text does not fit.
    """
    about = metadata(message)
    assert isinstance(about, Speech)  # noqa: S101  # `find_output` returns speeches
    wanted = conversation.speaker(about.speaker or "").format
    if isinstance(wanted, SchemaFormat):
        return about.parsed
    if about.source in _WITH_VALUES and about.parsed is not None:
        return about.parsed
    return output_text(conversation, message)


def after_output(conversation: Conversation, log: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the spoken messages that follow the output, newest first, but none by a person.

    If there is no output, yield the messages that contain only a word that ends the conversation.
    """
    output = find_output(conversation, log)
    for message in reversed(since_end(log)):
        if message is output:
            return
        about = metadata(message)
        if about.is_spoken and not is_by_person(about):
            is_empty = isinstance(about, Speech) and not output_text(conversation, message).strip()
            if output is not None or is_empty:
                yield message
