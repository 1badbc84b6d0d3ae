"""Conversations that are served as models: the meaning of a request's messages. Pure functions.

If one person takes part, the user's newest message is that person's first message, and the speakers
remember the messages before it. If no person takes part, the newest message is the task, which also
contains the messages before it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from ..common.content import Content
from ..common.errors import SpecError, list_names
from ..conversation.conversation import Conversation
from ..conversation.usage import Usage
from ..log.messages import metadata, place_of
from ..log.metadata import SpeakerReply
from ..rules.outcome import find_output
from ..session.stored_session import StoredSession
from ..speakers.replies import HumanInputMode, HumanReply, ModelReply, TextReply
from ..speakers.reply_parts import Stop
from ..speakers.speaker import Speaker
from .chat_requests import HistoryMessage
from .tools import ServedTool

_TASK_AFTER_OTHERS: Final = "Earlier messages:\n\n{before}\n\nThe task now:\n\n{task}"
"""The task of a conversation without people if messages precede it."""

_SIDES: Final = {"user": "User", "assistant": "Assistant"}


class Output(NamedTuple):
    """The output of a conversation, as a client receives it."""

    text: str
    """The text, or JSON if the speaker answers by a schema."""
    place: str | None
    """The place of its message in the log. None if there is no output."""
    stop: Stop | None = None
    """Why the model stopped before the message was complete. None if it is complete."""


def check_people(file: Path, tool: ServedTool) -> None:
    """Refuse a conversation of several people, because a client speaks for one of them only.

    Raises:
        SpecError: Several people take part.
    """
    people = tool.conversation.people
    if len(people) > 1:
        raise SpecError(
            f"{file}: people speak for {list_names(people)}; at most one person can take part in a "
            "conversation that is served as a model"
        )


class Start(NamedTuple):
    """The conversation that answers a request, before it runs."""

    conversation: Conversation
    message: Content | None = None
    """The person's first message. None if the conversation contains it."""


def start_conversation(served: Conversation, messages: Sequence[HistoryMessage]) -> Start:
    """Return the conversation that answers the last of the messages, which is the user's.

    Raises:
        SpecError: There is no message of the user, the last message is the assistant's, or there
            are files although no person takes part.
    """
    check_last(messages)
    *before, last = messages
    if not served.people:
        if any(one.has_files for one in messages):
            raise SpecError(
                "messages: images and files are not accepted by this model, whose task is text; "
                "send text"
            )
        return Start(served.model_copy(update={"task": _task(before, last.text)}))
    (person,) = served.people
    # Fixed messages of speakers contain only text.
    first = None if last.has_files else last.text
    speakers = tuple(
        _with_first_message(one, first)
        if one.name == person
        else _with_memory(served, one, before, person)
        for one in served.speakers
    )
    return Start(
        served.model_copy(update={"speakers": speakers}), last.content if last.has_files else None
    )


def check_last(messages: Sequence[HistoryMessage], *, may_be_blank: bool = False) -> None:
    """Check that the last message is the user's.

    Raises:
        SpecError: It is not, or it is blank although it must have a text.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or not (last.text.strip() or may_be_blank):
        raise SpecError(
            "messages: the last message must be the user's, and must not be empty; add a message "
            "of the user"
        )


def _task(before: Sequence[HistoryMessage], task: str) -> str:
    if not before:
        return task
    lines = "\n\n".join(f"{_SIDES[one.role]}: {one.text}" for one in before)
    return _TASK_AFTER_OTHERS.format(before=lines, task=task)


def _with_first_message(person: Speaker, text: str | None) -> Speaker:
    """Return the person's speaker with a first message instead of its own, or without any."""
    first = () if text is None else (TextReply(kind="text", text=text, once=True),)
    return person.model_copy(update={"replies": (*first, *_later_replies(person))})


def _later_replies(person: Speaker) -> tuple[object, ...]:
    return tuple(one for one in person.replies if not (isinstance(one, TextReply) and one.once))


def _with_memory(
    served: Conversation, speaker: Speaker, before: Sequence[HistoryMessage], person: str
) -> Speaker:
    """Return a speaker that remembers earlier messages.

    The assistant's messages are its own if it writes the output, and else messages of the speaker
    that does.
    """
    others = [one for one in served.speakers if one.name != person]
    writer = next((one.name for one in others if one.writes_output), others[0].name)
    remembered: list[AnyMessage] = []
    for message in before:
        if message.role == "user":
            remembered.append(HumanMessage(message.content, name=person))
        elif speaker.name == writer:
            remembered.append(AIMessage(message.text))
        else:
            remembered.append(HumanMessage(message.text, name=writer))
    return speaker.model_copy(update={"memory": (*speaker.memory, *remembered)})


def is_streamed_live(served: Conversation) -> bool:
    """Return whether each reply of a model is the output, so that it is streamed as it is written.

    This is the case in a chat of a person and a model without tools and without a format.
    """
    if len(served.people) != 1 or not served.is_pair:
        return False
    (person,) = (one for one in served.speakers if one.human is not None)
    (other,) = (one for one in served.speakers if one is not person)
    is_asked = all(
        isinstance(one, HumanReply) and one.human_input_mode is HumanInputMode.ALWAYS
        for one in _later_replies(person)
    )
    is_plain = all(isinstance(one, ModelReply) for one in other.replies)
    return is_asked and is_plain and not other.tools and other.format is None


def output_of(session: StoredSession) -> Output:
    """Return the output of a session. The text is empty if there is none."""
    found = find_output(session.conversation, session.messages)
    if found is None:
        return Output("", None)
    about, value = metadata(found), session.output
    text = session.text if value is None else value
    return Output(
        text if isinstance(text, str) else json.dumps(text, ensure_ascii=False),
        place_of(found),
        about.stop if isinstance(about, SpeakerReply) else None,
    )


def usage_since(before: Usage, now: Usage) -> Usage:
    """Return the usage of the calls that were made after an earlier count."""
    counts = now.model_dump(exclude={"cost"})
    return Usage(**{name: count - getattr(before, name) for name, count in counts.items()})
