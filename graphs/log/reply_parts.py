"""The stage of a turn, which a reply's metadata contains."""

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    PRIVATE = "private"
    """A speaker invents content that only it knows."""
    OPENING = "opening"
    """Every speaker answers its own task, without hearing the others."""
    ROUNDS = "rounds"
    """The speakers speak in turn."""
    LAST_WORDS = "last_words"
    """The messages that speakers are promised after a task is complete."""


ALOUD: Final = (Stage.ROUNDS, Stage.LAST_WORDS)
"""The parts in which all speakers hear the messages."""
