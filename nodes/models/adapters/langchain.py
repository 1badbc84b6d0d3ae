"""LangChain chat models: objects of the user's, and models made by the name of a provider."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from ....graphs.log.metadata import ModelOutput
from ....graphs.speakers.formats import LabelledFormat
from ..adapters.native import offering
from ..client.failures import refusals
from ..client.forms import form_of_calls
from ..list_prices import ListPrice, list_price
from ..settings import CallSettings
from ..tool_calling.by_schema import answer_schema
from .base import Adapter, Ask, Capabilities, Offer
from .binding import binding
from .composed import Chat, bound_options, composed, configured, first
from .dialects import Prepared, check_extra, dialect_of, prepared
from .providers import provider_failures
from .refused import Learned, learned_of_name, learned_of_object
from .structured import ask_with_schema


class LangChainModel(Adapter):
    """A chat model of the user's, or a composition of some.

    Its errors are the user's to read, unless many sessions meet them.
    """

    def __init__(self, label: str, chat: Chat, learned: Learned | None = None) -> None:
        super().__init__(label, learned or learned_of_object(chat))
        self.chat = chat
        self._first = first(chat)
        self._dialect = dialect_of(self._first)
        self._limit = self._dialect.names.get("max_tokens", "max_tokens")
        keeps = getattr(type(self._first), "keeps_broken_calls", False)
        self.capabilities = Capabilities(keeps_broken_calls=keeps)

    @property
    def longest_answer(self) -> int | None:
        """The limit on answers, in tokens, of calls that set none. None: it is not known."""
        own = getattr(self._first, self._limit, None)
        is_plain = self.chat is self._first
        most = own if is_plain else bound_options(self.chat).get(self._limit, own)
        return most if isinstance(most, int) else None

    @property
    def limits_answers(self) -> bool:
        """Whether the client is known to have a setting for the longest answer."""
        return self._limit in type(self._first).model_fields

    def check(self, settings: CallSettings) -> None:
        """Check that the client has the settings that the user set, and that each is set once."""
        super().check(settings)
        check_extra(self._first, settings)

    def has(self, name: str) -> bool:
        """Return whether the client has a setting."""
        return name not in self._dialect.missing

    def sent_names(self, settings: CallSettings) -> Mapping[str, str]:
        """Return the client's names for the settings of a call, by ours."""
        names = self._dialect.names
        return {name: names.get(name, name) for name in (*settings.values, *settings.extra_args)}

    def answer(
        self,
        settings: CallSettings,
        offer: Offer | None,
        marks: LabelledFormat | None,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a message."""

        def prepare(chat: BaseChatModel, bound: Mapping[str, Any]) -> Prepared:
            return prepared(chat, bound, settings)

        def ready(chat: BaseChatModel, bound: Mapping[str, Any]) -> Chat:
            return binding(*prepare(chat, bound))

        if offer is not None:
            asked = configured(self.chat)
            asked = offering(asked, self.label, offer.tools, offer.choice, offer.names, prepare)
        elif isinstance(self.chat, BaseChatModel):
            model, options = prepared(self.chat, {}, settings)
            return lambda prompt, config: model.ainvoke(prompt, config=config, **options)
        else:
            asked = composed(configured(self.chat), ready)
        return lambda prompt, config: asked.ainvoke(prompt, config=config)

    def structured(self, settings: CallSettings, schema: type[BaseModel], instead: str) -> Ask:
        """Return how to ask for an answer that fits a schema."""
        return ask_with_schema(self.chat, self.label, schema, settings, instead)

    def constrained(
        self,
        settings: CallSettings,
        tools: Sequence[BaseTool],
        choice: str,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a tool call as an answer in JSON that a schema constrains."""
        chat = self.chat
        if isinstance(chat, BaseChatModel) and self._dialect.constrains_by_body:
            model, options = prepared(chat, {}, settings)
            own = {**(getattr(model, "extra_body", None) or {}), **options.get("extra_body", {})}
            # In the extra body: else the client raises if an answer is cut off.
            body = {**own, "response_format": form_of_calls(tools, choice)}
            asked = binding(model, {**options, "extra_body": body})
            return lambda prompt, config: asked.ainvoke(prompt, config=config)
        schema = {"title": "answer", **answer_schema(tools, choice)}
        return ask_with_schema(chat, self.label, schema, settings, 'tool_calling = "native"')

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Let the errors of the user's object pass, but for those that duologue handles."""
        return refusals(self.label, of_many=of_many)

    def list_price(self) -> ListPrice | None:
        """Return the provider's list price, or None if it is not known. It reads files."""
        return list_price(self._first)


class ProviderModel(LangChainModel):
    """A model that was made by the name of a provider, such as ``anthropic:claude-sonnet-4-5``."""

    def __init__(self, label: str, chat: Chat, max_reply_size: int) -> None:
        super().__init__(label, chat, learned_of_name(label, None))
        self.max_reply_size = max_reply_size

    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Turn whatever the provider's package raises into one error of duologue."""
        return provider_failures(self.label)
