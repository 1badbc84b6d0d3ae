"""LangChain chat models, and their compositions: with fallbacks, bound or configurable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
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

from ..answers import FAMILY
from ..connections import separate_loops
from ..opaque_fields import (
    drop_thoughts,
    family_of,
    lacks_thought,
    messages_with_fields,
    prepare_prompt,
)
from ..refusals import excerpt_of
from .provider_parameters import Prepared


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

Prepare: TypeAlias = Callable[[BaseChatModel, Mapping[str, Any]], Prepared]
"""Returns a chat model and the arguments of a call, from a chat model and its bound arguments."""

Make: TypeAlias = Callable[[Prepared], Runnable[LanguageModelInput, Any]]
"""Makes the runnable that calls a chat model with the arguments of a call."""


def is_chat(chat: object) -> TypeGuard[Chat]:
    """Return whether an object is a chat model, or a composition of only chat models."""
    if isinstance(chat, BaseChatModel):
        return True
    inner = [*_list_inner(chat)]
    return bool(inner) and all(map(is_chat, inner))


def _list_inner(chat: object) -> Iterator[object]:
    match chat:
        case RunnableWithFallbacks():
            yield from chat.runnables
        case RunnableBindingBase():
            yield chat.bound
        case DynamicRunnable():
            yield chat.default


def chat_models_in(chat: object) -> Iterator[BaseChatModel]:
    """Yield the chat models of a composition."""
    if isinstance(chat, BaseChatModel):
        yield chat
        return
    for each in _list_inner(chat):
        yield from chat_models_in(each)


def first_chat_model(chat: object) -> BaseChatModel:
    """Return the chat model that is called first, in the default configuration."""
    return next(chat_models_in(chat))


def bound_options(chat: object) -> dict[str, Any]:
    """Return the options bound to the chat model that is called first."""
    options: dict[str, Any] = {}
    while not isinstance(chat, BaseChatModel):
        if isinstance(chat, RunnableBindingBase):
            options = {**chat.kwargs, **options}
        chat = next(_list_inner(chat))
    return options


def label_of(chat: Chat) -> str:
    """Return the name of a user's chat model in usage and errors."""
    asked = first_chat_model(chat)
    named = getattr(asked, "model_name", None) or getattr(asked, "model", None)
    return named if isinstance(named, str) else type(asked).__name__


class AsyncRunnable(Runnable[Sequence[BaseMessage], Any]):
    """A runnable that is only called asynchronously."""

    def invoke(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error, since adapters call models only asynchronously."""
        raise NotImplementedError


class Member(AsyncRunnable):
    """A chat model of a composition, which receives the opaque fields of its own family only.

    Its answers name the family.

    Args:
        call: The chat model and the arguments of the call.
        make: Makes the runnable that calls the model.
    """

    def __init__(self, call: Prepared, make: Make) -> None:
        self._call = call
        self._make = make
        self._family = family_of(call.chat)
        # Now, since the model may not support what the call needs.
        self._asked = make(call)

    async def ainvoke(
        self,
        input: Sequence[BaseMessage],  # noqa: A002  # as in the base class
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401
        """Call the model."""
        asked, prompt = self._ready(input)
        try:
            found = await asked.ainvoke(prompt, config, **kwargs)
        except Exception as error:
            _failures.get([]).append(f"{label_of(self._call.chat)}: {excerpt_of(error)}")
            raise
        if isinstance(found, AIMessage):
            metadata = {**found.response_metadata, FAMILY: self._family.name}
            return found.model_copy(update={"response_metadata": metadata})
        return found

    def _ready(
        self, messages: Sequence[BaseMessage]
    ) -> tuple[Runnable[LanguageModelInput, Any], Sequence[BaseMessage]]:
        """Return the runnable and the prompt of a call."""
        prompt = prepare_prompt(messages, self._family)
        setting, (chat, options) = self._family.thinking, self._call
        if setting is not None and lacks_thought(prompt):
            thinking = options.get(setting, getattr(chat, setting, None)) or {}
            if thinking.get("type") == "enabled":
                left = {name: value for name, value in options.items() if name != setting}
                plain = chat.model_copy(update={setting: None})
                return self._make(Prepared(plain, left)), drop_thoughts(prompt)
        if prompt is not messages and (sent := messages_with_fields(chat, prompt)) is not None:
            own = options.get("extra_body", getattr(chat, "extra_body", None)) or {}
            body = {**own, "messages": sent}
            return self._make(Prepared(chat, {**options, "extra_body": body})), prompt
        return self._asked, prompt


def member_of(chat: BaseChatModel, options: Mapping[str, Any] | None = None) -> Member:
    """Return a chat model that is called with these arguments, without tools or a schema."""
    return Member(Prepared(chat, options or {}), lambda call: bind_options(*call))


_failures: Final[ContextVar[list[str]]] = ContextVar("_failures")
"""The errors of the members that failed in the current call of a composition with fallbacks."""

TRIED: Final = "all models failed: "
"""Beginning of the note of an error that lists the models with fallbacks that failed."""


class _Fallbacks(AsyncRunnable):
    """A composition with fallbacks, whose error lists the models that failed.

    Args:
        chat: The composition.
    """

    def __init__(self, chat: RunnableWithFallbacks[Any, Any]) -> None:
        self._chat = chat

    async def ainvoke(
        self,
        input: Sequence[BaseMessage],  # noqa: A002  # as in the base class
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401
        """Call the models in turn until one answers."""
        failed: list[str] = []
        token = _failures.set(failed)
        try:
            return await self._chat.ainvoke(input, config, **kwargs)
        except Exception as error:
            # A model may have failed several times in the same way.
            if len(once := dict.fromkeys(failed)) > 1:
                error.add_note(TRIED + "; ".join(once))
            raise
        finally:
            _failures.reset(token)


def compose(
    chat: Chat,
    prepare: Prepare,
    make: Make,
    options: Mapping[str, Any] | None = None,
    config: RunnableConfig | None = None,
) -> Runnable[Any, Any]:
    """Apply functions to each chat model of a composition, and compose the results likewise.

    Configurable parts are replaced, as the run's configuration requires.

    LangChain's own methods can't do this: a bound model's `bind_tools` loses the bound options.

    Args:
        chat: The chat model, or a composition of chat models.
        prepare: Returns a chat model and the arguments of a call, from a chat model and the
            arguments bound to it.
        make: Makes the runnable that calls a prepared model.
        options: The arguments bound to the chat model.
        config: The configuration bound to the chat model.
    """
    options = options or {}
    match chat:
        case BaseChatModel():
            return Member(prepare(chat, options), make)
        case DynamicRunnable():
            chosen = chat.prepare(ensure_config(config))[0]
            # It may be a new model.
            separate_loops(chosen)
            return compose(chosen, prepare, make, options, config)
        case RunnableBindingBase():
            inner = merge_configs(config, chat.config)
            made = compose(chat.bound, prepare, make, {**chat.kwargs, **options}, inner)
            return chat.model_copy(update={"bound": made, "kwargs": {}})
        case RunnableWithFallbacks():
            made_of = [compose(one, prepare, make, options, config) for one in chat.runnables]
            update = {"runnable": made_of[0], "fallbacks": made_of[1:]}
            return _Fallbacks(chat.model_copy(update=update))
    raise TypeError(f"{type(chat).__name__} is not composed of chat models")
