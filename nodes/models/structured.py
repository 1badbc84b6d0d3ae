"""Chat models with structured output."""

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable

from ...graphs.common.errors import ModelError
from .binding import binding
from .client.origin import speaks_openai
from .composed import Chat, composed, configured


def shaped(
    chat: Chat,
    label: str,
    schema: dict[str, Any],
    options: Mapping[str, Any],
    instead: str,
    *,
    strict: bool | None = None,
) -> Runnable[LanguageModelInput, Any]:
    """Give the model with structured output, which also gives the raw message."""

    def one(model: BaseChatModel, bound: Mapping[str, Any]) -> Runnable[LanguageModelInput, Any]:
        given, fields = {**bound, **options}, type(model).model_fields
        known = {name: value for name, value in given.items() if name in fields}
        rest = {name: value for name, value in given.items() if name not in fields}
        # Others than OpenAI's client may not know the word.
        says = {"strict": strict} if strict is not None and speaks_openai(model) else {}
        asked = model.model_copy(update=known)
        return binding(asked.with_structured_output(schema, include_raw=True, **says), rest)

    try:
        return composed(configured(chat), one)
    except NotImplementedError as error:
        raise ModelError(f"{label} has no structured output: set {instead}") from error
