"""Models made of chat models, for tests of model calls."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from duologue.graphs.common.settings import Settings
from duologue.graphs.log.metadata import Speech
from duologue.nodes.models.adapters.composed import Chat as Chat
from duologue.nodes.models.adapters.embedded import EmbeddedModel, LocalModel
from duologue.nodes.models.adapters.families import adapter_of
from duologue.nodes.models.adapters.langchain import LangChainModel
from duologue.nodes.models.adapters.openai_compatible import OpenAICompatible
from duologue.nodes.models.client.chat_model import ChatModel as ChatModel
from duologue.nodes.models.model import Model as Model, Models as Models
from duologue.nodes.models.settings import CallSettings


def model_of(label: str, chat: Chat) -> Model:
    """Return a model that calls this chat model."""
    return Model(adapter_of(label, chat))


def child_of(label: str, chat: Chat, *, is_small: bool = False) -> Model:
    """Return a model that appears to run in a child of this process."""
    assert isinstance(chat, ChatModel)
    return Model((EmbeddedModel if is_small else LocalModel)(label, chat, 8192))


def chat_of(model: Model) -> Any:  # noqa: ANN401
    """Return the chat model behind a model."""
    assert isinstance(model.adapter, OpenAICompatible | LangChainModel)
    return model.adapter.chat


def chosen(**settings: object) -> CallSettings:
    """Return a call's settings that the user has set."""
    return CallSettings(settings)


def silent(_: str) -> None:
    """Ignore a notice."""


async def model_at(url: str, **fields: object) -> Model:
    """Return the model of a server that settings name."""
    given = {"base_url": url, "model": "scripted", "api_key": "k", **fields}
    return await Models(settings=Settings.model_validate(given)).get(None, silent)


async def greet(
    model: Model, prompt: Sequence[BaseMessage] = (HumanMessage("Hi"),), **options: Any
) -> AIMessage:
    """Return a model's answer to a greeting, or to another prompt.

    Args:
        model: The model.
        prompt: The prompt.
        options: Options of the call, and its settings as ``settings``.
    """
    settings = options.pop("settings", None) or chosen()
    return await model.answer([*prompt], settings, **{"purpose": Speech, **options})
