"""Logs in a form that tests can compare."""

from collections.abc import Sequence
from typing import TypeVar

from langchain_core.messages import AIMessage, BaseMessage

M = TypeVar("M", bound=BaseMessage)


def without_ids(messages: Sequence[M]) -> list[M]:
    """Return messages without their ids, which differ from run to run."""
    return [message.model_copy(update={"id": None}) for message in messages]


def as_replayed(messages: Sequence[M]) -> list[M]:
    """Return messages without ids and token usage, because replays call no model."""
    nothing: dict[str, object] = {"usage_metadata": None, "response_metadata": {}}
    return [
        message.model_copy(update=nothing if isinstance(message, AIMessage) else {})
        for message in without_ids(messages)
    ]
