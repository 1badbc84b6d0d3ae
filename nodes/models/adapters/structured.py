"""Chat models with structured output."""

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from ....graphs.common.errors import ModelError
from ....graphs.speakers.schemas import is_strict, schema_of
from ..settings import CallSettings
from .base import Ask
from .binding import binding
from .composed import Chat, composed, configured
from .dialects import dialect_of, prepared


def ask_with_schema(
    chat: Chat,
    label: str,
    schema: type[BaseModel] | dict[str, Any],
    settings: CallSettings,
    instead: str,
) -> Ask:
    """Return how to ask for structured output. The answer also contains the raw message.

    Args:
        chat: The chat model, or a composition of some.
        label: How the model is called in errors.
        schema: The pydantic model of the answer, whose schema is sent as strict if it can be, or a
            JSON schema.
        settings: The settings of the call.
        instead: The setting of the conversation that needs no structured output, for errors.

    Raises:
        ModelError: The model has no structured output.
    """
    # A dict: given the class, the client raises on what it can't read and hides the text.
    wanted = schema if isinstance(schema, dict) else schema_of(schema)
    strict = None if isinstance(schema, dict) else is_strict(wanted)

    def one(model: BaseChatModel, bound: Mapping[str, Any]) -> Runnable[LanguageModelInput, Any]:
        dialect = dialect_of(model)
        model, options = prepared(model, bound, settings, in_fields=True)
        further = dialect.method(model)
        if strict is not None and dialect.constrains_by_body:
            further = {**further, "strict": strict}
        return binding(model.with_structured_output(wanted, include_raw=True, **further), options)

    try:
        asked = composed(configured(chat), one)
    except NotImplementedError as error:
        raise ModelError(f"{label} has no structured output: set {instead}") from error
    return lambda prompt, config: asked.ainvoke(prompt, config=config)
