"""Parts of a speaker that are small specs of their own, as data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic import model_validator
from typing_extensions import TypedDict

from ..common.data import Spec, Text


class Changing(Spec):
    """A spec that is given with other fields."""

    def but(self, **changes: Any) -> Self:
        """Give the same with other fields, which take the place of what was there.

        Raises:
            SpecError: A change is not valid; names the field.
        """
        cls = type(self)
        found = cls(**({name: getattr(self, name) for name in cls.model_fields} | changes))
        # What nobody set, as a short form's own prompts, still counts as not set.
        found.model_fields_set.intersection_update(self.model_fields_set | changes.keys())
        return found


class GenerationFields(TypedDict, total=False):
    """The fields of `Generation`, as they may be given."""

    temperature: float | None
    max_tokens: int | None
    top_p: float | None
    stop: Sequence[str]
    seed: int | None


class Brief(Spec):
    """What a speaker is told instead where a very small model speaks for it, as the embedded one.

    Its form is held by a grammar, so it need not be told; what it is told must be short.
    """

    role_prompt: Text
    """The system prompt; ``{task}`` in it stands for the task."""
    reminder: Text
    """What comes after each line the speaker hears; ``{task}`` in it stands for the task as it
    was given."""


class PrivateOpeningFields(TypedDict, total=False):
    """The fields of `PrivateOpening`, as they may be given."""

    lines: Sequence[str]
    prompt: str | None


class PrivateOpening(Spec):
    """What one speaker knows before all else, and the others never see (Yacana's secret).

    Raises:
        SpecError: Neither or both are given.
    """

    lines: tuple[Text, ...] = ()
    """What it is told."""
    prompt: Text | None = None
    """What it answers alone, such as "Choose a secret number." It keeps the answer in mind."""

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[PrivateOpeningFields]) -> None: ...

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.lines) is (self.prompt is not None):
            raise ValueError("give either lines or a prompt")
        return self
