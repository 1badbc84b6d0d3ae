"""The models of a run, which answer with a message or with an instance of a schema.

`nodes.models.adapters.families` finds the family of a name. The other adapters call the models of
each family.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack
from uuid import uuid4
from weakref import WeakKeyDictionary

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from ...graphs.common.content import Block, files_of, hide_files
from ...graphs.common.errors import (
    ContextTooLongError,
    ModelError,
    SpecError,
    list_names,
    name_type,
)
from ...graphs.common.settings import Settings, load_settings
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.usage import Price
from ...graphs.ends.limits import ends_by_money
from ...graphs.log.metadata import ModelOutput, Speech, kind_name
from ...graphs.speakers.formats import LabelledFormat
from ...graphs.speakers.reply_parts import StopCause
from ...graphs.speakers.structured_answers import read_structured
from ...graphs.text.structures import UnreadableJsonError
from ...graphs.text.words import tokens_of_message
from .adapters.base import (
    Adapter,
    Repeat,
    SettingRefusedError,
    ToolCalling,
    answer_to_end,
    make_call,
)
from .adapters.composed import Chat
from .adapters.families import Families, Notify, adapter_of, check_chat, refuse_place
from .adapters.provider_parameters import ListPrice, list_price, load_list
from .answers import count_usage, get_thought
from .client.failures import name_of
from .connections import clients_of_loop
from .gate import Gate, GatedCall, PlannedCall, StepGate
from .listeners import Listener, OrderedListeners
from .recorder import ModelRequest, calling_model, current_recorder
from .refusals import find_refusal
from .settings import CallSettings
from .stops import has_hidden_thought, settle_stop, stop_of
from .tool_binding import ObjectOffer, ToolOffer, choose_offer

NO_STREAM = "nostream"
"""Value of LangGraph's `TAG_NOSTREAM`, whose import would take about a second."""

_NOT_SHOWN = (
    "{} does not accept {}, so it reads a short description of each; choose another model, or set "
    "model_settings.attachments = true if it accepts them."
)
_PLURALS = {"image": "images", "audio": "audio files", "file": "PDFs"}

_NO_END = (
    "{} sends no finish reason, so it is not known whether a reply is complete; its replies are "
    "marked as cut off."
)

_NOT_VALID = 400
"""HTTP status of an invalid request."""


def _ignore(text: str) -> None:
    """Drop a notice."""


S = TypeVar("S", bound=BaseModel)


class CallOptions(TypedDict, total=False):
    """Further options of a model call."""

    speaker: str | None
    """Name of the speaker whose model is called. None for a judge."""
    listeners: Sequence[Listener]
    """Callbacks that listen to the answer while it is streamed."""
    private: bool
    """Whether the answer is not streamed as a chat message."""


@dataclass(frozen=True)
class Model:
    """A model that is ready to be called."""

    adapter: Adapter
    """The adapter through which the model is called."""
    notify: Notify = _ignore
    """Called with a notice when an answer takes longer than expected."""
    name: str | None = None
    """Name of the model in the conversation. None if it has no name there."""
    listed: ListPrice | None = None
    """The provider's price, used if a conversation has no prices. None if the price is not known.
    """
    gate: StepGate | None = None
    """The gate through which the model's calls pass. No gate if None."""
    warned: set[str] = field(default_factory=set)
    """The warnings that the session has received, so that each is sent once."""

    @property
    def label(self) -> str:
        """Name of the model in usage and errors."""
        return self.adapter.label

    def price(self, prices: Mapping[str, Price]) -> Price | ListPrice | None:
        """Return the model's price in a table, by its label or its name, or None.

        If the table is empty, return the provider's list price.
        """
        if not prices:
            return self.listed
        return prices.get(self.label) or prices.get(self.name or "")

    def check_price(self, conversation: Conversation) -> None:
        """Raise SpecError if the price is unknown and the conversation or the gate needs it."""
        prices = conversation.prices
        counts_money = ends_by_money(conversation.end_chat.when) or (
            self.gate is not None and self.gate.needs_prices
        )
        if (prices or counts_money) and self.price(prices) is None:
            why = f"the table has {list_names(prices)}" if prices else "max_cost needs a price"
            raise SpecError(f"prices: the model {self.label!r} has no price ({why}); add one")

    async def answer(
        self,
        messages: Sequence[BaseMessage],
        settings: CallSettings,
        *,
        purpose: type[ModelOutput],
        marks: LabelledFormat | None = None,
        tools: Sequence[BaseTool] = (),
        tool_choice: str = "auto",
        tool_calling: ToolCalling | None = None,
        **options: Unpack[CallOptions],
    ) -> AIMessage:
        """Call the model for one message."""
        offers = choose_offer(self.adapter.prompting, tool_calling)
        offer = offers(tools, tool_choice, marks)
        return await self._call(offer, messages, settings, purpose, **options)

    async def answer_by_schema(
        self,
        messages: Sequence[BaseMessage],
        schema: type[S],
        settings: CallSettings,
        *,
        purpose: type[ModelOutput],
        instead: str,
        tool_calling: ToolCalling | None = None,
        **options: Unpack[CallOptions],
    ) -> tuple[AIMessage, S | None]:
        """Call the model for an answer that matches a schema.

        Returns the answer, and the instance of the schema, or None if the answer does not match.
        """
        offers = choose_offer(self.adapter.prompting, tool_calling)
        offer = ObjectOffer(offers(), schema, instead)
        try:
            answer = await self._call(offer, messages, settings, purpose, **options)
        except ModelError as error:
            if not _is_refused(error):
                raise
            # Servers that do not know `response_format` refuse it in many different ways.
            raise ModelError(
                f"{error}; if it does not support structured output, set {instead}"
            ) from error
        try:
            # LangChain repairs truncated JSON, but a partial answer must not count as complete.
            return answer, read_structured(schema, answer.text)
        except (ValidationError, UnreadableJsonError):
            return answer, None

    def _hide_files(
        self, messages: Sequence[BaseMessage], settings: CallSettings
    ) -> Sequence[BaseMessage]:
        """Return a prompt in which a description replaces each file that the model can't read."""
        if {type(one.content) for one in messages} <= {str}:
            return messages

        def is_hidden(block: Block) -> bool:
            if settings.attachments is not None:
                return not settings.attachments
            kind = block["type"]
            if self.adapter.accepts_file(kind) is not False:
                return False
            self._warn(_NOT_SHOWN.format(self.label, _PLURALS[kind]))
            return True

        return [
            one
            if isinstance(one.content, str)
            else one.model_copy(update={"content": hide_files(one.content, is_hidden)})
            for one in messages
        ]

    def _warn(self, text: str) -> None:
        """Send a warning, once per session."""
        if text not in self.warned:
            self.warned.add(text)
            self.notify(text)

    def _read(
        self, offer: ToolOffer, found: object, prompt: Sequence[BaseMessage], sent: CallSettings
    ) -> AIMessage:
        """Return an answer with its usage, and with the stop that follows from all of it."""
        adapter = self.adapter
        answer = count_usage(offer.read(found, adapter), prompt, adapter.options_of(sent))
        if (stop := stop_of(answer)) is None:
            return answer
        if stop.cause is StopCause.NO_END:
            self._warn(_NO_END.format(name_of(self.label, adapter.address)))
        limit = sent.values.get("max_tokens", adapter.longest_answer)
        has_thought = get_thought(answer) is not None or has_hidden_thought(found)
        return settle_stop(answer, stop, limit, has_thought=has_thought)

    async def _call(
        self,
        offer: ToolOffer,
        messages: Sequence[BaseMessage],
        settings: CallSettings,
        purpose: type[ModelOutput],
        *,
        speaker: str | None = None,
        listeners: Sequence[Listener] = (),
        private: bool = False,
    ) -> AIMessage:
        """Call the model with retries, and read the answer. The adapter converts the errors."""
        adapter, caller = self.adapter, speaker or "Judge"
        prompt = offer.prompt(self._hide_files(messages, settings), adapter.prompting)
        purpose = offer.show_as(purpose)

        async def call_once(sent: CallSettings, repeat: Repeat) -> AIMessage:
            shown: dict[str, Any] = {"purpose": kind_name(purpose), "speaker": speaker}
            name = purpose.run_name.format(speaker=caller)
            config = RunnableConfig(metadata=shown, run_name=name)
            if private or purpose is not Speech:
                # Streams of chat messages leave out calls with this tag, and AG-UI's adapter leaves
                # out calls with these metadata.
                config["tags"] = [NO_STREAM]
                shown |= dict.fromkeys(("emit-messages", "emit-tool-calls"), False)
            if listeners and offer.is_shown:
                # Without merging, these callbacks would replace those of the run.
                config["callbacks"] = [OrderedListeners(listeners)]
                config = merge_configs(ensure_config(), config)

            def call(paused: Sequence[BaseMessage]) -> Awaitable[object]:
                # The id separates the streamed pieces of one attempt from those of another.
                shown["answer"] = uuid4().hex
                ask = offer.ask(adapter, sent, purpose)
                return ask([*adapter.own_messages(prompt), *paused], config)

            found = adapter.check_size(await answer_to_end(call, repeat, adapter.label))
            return self._read(offer, found, prompt, sent)

        at_gate = None
        if self.gate is not None:
            tokens = sum(map(tokens_of_message, prompt))
            planned = PlannedCall(self.label, tokens)
            at_gate = GatedCall(self.gate, planned, adapter.server)
        call = partial(make_call, adapter, settings, call_once, at_gate=at_gate, notify=self.notify)
        recorder = current_recorder()
        try:
            if recorder is None:
                return await call()
            request = ModelRequest(self.label, caller, prompt, settings.values, offer.describe())
            return await recorder.answer(request, call)
        except ContextTooLongError as error:
            error.estimate = sum(map(tokens_of_message, prompt))
            raise
        except ModelError as error:
            if not _is_refused(error) or not any(files_of(one.content) for one in prompt):
                raise
            advice = f"if it does not accept these files, set {settings.where}.attachments = false"
            raise ModelError(f"{error}; {advice}") from error


def _is_refused(error: ModelError) -> bool:
    """Return whether a model has refused a request as invalid, for a reason that is not known."""
    if isinstance(error, ContextTooLongError | SettingRefusedError) or error.__cause__ is None:
        return False
    found = find_refusal(error.__cause__)
    return found is not None and found.status == _NOT_VALID


@dataclass(eq=False)
class Models:
    """The models of a run, by name.

    Args:
        default: The model of speakers that name none: a name, or a LangChain chat model. The chat
            model may have fallbacks, bound arguments or configurable fields.
        named: LangChain chat models by the names that specs use.
        settings: Settings of duologue, by which all other models are found. Loaded at the first
            use if None.
        gate: The gate through which all calls of these models pass. No gate if None.

    Raises:
        TypeError: An object is not a chat model, for example because it has structured output, or
            it has tools bound to it. The message names the object.
    """

    default: Chat | str | None = None
    named: Mapping[str, Chat] = field(default_factory=dict)
    settings: Settings | None = None
    gate: Gate | None = None
    _listed: dict[str, ListPrice | None] = field(default_factory=dict)
    """The providers' prices for the models, by their labels."""
    _objects: dict[str | None, Adapter] = field(default_factory=dict)
    """Adapters of the chat models that were passed as objects, by name."""
    _families: Families | None = None
    """The finder of all other models. Created at the first use."""

    def __post_init__(self) -> None:
        """Refuse objects that are not chat models. Otherwise, another model would speak."""
        default, named, chat = self.default, self.named, "a LangChain chat model"
        if not isinstance(default, str | None):
            check_chat(default, f"model: must be {chat} or a name, not")
            self._objects[None] = adapter_of(None, default)
        if not isinstance(named, Mapping):
            raise TypeError(f"models: must be a dict from names to models, not {name_type(named)}")
        for name, one in named.items():
            check_chat(one, f"models: {name!r} must be {chat}, not")
            self._objects[name] = adapter_of(name, one)

    async def get(
        self,
        name: str | None,
        notify: Notify,
        gate: StepGate | None = None,
        warned: set[str] | None = None,
    ) -> Model:
        """Return the model of this name, and start it if needed.

        Args:
            name: A registered name, a server's name for a model, ``embedded``, the path of a
                ``.gguf`` file, or a name with a provider, such as ``anthropic:claude-…``. The
                default model if None.
            notify: Called with a notice before a step that takes a moment.
            gate: The gate through which the model's calls pass. No gate if None.
            warned: The warnings that the session has received. None if it has received none.

        Raises:
            ModelUnavailableError: There is no model of this name, or it can't be started.
            SpecError: A setting is invalid.
        """
        adapter = await self._find_or_replace(name, notify)
        default = self.default if isinstance(self.default, str) else None
        called = name or default or adapter.default_name
        label = adapter.label
        if label not in self._listed:
            self._listed[label] = None
            if adapter.first is not None and await load_list():
                self._listed[label] = list_price(adapter.first)
        warned = set() if warned is None else warned
        return Model(adapter, notify, called, self._listed[label], gate, warned)

    def refuse_place(self, name: str) -> None:
        """Refuse a file or an address as the name of a model, unless the name is registered.

        Raises:
            SpecError: The name is a file or an address.
        """
        if name not in self.named:
            refuse_place(name)

    async def _find_or_replace(self, name: str | None, notify: Notify) -> Adapter:
        """Find a model, unless a recorder replaces it. Objects are found without a server."""
        recorder = current_recorder()
        if recorder is None or name in self._objects:
            return await self._find(name, notify)
        called = name or (self.default if isinstance(self.default, str) else None)
        if (replacement := recorder.find_adapter(called)) is not None:
            return replacement
        with calling_model():
            adapter = await self._find(name, notify)
        recorder.add_adapter(called, adapter)
        return adapter

    async def _find(self, name: str | None, notify: Notify) -> Adapter:
        if name in self._objects:
            return self._objects[name]
        # They are dropped when the event loop ends.
        of_loop = clients_of_loop(asyncio.get_running_loop()).setdefault(
            Models, WeakKeyDictionary()
        )
        known: dict[str | None, Adapter] = of_loop.setdefault(self, {})
        if name not in known:
            if self._families is None:
                # Reading files must not block other coroutines.
                if self.settings is None:
                    self.settings = await asyncio.to_thread(load_settings)
                self._families = Families(self.settings, self.gate)
            default = self.default if isinstance(self.default, str) else None
            found = await self._families.find(name or default, notify)
            if found.is_lasting:
                known[name] = found
            return found
        return known[name]

    async def prepare(
        self, conversation: Conversation, notify: Notify, judges: Sequence[str] = ()
    ) -> None:
        """Find every model that a conversation needs, before it begins.

        Args:
            conversation: The conversation.
            notify: Called with a notice before a step that takes a moment.
            judges: The names of models that judge the conversation, besides its own.

        Raises:
            ModelUnavailableError: A model is not available.
            SpecError: A price is missing, or a setting is invalid.
        """
        gate = None if self.gate is None else StepGate(self.gate)
        for name in (*conversation.model_names, *judges):
            model = await self.get(name, notify, gate)
            model.check_price(conversation)
            for where, model_settings in conversation.settings_of(name):
                model.adapter.check(CallSettings.make(model_settings, where))
