"""The thought of a model, and the fields that its provider requires in later requests."""

from collections.abc import Mapping
from typing import Final

from pydantic import Field, JsonValue

from ..common.data import Data

THOUGHT: Final = "duologue_thought"
"""Key of the thought in a message's ``additional_kwargs``: in answers, in prompts and in a memory.
"""


class Reasoning(Data):
    """A thought in its model's original form."""

    text: str | None = None
    """The whole text of the answer, if the thought was a part of that text."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The blocks of the answer's content that contain the thought."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields outside the content that contain the thought, by name."""
    calls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """The further fields of each call that has some, such as a signature, by the call's id."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The metadata by which LangChain's client reads the blocks."""


class Thought(Data):
    """The thought of a model. Only people read it: no rule parses, counts or judges it."""

    text: str
    """The text of the thought."""
    is_unopened: bool = False
    """Whether the thought ended with a closing tag that had no opening tag."""
    given: Reasoning | None = None
    """The original form, which is sent back to the model. None if the message has no calls."""
    family: str | None = None
    """The family of the model, to which alone the original form is sent back. None if unknown."""

    def rename_calls(self, ids: Mapping[str, str]) -> "Thought":
        """Return the thought with new ids of calls. Ids that are not in the mapping stay."""
        if self.given is None or not self.given.calls:
            return self
        calls = {ids.get(old, old): fields for old, fields in self.given.calls.items()}
        given = self.given.model_copy(update={"calls": calls})
        return self.model_copy(update={"given": given})
