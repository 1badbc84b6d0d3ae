"""Lookup of the adapter for a model's name or object, and of the available models."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakKeyDictionary

from ....graphs.common.addresses import has_secret, show_address
from ....graphs.common.errors import ModelUnavailableError, SpecError, name_type
from ....graphs.common.hints import suggest_value
from ....graphs.common.settings import Settings, is_weights
from ..client.failures import address_of
from ..connections import close_with_loop
from . import embedded
from .base import LOCAL, NATIVE, SMALL, Adapter, Prompting
from .composed import Chat, bound_options, is_chat, label_of
from .langchain import LangChainModel, is_of_provider, loads_files, make_model, strip_openai
from .openai_compatible import OpenAICompatible, is_ours, reach_model

OPENAI_MODEL = "gpt-4.1-mini"
"""The model at OpenAI itself if none is named."""

TINY = (
    "A tiny model on this machine speaks. It shows how things work, but it is not clever. "
    "Loading it takes a moment."
)
"""Notice before the embedded model speaks."""

_NO_MODEL = (
    "there is no model; set OPENAI_API_KEY, or set OPENAI_BASE_URL to the address of a server with "
    "OpenAI's API, or install the embedded model with "
)

Notify = Callable[[str], None]
"""Called with one line that informs the user about progress."""


_first_of_batches: Final = WeakKeyDictionary[object, dict[str | None, str]]()
"""The first model that each server listed, by the gate of a batch and the server's address. If a
session begins while the server is down, it still knows its model.
"""


class Families:
    """The adapters of models, by name.

    Args:
        settings: The settings of duologue.
        gate: The gate of a batch, whose sessions all use the model that the server listed first.
    """

    def __init__(self, settings: Settings, gate: object | None = None) -> None:
        self._settings = settings
        self._told = set[str | None]()
        """The notices that were shown, and the models that were announced."""
        self._first: dict[str | None, str] = {}
        """The first model that each server listed, by address."""
        if gate is not None:
            self._first = _first_of_batches.setdefault(gate, self._first)

    async def find(self, name: str | None, notify: Notify) -> Adapter:
        """Return the adapter of a model. Files are read in threads.

        Args:
            name: A name with a provider, such as ``anthropic:claude-…``, or ``embedded``, or the
                path of a ``.gguf`` file, or the server's name for a model. If None, the model of
                the settings, or the server's default, or the embedded model.
            notify: Called with a notice before a step that takes a moment.

        Raises:
            ModelUnavailableError: There is no model of this name, or it can't be started.
        """
        settings = self._settings
        name = name or settings.model
        if name is not None and has_secret(name):
            # The log of a session contains the names of models.
            raise ModelUnavailableError(
                f"model {show_address(name)!r} is an address with a secret; set OPENAI_BASE_URL to "
                "it, and name a model of the server"
            )
        if name is not None and is_of_provider(name):
            return await asyncio.to_thread(make_model, name, settings)
        loop = asyncio.get_running_loop()
        await close_with_loop()
        if await asyncio.to_thread(_is_here, name, settings):
            self._tell_once(
                name, TINY if name in (None, embedded.EMBEDDED) else f"Loading {name}.", notify
            )
            return await asyncio.to_thread(embedded.serve_model, name, loop, settings)
        if settings.notice is not None:
            self._tell_once(settings.notice, settings.notice, notify)
        if name is None:
            if settings.base_url not in self._first:
                self._first[settings.base_url] = await _find_default_name(settings, notify)
            name = self._first[settings.base_url]
        called = strip_openai(name)
        return await asyncio.to_thread(reach_model, called, loop, settings)

    def _tell_once(self, key: str | None, text: str, notify: Notify) -> None:
        # Every turn looks up its model.
        if key not in self._told:
            self._told.add(key)
            notify(text)


def check_chat(chat: object, error: str) -> None:
    """Check that an object is a chat model or a composition of chat models, without bound tools.

    Args:
        chat: The object.
        error: The beginning of the error message, to which the object's type is added.

    Raises:
        TypeError: The object is not a chat model, or has tools bound to it.
    """
    if not is_chat(chat):
        is_near = isinstance(chat, type) or hasattr(chat, "_llm_type")
        remedy = "" if is_near else suggest_value("model", chat)
        raise TypeError(f"{error} {name_type(chat)}{remedy}")
    if "tools" in bound_options(chat):
        raise TypeError("a model must not have tools bound to it; add the tools to the speakers")


def adapter_of(label: str | None, chat: Chat) -> Adapter:
    """Return the adapter of a chat model that was passed as an object.

    Args:
        label: Name of the model in usage and errors. The chat model's own name if None.
        chat: The chat model.
    """
    label = label_of(chat) if label is None else label
    return OpenAICompatible(label, chat) if is_ours(chat) else LangChainModel(label, chat)


def find_prompting(name: str | None, label: str | None) -> Prompting:
    """Return the `Prompting` of a model that has spoken.

    Args:
        name: The conversation's name for the model. None if the conversation names no model.
        label: The model's label in the usage, or None.
    """
    file = embedded.weights()
    if name == embedded.EMBEDDED or (name is None and file is not None and label == file.stem):
        return SMALL
    return LOCAL if name is not None and is_weights(name) else NATIVE


def refuse_place(name: str) -> None:
    """Refuse a name that is a file or an address.

    Raises:
        SpecError: The name is a file or an address.
    """
    if is_weights(name) or "://" in name or loads_files(name):
        raise SpecError(
            f"model: {name!r} is a file or an address, which is not allowed here; name a "
            "model of the server, or build the graph with allow_paths=True"
        )


def no_model() -> str:
    """Return the advice for a user who has no model at all."""
    return _NO_MODEL + embedded.how_to_install()


def describe_local_model() -> str:
    """Return one line about the embedded model, or how to install it."""
    file = embedded.weights() if embedded.is_available() else None
    if file is None:
        return f"not installed; run {embedded.how_to_install()}"
    return f"{embedded.EMBEDDED}  ({file.stem}, tiny: it shows how things work)"


def server_of(settings: Settings) -> str | None:
    """Return the address of the model server, or None if there is none."""
    return address_of(settings) if _has_server(settings) else None


async def list_models(settings: Settings, notify: Notify) -> list[str]:
    """Return the server's names for its models.

    Raises:
        ModelUnavailableError: The server does not list its models.
    """

    def load() -> Callable[[Settings, Notify], Awaitable[list[str]]]:
        from ..client.clients import fetch_model_names

        return fetch_model_names

    # In a thread, since it imports OpenAI's client.
    return await (await asyncio.to_thread(load))(settings, notify)


def default_model(settings: Settings, names: list[str]) -> str:
    """Return the model of a conversation that names none, or the advice if there is none.

    Args:
        settings: The settings of duologue.
        names: The models that the server lists.
    """
    if settings.model is not None:
        return settings.model
    if _has_server(settings):
        return next(iter(names), "none") if settings.base_url is not None else OPENAI_MODEL
    return embedded.EMBEDDED if embedded.is_available() else no_model()


def _has_server(settings: Settings) -> bool:
    return settings.api_key is not None or settings.base_url is not None


def _is_here(name: str | None, settings: Settings) -> bool:
    """Return whether a name means a model that runs in a child of this process."""
    if name is not None and (name == embedded.EMBEDDED or is_weights(name)):
        return True
    if _has_server(settings):
        return False
    if name is not None:
        raise ModelUnavailableError(
            f"model {name!r} needs a server; set OPENAI_API_KEY for OpenAI's own, set "
            f"OPENAI_BASE_URL for another, or use {embedded.EMBEDDED!r}"
        )
    if not embedded.is_available():
        raise ModelUnavailableError(no_model())
    return True


async def _find_default_name(settings: Settings, notify: Notify) -> str:
    """Return the default model of a server: OpenAI's default, or the first in the server's list."""
    if settings.base_url is None:
        return OPENAI_MODEL
    names = await list_models(settings, notify)
    if not names:
        raise ModelUnavailableError(
            f"the model server at {address_of(settings)} lists no models; name one"
        )
    return names[0]
