"""The log as a list of messages in OpenAI's form, as evaluators of agents take it."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from ..spec.conversation import Conversation
from .messages import Source, line
from .names import provider_names
from .viewpoint import calls_of, viewpoint


def trajectory(
    conversation: Conversation, log: Sequence[BaseMessage], task: str | None, speaker: str | None
) -> list[dict[str, Any]]:
    """Give what a speaker sees; without one, the task and all that was said, called and given."""
    if speaker is not None:
        found = viewpoint(conversation, log, speaker)
    else:
        names = provider_names(conversation.names)
        found = [*([HumanMessage(task)] if task else []), *_from_outside(log, names)]
    written: list[dict[str, Any]] = convert_to_openai_messages(found)
    return written


def _from_outside(log: Sequence[BaseMessage], names: dict[str, str]) -> Iterator[BaseMessage]:
    """What was said, with calls and their results; people are users, all others assistants."""
    called: set[str | None] = set()
    for message in log:
        about = line(message)
        if not about.kind.row.is_spoken:
            continue
        name = names.get(about.speaker or "")
        if isinstance(message, ToolMessage):
            # The result of a block of code has no call: the code stands in the text.
            if message.tool_call_id in called:
                yield ToolMessage(message.text, tool_call_id=message.tool_call_id)
        elif about.source is Source.HUMAN:
            yield HumanMessage(message.text, name=name)
        else:
            calls = calls_of(message) if isinstance(message, AIMessage) else []
            called.update(call["id"] for call in calls)
            yield AIMessage(message.text, name=name, tool_calls=calls)
