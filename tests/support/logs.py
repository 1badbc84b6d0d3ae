"""Logs as tests compare them."""

from collections.abc import Sequence
from typing import TypeVar

from langchain_core.messages import AIMessage, BaseMessage

M = TypeVar("M", bound=BaseMessage)


def without_ids(messages: Sequence[M]) -> list[M]:
    """Give messages without their ids, which differ from run to run; their places do not."""
    return [message.model_copy(update={"id": None}) for message in messages]


def as_replayed(messages: Sequence[M]) -> list[M]:
    """Give messages without their ids, and without what their models used: replays call none."""
    nothing: dict[str, object] = {"usage_metadata": None, "response_metadata": {}}
    return [
        message.model_copy(update=nothing if isinstance(message, AIMessage) else {})
        for message in without_ids(messages)
    ]
