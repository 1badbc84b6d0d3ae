"""The cells of a batch: which sessions it has, each with its values filled in. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from ..kinds.load import load_conversation
from ..spec.conversation import Conversation


@dataclass(frozen=True)
class Cell:
    """One session of a batch."""

    number: int
    """Its place in the batch, from 1."""
    session: str
    """The session's id, made of the batch's name and of what varies."""
    trial: int
    """Which of the trials of its values it is, from 1."""
    varied: Mapping[str, JsonValue]
    """The values of what varies, by path; labels, too."""
    data: Mapping[str, Any]
    """The conversation as data, with the values filled in."""

    def conversation(self) -> Conversation:
        """Make the conversation.

        Raises:
            SpecError: The values do not fit together; names the field.
        """
        return load_conversation(self.data)
