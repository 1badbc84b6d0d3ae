"""LangChain chat models, and their compositions: with fallbacks, bound or configurable."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import (
    Runnable,
    RunnableBinding,
    RunnableConfig,
    RunnableParallel,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.runnables.configurable import DynamicRunnable

from ..client.connections import separate_loops as separate_loops


def bind_options(asked: Runnable[Any, Any], options: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Bind options to the chat model with which a runnable begins.

    LangChain's structured output begins with a map that keeps the raw message. A map drops the
    options with which it is called.
    """
    match asked:
        case _ if not options:
            return asked
        case BaseChatModel():
            return asked.bind(**options)
        case RunnableBinding(bound=BaseChatModel()):
            return asked.model_copy(update={"kwargs": {**options, **asked.kwargs}})
        case RunnableBinding():
            return asked.model_copy(update={"bound": bind_options(asked.bound, options)})
        case RunnableSequence():
            return asked.model_copy(update={"first": bind_options(asked.first, options)})
        case RunnableParallel():
            steps = {name: bind_options(step, options) for name, step in asked.steps__.items()}
            return asked.model_copy(update={"steps__": steps})
        case _:
            return asked


Chat: TypeAlias = Runnable[LanguageModelInput, AIMessage]
"""A chat model, or a composition of chat models."""

Make: TypeAlias = Callable[[BaseChatModel, Mapping[str, Any]], Runnable[LanguageModelInput, Any]]
"""Makes a runnable from a chat model and the options bound to it."""


def is_chat(chat: object) -> TypeGuard[Chat]:
    """Return whether an object is a chat model, or a composition of only chat models."""
    if isinstance(chat, BaseChatModel):
        return True
    inner = [*_inside(chat)]
    return bool(inner) and all(map(is_chat, inner))


def _inside(chat: object) -> Iterator[object]:
    match chat:
        case RunnableWithFallbacks():
            yield from chat.runnables
        case RunnableBindingBase():
            yield chat.bound
        case DynamicRunnable():
            yield chat.default


def first_chat_model(chat: object) -> BaseChatModel:
    """Return the chat model that is called first, in the default configuration."""
    while not isinstance(chat, BaseChatModel):
        chat = next(_inside(chat))
    return chat


def bound_options(chat: object) -> dict[str, Any]:
    """Return the options bound to the chat model that is called first."""
    options: dict[str, Any] = {}
    while not isinstance(chat, BaseChatModel):
        if isinstance(chat, RunnableBindingBase):
            options = {**chat.kwargs, **options}
        chat = next(_inside(chat))
    return options


def configure(chat: Chat, config: RunnableConfig | None = None) -> Chat:
    """Replace the configurable parts of a chat model, as the run's configuration requires."""
    match chat:
        case DynamicRunnable():
            chosen = chat.prepare(ensure_config(config))[0]
            # It may be a new model.
            separate_loops(chosen)
            return configure(chosen, config)
        case RunnableBindingBase():
            inner = merge_configs(config, chat.config)
            return chat.model_copy(update={"bound": configure(chat.bound, inner)})
        case RunnableWithFallbacks():
            runnables = [configure(one, config) for one in chat.runnables]
            return chat.model_copy(update={"runnable": runnables[0], "fallbacks": runnables[1:]})
        case _:
            return chat


def compose(
    chat: Chat, make: Make, options: Mapping[str, Any] | None = None
) -> Runnable[LanguageModelInput, Any]:
    """Apply a function to each chat model of a composition, and compose the results likewise.

    LangChain's own methods can't do this: a bound model's `bind_tools` loses the bound options.
    """
    options = options or {}
    match chat:
        case BaseChatModel():
            return make(chat, options)
        case RunnableBindingBase():
            made = compose(chat.bound, make, {**chat.kwargs, **options})
            return chat.model_copy(update={"bound": made, "kwargs": {}})
        case RunnableWithFallbacks():
            made_of = [compose(one, make, options) for one in chat.runnables]
            return chat.model_copy(update={"runnable": made_of[0], "fallbacks": made_of[1:]})
    raise TypeError(f"{type(chat).__name__} is not composed of chat models")
