"""The log of a state. Pure functions."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from langchain_core.messages import AnyMessage

from .messages import PLACE
from .reducer import without_removed


def log_of(state: Mapping[str, Any]) -> list[AnyMessage]:
    """Give the log: everything ever said, in the order of places."""
    return without_removed(_ordered(state.get("messages") or ()))


def _ordered(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Put messages in the order of their places; one from elsewhere has that of the one before."""
    placed: list[tuple[int, AnyMessage]] = []
    for message in messages:
        before = placed[-1][0] if placed else 0
        placed.append((message.additional_kwargs.get(PLACE, before), message))
    return [message for _, message in sorted(placed, key=itemgetter(0))]
