"""The models that run in a child of this process: the embedded one, and GGUF files."""

from typing import TYPE_CHECKING, Any

from ....graphs.log.metadata import ModelOutput, SpecifiedTask
from ....graphs.speakers.formats import LabelledFormat
from ..embedded import child
from ..embedded.grammar import grammar
from ..settings import CallSettings
from .base import Capabilities
from .openai_compatible import OpenAICompatible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..client.chat_model import ChatModel


class Embedded(OpenAICompatible):
    """A model in a child of this process, whose server speaks OpenAI's API.

    Args:
        label: How the model is called in usage and errors.
        chat: The client of the child.
        n_ctx: The tokens of context that the child was started with.
        is_small: Whether it is the tiny embedded model.
    """

    def __init__(self, label: str, chat: "ChatModel", *, n_ctx: int, is_small: bool) -> None:
        super().__init__(label, chat)
        self.n_ctx = n_ctx
        self.capabilities = capabilities(is_small=is_small)

    def sampling(self, purpose: type[ModelOutput], marks: LabelledFormat | None) -> dict[str, Any]:
        """Return the sampling that keeps a tiny model's turns different, and its grammar."""
        if not self.capabilities.is_small:
            return {}
        is_task = purpose is SpecifiedTask
        body = {**(child.REWRITING if is_task else child.sampling(self.n_ctx))}
        if marks is not None:
            body["grammar"] = grammar(marks.lines, marks.end)
        return body

    def prepare(
        self, settings: CallSettings, body: "Mapping[str, Any] | None" = None
    ) -> "tuple[ChatModel, dict[str, Any]]":
        """Return the client and the options of a call."""
        if "seed" in settings.values:
            # Read from the cache, a prompt's numbers differ in their last digits.
            body = {**child.REPRODUCIBLE, **(body or {})}
        return super().prepare(settings, body)


def capabilities(*, is_small: bool) -> Capabilities:
    """Return the capabilities of a model in a child of this process."""
    return Capabilities(
        calls_tools=False, is_small=is_small, keeps_broken_calls=True, sends_tries=True
    )
