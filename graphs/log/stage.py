"""The parts of a conversation, one after the other."""

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    PRIVATE = "private"
    """A speaker makes up something that it alone knows."""
    OPENING = "opening"
    """Everyone answers its own task alone."""
    ROUNDS = "rounds"
    """Everyone speaks in turn."""
    LAST_WORDS = "last_words"
    """What is still said after a completed task."""


ALOUD: Final = (Stage.ROUNDS, Stage.LAST_WORDS)
"""The parts in which all hear what is said."""
