"""Chat models with structured output."""

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable

from ....graphs.common.errors import ModelError
from ..settings import CallSettings
from .binding import binding
from .composed import Chat, composed, configured
from .dialects import dialect_of, prepared


def shaped(
    chat: Chat,
    label: str,
    schema: dict[str, Any],
    settings: CallSettings,
    instead: str,
    *,
    strict: bool | None = None,
) -> Runnable[LanguageModelInput, Any]:
    """Return the model with structured output, which also returns the raw message.

    Args:
        chat: The chat model, or a composition of some.
        label: How the model is called in errors.
        schema: The JSON schema.
        settings: The settings of the call.
        instead: The setting of the conversation that needs no structured output, for errors.
        strict: Whether a server must follow the schema to the letter. None: it is not said.

    Raises:
        ModelError: The model has no structured output.
    """

    def one(model: BaseChatModel, bound: Mapping[str, Any]) -> Runnable[LanguageModelInput, Any]:
        dialect = dialect_of(model)
        model, options = prepared(model, bound, settings, in_fields=True)
        further = dialect.method(model)
        if strict is not None and dialect.constrains_by_body:
            further = {**further, "strict": strict}
        return binding(model.with_structured_output(schema, include_raw=True, **further), options)

    try:
        return composed(configured(chat), one)
    except NotImplementedError as error:
        raise ModelError(f"{label} has no structured output: set {instead}") from error
