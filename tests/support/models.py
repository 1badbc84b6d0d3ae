"""Models made of chat models, for tests of model calls."""

from typing import Any

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
