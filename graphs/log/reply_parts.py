"""Parts of a reply's metadata: the stage of its turn, and the thought of its model."""

from enum import StrEnum
from typing import Final

from pydantic import Field, JsonValue

from ..common.data import Data


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


class Reasoning(Data):
    """A thought in its model's original form."""

    text: str | None = None
    """The whole text of the answer, if the thought was a part of that text."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The blocks of the answer's content that contain the thought."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields outside the content that contain the thought, by name."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The metadata by which LangChain's client reads the blocks."""


class Thought(Data):
    """The thought of a model. Only people read it: no rule parses, counts or judges it."""

    text: str
    """The text of the thought."""
    is_unopened: bool = False
    """Whether the thought ended with a closing tag that had no opening tag."""
    given: Reasoning | None = None
    """The original form, which is sent back to the model while the message's calls run."""
