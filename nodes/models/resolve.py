"""The models of a run, found by name and made ready.

How one is asked is in `nodes.models.model`; which family a name belongs to is in
`nodes.models.adapters.families`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ...graphs.common.settings import Settings, load_settings
from ...graphs.common.validation import name_type
from ...graphs.conversation.conversation import Conversation
from .adapters.base import Adapter
from .adapters.composed import Chat
from .adapters.families import Families, Notify, adapter_of, check_chat, refuse_place
from .adapters.list_prices import ListPrice
from .client.connections import clients_of_loop
from .gate import Gate
from .model import Model
from .settings import CallSettings


@dataclass(eq=False)
class Models:
    """Finds the model for a name.

    Args:
        default: The model if none is named: a LangChain chat model, also with fallbacks, bound or
            configurable, or a name.
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
    _listed: dict[str, ListPrice | None] = field(default_factory=dict)
    """What providers charge for the models, by their labels."""
    _objects: dict[str | None, Adapter] = field(default_factory=dict)
    """The adapters of the chat models that are given as objects, by their names."""
    _families: Families | None = None
    """Finds all others."""

    def __post_init__(self) -> None:
        """Refuse options that would be ignored, so that another model would speak."""
        default, named, chat = self.default, self.named, "a LangChain chat model"
        if not isinstance(default, str | None):
            check_chat(default, f"model must be {chat} or a name, not")
            self._objects[None] = adapter_of(None, default)
        if not isinstance(named, Mapping):
            raise TypeError(f"models must be a dict from names to models, not {name_type(named)}")
        for name, one in named.items():
            check_chat(one, f"models: {name!r} must be {chat}, not")
            self._objects[name] = adapter_of(name, one)

    async def get(self, name: str | None, notify: Notify, gate: Gate | None = None) -> Model:
        """Return the model of this name, started if need be.

        Args:
            name: A registered name, a model's name, ``embedded``, the path of a ``.gguf`` file,
                a provider's name and a model's, or None for the default.
            notify: Is told when something takes a moment.
            gate: What its calls pass. None: what all do.

        Raises:
            ModelUnavailableError: There is none by that name, or it can't be started.
            SpecError: A setting is wrong.
        """
        adapter = await self._find(name, notify)
        default = self.default if isinstance(self.default, str) else None
        called = name or default or adapter.default_name
        label = adapter.label
        if label not in self._listed:
            # It is read from a file.
            self._listed[label] = await asyncio.to_thread(adapter.list_price)
        listed, gate = self._listed[label], gate or self.gate
        return Model(adapter, notify=notify, name=called, listed=listed, gate=gate)

    def refuse_place(self, name: str) -> None:
        """Refuse a name that nobody registered and that says where a model is.

        Raises:
            SpecError: It is a file or an address.
        """
        if name not in self.named:
            refuse_place(name)

    async def _find(self, name: str | None, notify: Notify) -> Adapter:
        if name in self._objects:
            return self._objects[name]
        known = _of_this_loop(self)
        if name not in known:
            if self._families is None:
                # Files are read, which must not hold up other coroutines.
                if self.settings is None:
                    self.settings = await asyncio.to_thread(load_settings)
                self._families = Families(self.settings)
            default = self.default if isinstance(self.default, str) else None
            found = await self._families.find(name or default, notify)
            found.keep_in(known, name)
            return found
        return known[name]

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


def _of_this_loop(models: Models) -> dict[str | None, Adapter]:
    """Return what was found in the running loop; it is forgotten when the loop ends."""
    found = clients_of_loop(asyncio.get_running_loop()).setdefault(Models, WeakKeyDictionary())
    known: dict[str | None, Adapter] = found.setdefault(models, {})
    return known
