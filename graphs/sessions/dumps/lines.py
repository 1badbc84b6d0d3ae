"""The messages of a dump: what is said, in a form of our own without anything of LangChain's.

The dumps themselves are in `graphs.sessions.dumps.dump`, what a speaker remembers in
`graphs.speakers.memory`.
"""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from pydantic import Field, JsonValue

from ...log.messages import About, line, place_of
from ...log.remembered import what_is_said
from ...speakers.memory import Said
from ...spec.usage import told_of


class Message(Said):
    """A message of the log."""

    id: str
    """Its place in the log, such as ``m0004``."""
    message_id: str | None = None
    """The id that no other message has. None: it is given a new one."""
    line: About
    """What stands beside it: who said it, who hears it, what it is."""
    usage: UsageMetadata | None = None
    """The tokens of the model's answer, as LangChain counts them."""
    model: dict[str, JsonValue] = Field(default_factory=dict)
    """What the model's client said of the answer, such as the model's name."""

    @property
    def answer(self) -> AIMessage:
        """The model's answer, as far as more is known of it than what it says."""
        return AIMessage(
            "", id=self.message_id, usage_metadata=self.usage, response_metadata=self.model
        )


def dumped(message: BaseMessage) -> Message:
    """Write down a message of the log."""
    told: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        told = {"usage": message.usage_metadata, "model": told_of(message)}
    return Message(
        id=place_of(message),
        message_id=message.id,
        line=line(message),
        **told,
        **what_is_said(message),
    )
