"""Models made of chat models, for tests of how a model is asked."""

from typing import Any

from duologue.nodes.models.adapters.composed import Chat
from duologue.nodes.models.adapters.embedded import EmbeddedModel, LocalModel
from duologue.nodes.models.adapters.families import adapter_of
from duologue.nodes.models.adapters.langchain import LangChainModel
from duologue.nodes.models.adapters.openai_compatible import OpenAICompatible
from duologue.nodes.models.client.chat_model import ChatModel
from duologue.nodes.models.model import Model
from duologue.nodes.models.settings import CallSettings


def model_of(label: str, chat: Chat) -> Model:
    """Return the model that a chat model speaks for."""
    return Model(adapter_of(label, chat))


def child_of(label: str, chat: Chat, *, is_small: bool = False) -> Model:
    """Return a model whose server is taken for a child of this process."""
    assert isinstance(chat, ChatModel)
    return Model((EmbeddedModel if is_small else LocalModel)(label, chat, 8192))


def chat_of(model: Model) -> Any:  # noqa: ANN401
    """Return the chat model that a model is asked through."""
    assert isinstance(model.adapter, OpenAICompatible | LangChainModel)
    return model.adapter.chat


def chosen(**settings: object) -> CallSettings:
    """Return the settings of a call that the user set."""
    return CallSettings(settings)
