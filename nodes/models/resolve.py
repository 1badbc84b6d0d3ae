"""The models that speak, found by name and made ready.

How one is asked is in `nodes.models.model`. Everything but a model given in Python speaks
OpenAI's API through `langchain_openai.ChatOpenAI`; the model that needs no key lives in
`nodes.models.embedded.child`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from ...graphs.common.env_file import is_weights
from ...graphs.common.errors import ModelUnavailableError
from ...graphs.common.settings import Settings, load_settings
from ...graphs.common.validation import kind_of
from ...graphs.spec.conversation import Conversation
from .adapters.base import Adapter, Capabilities
from .adapters.composed import Chat, bound_options, first, is_chat
from .adapters.embedded import Embedded, capabilities
from .adapters.langchain import LangChainModel, ProviderModel
from .adapters.openai_compatible import OpenAICompatible
from .adapters.providers import is_of_provider, loads_files, of_provider, without_openai
from .client.connections import close_with_loop, made_in
from .client.failures import address_of
from .client.origin import is_ours
from .embedded import child as embedded
from .gate import Gate
from .list_prices import ListPrice
from .model import Model, Notify
from .settings import CallSettings

OPENAI_MODEL = "gpt-4.1-mini"
"""The model used at OpenAI itself when none is named."""

EMBEDDED = "embedded"
"""The name of the model that needs no key."""

_NO_MODEL = (
    "There is no model to speak: set OPENAI_API_KEY, or set OPENAI_BASE_URL to the address of a "
    "server that speaks OpenAI's API, or install the embedded model with "
)

TINY = (
    "A tiny model on this machine speaks. It is there to show how things work, not to be clever; "
    "loading it takes a moment."
)
"""What a user is told before the model that needs no key speaks."""


@dataclass(eq=False)
class Models:
    """Finds the model for a name.

    Args:
        default: What speaks where no model is named: a LangChain chat model, also with fallbacks,
            bound or configurable, or a name.
        named: LangChain chat models by the names that specs use.
        settings: Where others are found. None: read when first needed.
        gate: What all their calls pass.

    Raises:
        TypeError: Something is no chat model, such as one with structured output, or has tools
            bound to it; names it.
    """

    default: Chat | str | None = None
    named: Mapping[str, Chat] = field(default_factory=dict)
    settings: Settings | None = None
    gate: Gate | None = None
    _told: set[str | None] = field(default_factory=set)
    _listed: dict[str, ListPrice | None] = field(default_factory=dict)
    """What providers charge for the models, by their labels."""
    _label: str = ""
    """How the default is called, where it is a chat model."""
    _objects: dict[str | None, Adapter] = field(default_factory=dict)
    """The adapters of the chat models that are given as objects, by their names."""
    _first: str | None = None
    """The first model that the server lists, once it has been asked."""

    def __post_init__(self) -> None:
        """Refuse options that would be ignored, so that another model would speak."""
        default, named = self.default, self.named
        chat = "a LangChain chat model"
        if not (isinstance(default, str | None) or is_chat(default)):
            raise TypeError(f"model must be {chat} or a name, not {kind_of(default)}")
        if not isinstance(named, Mapping):
            raise TypeError(f"models must be a dict from names to models, not {kind_of(named)}")
        for name, one in named.items():
            if not is_chat(one):
                raise TypeError(f"models: {name!r} must be {chat}, not {kind_of(one)}")
        if not isinstance(default, str | None):
            self._label = _label(default)
            self._objects[None] = adapter_of(self._label, default)
        self._objects |= {name: adapter_of(name, chat) for name, chat in named.items()}
        for given in (default, *named.values()):
            if is_chat(given) and "tools" in bound_options(given):
                raise TypeError("a model must have no tools of its own: give them to the speakers")

    async def get(self, name: str | None, notify: Notify, gate: Gate | None = None) -> Model:
        """Give the model of this name, started if need be.

        Args:
            name: A registered name, a model's name, ``embedded``, the path of a ``.gguf`` file,
                a provider's name and a model's, or None for the default.
            notify: Is told when something takes a moment.
            gate: What its calls pass. None: what all do.

        Returns:
            The model.

        Raises:
            ModelUnavailableError: There is none by that name, or it can't be started.
            SpecError: A setting is wrong.
        """
        adapter = await self._found(name, notify)
        default = self.default if isinstance(self.default, str) else None
        called = name or default or (EMBEDDED if adapter.capabilities.is_small else None)
        label = adapter.label
        if label not in self._listed:
            # It is read from a file.
            self._listed[label] = await asyncio.to_thread(adapter.list_price)
        listed, gate = self._listed[label], gate or self.gate
        return Model(adapter, notify=notify, name=called, listed=listed, gate=gate)

    def is_place(self, name: str) -> bool:
        """Whether a name that nobody registered says where a model is: a file or an address."""
        return name not in self.named and (is_weights(name) or "://" in name or loads_files(name))

    async def _found(self, name: str | None, notify: Notify) -> Adapter:
        if name in self._objects:
            return self._objects[name]
        found = _of_this_loop(self).get(name)
        if found is None:
            found = await self._looked_up(name, notify)
            # A child of this process may end, and is then to be started again.
            if not isinstance(found, Embedded):
                _of_this_loop(self)[name] = found
        return found

    async def _looked_up(self, name: str | None, notify: Notify) -> Adapter:
        # Files are read and connections prepared, which must not hold up other coroutines.
        if self.settings is None:
            self.settings = await asyncio.to_thread(load_settings)
        settings = self.settings
        name = name or (self.default if isinstance(self.default, str) else None) or settings.model
        if name is not None and is_of_provider(name):
            chat = await asyncio.to_thread(of_provider, name)
            return ProviderModel(name, chat, settings.max_reply_size)
        loop = asyncio.get_running_loop()
        await close_with_loop()
        if await asyncio.to_thread(is_local, name, settings):
            # Every turn asks for its model, and once is enough to be told.
            if name not in self._told:
                self._told.add(name)
                notify(TINY if name in (None, EMBEDDED) else f"Loading {name}.")
            return await asyncio.to_thread(_embedded, name, loop, settings)
        if settings.notice is not None and settings.notice not in self._told:
            self._told.add(settings.notice)
            notify(settings.notice)
        if name is None and self._first is None:
            self._first = await _first_listed(settings, notify)
        called = without_openai(name or str(self._first))
        return await asyncio.to_thread(_remote, called, loop, settings)

    async def prepare(self, conversation: Conversation, notify: Notify) -> None:
        """Find every model that a conversation needs, before it begins.

        Raises:
            ModelUnavailableError: One can't be had.
            SpecError: A price is missing.
        """
        for name in conversation.model_names:
            model = await self.get(name, notify)
            model.check_price(conversation)
            for where, model_settings in conversation.settings_of(name):
                model.adapter.check(CallSettings.of(model_settings, where))


def adapter_of(label: str, chat: Chat) -> Adapter:
    """Return the adapter of a chat model that is given as an object."""
    return OpenAICompatible(label, chat) if is_ours(chat) else LangChainModel(label, chat)


def _of_this_loop(models: Models) -> dict[str | None, Adapter]:
    """What was found in the running loop; forgotten with its clients, when it ends."""
    found = made_in(asyncio.get_running_loop()).setdefault(Models, WeakKeyDictionary())
    known: dict[str | None, Adapter] = found.setdefault(models, {})
    return known


def is_local(name: str | None, settings: Settings) -> bool:
    """Whether a name means a model that runs on this machine as a child of ours."""
    if name is not None and (name == EMBEDDED or is_weights(name)):
        return True
    if settings.api_key is not None or settings.base_url is not None:
        return False
    if name is not None:
        raise ModelUnavailableError(
            f"model {name!r} needs a server: set OPENAI_API_KEY for OpenAI's own, or "
            f"OPENAI_BASE_URL for another; or use {EMBEDDED!r}"
        )
    if not embedded.is_available():
        raise ModelUnavailableError(no_model())
    return True


def capabilities_of(name: str | None, label: str | None) -> Capabilities:
    """Return the capabilities of the model that has spoken.

    Args:
        name: The conversation's name for the model.
        label: Its label in the usage.
    """
    file = embedded.weights()
    if name == EMBEDDED or (name is None and file is not None and label == file.stem):
        return capabilities(is_small=True)
    return capabilities(is_small=False) if name is not None and is_weights(name) else Capabilities()


def no_model() -> str:
    """Say what to do where there is no model at all."""
    return _NO_MODEL + embedded.how_to_install()


def _label(given: Chat) -> str:
    chat = first(given)
    named = getattr(chat, "model_name", None) or getattr(chat, "model", None)
    return named if isinstance(named, str) else type(chat).__name__


# The client of OpenAI is imported where there is one to make: it costs a second, in a thread.


def _remote(name: str, loop: asyncio.AbstractEventLoop, settings: Settings) -> Adapter:
    from .client.clients import client

    url = settings.base_url
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    chat = client(loop, settings, url, key, name)
    return OpenAICompatible(name, chat, address_of(settings))


def _embedded(name: str | None, loop: asyncio.AbstractEventLoop, settings: Settings) -> Adapter:
    from .client.clients import client

    path = None if name in (None, EMBEDDED) else Path(str(name))
    server = embedded.embedded_server(path, settings.embedded_context)
    # Without a bound llama.cpp writes until the context is full.
    most = embedded.MAX_TOKENS if path is None else embedded.MAX_TOKENS_OF_A_FILE
    chat = client(loop, settings, server.url, server.api_key, server.model, most, is_child=True)
    context = settings.embedded_context
    return Embedded(server.model, chat, n_ctx=context, is_small=path is None)


def _listing() -> Callable[[Settings, Notify], Awaitable[list[str]]]:
    from .client.clients import listed

    return listed


async def _first_listed(settings: Settings, notify: Notify) -> str:
    """The model for a server where none is named: OpenAI's default, or the first it lists."""
    if settings.base_url is None:
        return OPENAI_MODEL
    listed = await asyncio.to_thread(_listing)
    names = await listed(settings, notify)
    if not names:
        raise ModelUnavailableError(
            f"the model server at {address_of(settings)} lists no model: name one"
        )
    return names[0]
