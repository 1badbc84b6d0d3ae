"""The question to a person for a speaker's next message. Pure functions."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from ..common.content import describe_content
from ..conversation.conversation import Conversation
from ..conversation.questions import Asking, interrupt_payload
from ..log.messages import newest_calls
from ..log.viewpoint import newly_heard
from .position import Phase, Position


def question_payload(
    conversation: Conversation,
    position: Position,
    log: Sequence[BaseMessage],
    task: str | None,
    asked: Asking,
) -> dict[str, Any]:
    """Return the payload of the interrupt that asks a person for a message."""
    heard = describe_content(newly_heard(conversation, log, asked.speaker))
    calls = newest_calls(log).tool_calls if position.phase is Phase.CALLED else ()
    own = conversation.speaker(asked.speaker).task
    return interrupt_payload(asked, "\n\n".join(filter(None, [task, own])), heard, calls)
