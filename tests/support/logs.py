"""Logs in a form that tests can compare."""

from collections.abc import Sequence
from typing import TypeVar

from langchain_core.messages import BaseMessage

M = TypeVar("M", bound=BaseMessage)


def without_ids(messages: Sequence[M]) -> list[M]:
    """Return messages without their ids, which differ from run to run."""
    return [message.model_copy(update={"id": None}) for message in messages]
