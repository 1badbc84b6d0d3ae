"""What a model thought with a message: it stands beside the message, and nobody hears it."""

from pydantic import Field, JsonValue

from ..common.data import Data


class Reasoning(Data):
    """A thought in the form that its model gave it in."""

    text: str | None = None
    """The whole text of the answer, where the thought was part of it."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The parts of the answer's content that hold it."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """What stood beside the content, by the fields' names."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """What tells LangChain's client how to read the parts."""


class Thought(Data):
    """What a model thought. It is read by people only: nothing is parsed, counted or judged."""

    text: str
    """What it thought."""
    is_unopened: bool = False
    """Whether a tag closed it in the answer's text that none had opened."""
    given: Reasoning | None = None
    """What goes back to the model while the calls of the message are at work."""
