"""A tool that returns earlier messages of the same session (LazyLLM's get_history)."""

from typing import Annotated

from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime
from pydantic import Field

from ...graphs.log.transcript import format_line
from ..registry.hooks import ToolState

NO_HISTORY = "There are no messages yet."
"""The result if no message was sent yet."""


@tool
def get_history(
    runtime: ToolRuntime[None, ToolState],
    limit: Annotated[int, Field(ge=1, le=100, description="number of messages")] = 5,
) -> str:
    """Return the latest messages of this conversation, one per line.

    Further lines of a message are indented.
    """
    said = [message for message in runtime.state["messages"] if message.name]
    lines = [format_line(message.name, message.text) for message in said[-limit:]]
    return "\n".join(lines) or NO_HISTORY
