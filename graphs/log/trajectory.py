"""The log as a list of messages in OpenAI's form, which evaluators of agents read."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from ..common.content import describe_content
from ..conversation.conversation import Conversation
from ..speakers.private_messages import calls_of
from .heard_text import provider_names
from .messages import metadata, place_of
from .metadata import is_by_person
from .viewpoint import viewpoint


def trajectory(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None, speaker: str | None
) -> list[dict[str, Any]]:
    """Return the messages that a speaker sees; without a speaker, the task and the transcript."""
    seen = None if speaker is None else viewpoint(conversation, log, speaker)
    return _written(_from_outside(conversation, log, task) if seen is None else seen)


def transcript(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None
) -> list[dict[str, Any]]:
    """Return the whole transcript, each message with its place, its speaker and its audience."""
    found = [*_from_outside(conversation, log, task)]
    said = {message.id: message for message in log}
    return [
        (_beside(said[message.id]) if message.id in said else {}) | one
        for message, one in zip(found, _written(found), strict=True)
    ]


def _beside(message: BaseMessage) -> dict[str, Any]:
    about = metadata(message)
    heard = {} if about.audience is None else {"audience": [*about.audience]}
    return {"id": place_of(message), "speaker": about.speaker, **heard}


def _written(found: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = convert_to_openai_messages([*found])
    return written


def _from_outside(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None
) -> Iterator[BaseMessage]:
    """Yield the task and the transcript, with calls and results.

    Only the task and the messages of people have the role of the user.
    """
    names = provider_names(conversation.names)
    called: set[str | None] = set()
    if task:
        yield HumanMessage(task)
    for message in log:
        about = metadata(message)
        if not about.is_spoken:
            continue
        name = names.get(about.speaker or "")
        if isinstance(message, ToolMessage):
            # The result of a code block has no call: the message's text contains the code.
            if message.tool_call_id in called:
                text = describe_content(message.content)
                yield ToolMessage(text, tool_call_id=message.tool_call_id, id=message.id)
        elif is_by_person(about):
            yield HumanMessage(message.content, name=name, id=message.id)
        else:
            calls = calls_of(message) if isinstance(message, AIMessage) else []
            called.update(call["id"] for call in calls)
            yield AIMessage(message.text, name=name, tool_calls=calls, id=message.id)
