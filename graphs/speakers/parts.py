"""Parts of a speaker that are small specs of their own, as data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from pydantic import Field, PositiveInt, model_validator
from typing_extensions import TypedDict

from ..common.data import Spec, Temperature, Text


class GenerationFields(TypedDict, total=False):
    """The fields of `Generation`, as they may be given."""

    temperature: float | None
    max_tokens: int | None
    top_p: float | None
    stop: Sequence[str]
    seed: int | None


class Generation(Spec):
    """Generation parameters sent with a model call. What is None is left to its default."""

    temperature: Temperature = None
    """Sampling temperature, 0 to 2. None: 0.2 for speakers, 1.0 for the task's rewriting."""
    max_tokens: PositiveInt | None = None
    """The longest answer, in tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling, above 0 and up to 1."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops."""
    seed: int | None = None
    """Asks a model that can for the same answer to the same prompt."""

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[GenerationFields]) -> None: ...

    def parameters(self, temperature: float) -> dict[str, object]:
        """Give the arguments of a model call.

        Args:
            temperature: What to use when this spec names none.

        Returns:
            Keyword arguments in OpenAI's names, without those left to the model.
        """
        chosen: dict[str, object] = {
            "temperature": temperature if self.temperature is None else self.temperature,
            "max_tokens": self.max_tokens,
            "top_p": self.top_p,
            "stop": list(self.stop) or None,
            "seed": self.seed,
        }
        return {name: value for name, value in chosen.items() if value is not None}


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
