"""A tool that runs a conversation and returns its output."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForToolRun,
    CallbackManagerForToolRun,
)
from langchain_core.tools import BaseTool
from pydantic import Field

from ...graphs.common.threads import run_coroutine
from ...graphs.conversation.conversation import Conversation

RunConversation = Callable[[str | None], Awaitable[str]]
"""Runs a conversation with a task, or with a person's first message, and returns its output."""


class ConversationTool(BaseTool):
    """A tool that runs a conversation.

    In a duologue conversation, the session of the caller contains the inner session. Elsewhere,
    `run` runs the conversation.
    """

    conversation: Conversation
    """The conversation that each call starts."""
    argument: str
    """The name of the argument: ``task``, or ``message`` if one person takes part."""
    run_conversation: RunConversation = Field(exclude=True, repr=False)
    """Runs the conversation outside of a duologue conversation."""

    async def _arun(
        self, run_manager: AsyncCallbackManagerForToolRun | None = None, **arguments: Any
    ) -> str:
        return await self.run_conversation(arguments.get(self.argument))

    def _run(self, run_manager: CallbackManagerForToolRun | None = None, **arguments: Any) -> str:
        found: str = run_coroutine(self._arun(**arguments))
        return found
