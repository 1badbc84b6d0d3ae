"""Logs as tests compare them."""

from collections.abc import Sequence
from typing import TypeVar

from langchain_core.messages import BaseMessage

M = TypeVar("M", bound=BaseMessage)


def without_ids(messages: Sequence[M]) -> list[M]:
    """Give messages without their ids, which differ from run to run; their places do not."""
    return [message.model_copy(update={"id": None}) for message in messages]
