"""One model that speaks: asked for a message, or for an answer that fits a schema.

Which model a name means is in `nodes.models.resolve`; how each family of models is asked is in
`nodes.models.adapters`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from ...graphs.common.errors import ContextTooLongError, ModelError, SpecError
from ...graphs.common.validation import list_names
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.usage import Price
from ...graphs.ends.limits import ends_by_money
from ...graphs.log.metadata import ModelOutput, Speech, kind_name
from ...graphs.speakers.formats import LabelledFormat
from ...graphs.speakers.structured_answers import read_structured
from ...graphs.text.json_objects import UnreadableJsonError
from .adapters.base import Adapter, Ask, ToolCalling
from .adapters.calls import SettingRefusedError, make_call
from .adapters.families import Notify
from .adapters.list_prices import ListPrice
from .answers import count_usage, structured_text
from .gate import Gate
from .listeners import Listener
from .refusals import find_refusal
from .settings import CallSettings
from .tool_offers import offers_of

NO_STREAM = "nostream"
"""LangGraph's `TAG_NOSTREAM`, without the second that its import takes."""

_NOT_VALID = 400
"""The status of a request that is not valid."""


def _ignore(text: str) -> None:
    """Drop a notice."""


S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A model that is ready to be asked."""

    adapter: Adapter
    """The adapter that asks it."""
    label: str = field(init=False)
    """How the model is called in usage and errors."""
    notify: Notify = _ignore
    """Is told when an answer takes longer than it should."""
    name: str | None = None
    """What the conversation calls it."""
    listed: ListPrice | None = None
    """What its provider charges, where a conversation has no prices."""
    gate: Gate | None = None
    """What its calls pass."""

    def __post_init__(self) -> None:
        """Copy the label of the adapter."""
        object.__setattr__(self, "label", self.adapter.label)

    def price(self, prices: Mapping[str, Price]) -> Price | ListPrice | None:
        """Return its price in a table, under either of its names."""
        if not prices:
            return self.listed
        return prices.get(self.adapter.label) or prices.get(self.name or "")

    def check_price(self, conversation: Conversation) -> None:
        """Make sure that the price is known, where there is a price table or money is an end."""
        prices = conversation.prices
        counts_money = ends_by_money(conversation.end_chat.when) or (
            self.gate is not None and self.gate.needs_prices
        )
        if (prices or counts_money) and self.price(prices) is None:
            why = f", only for {list_names(prices)}" if prices else ", and max_cost needs it"
            raise SpecError(f"prices: there is none for the model {self.label!r}{why}")

    async def answer(
        self,
        messages: Sequence[BaseMessage],
        settings: CallSettings,
        *,
        purpose: type[ModelOutput],
        speaker: str | None = None,
        marks: LabelledFormat | None = None,
        tools: Sequence[BaseTool] = (),
        tool_choice: str = "auto",
        tool_calling: ToolCalling | None = None,
        listeners: Sequence[Listener] = (),
        private: bool = False,
    ) -> AIMessage:
        """Ask for one message; of a private one nothing is streamed as a message of the chat."""
        adapter = self.adapter
        offer = offers_of(adapter.prompting, tool_calling)(tools, tool_choice)
        prompt = offer.prompt(messages, adapter.prompting)

        def ask(settings: CallSettings) -> Ask:
            return offer.ask(adapter, settings, marks, purpose)

        def read(found: object) -> AIMessage:
            return count_usage(offer.read(found, adapter), prompt)

        shown, heard_by = offer.shown_as(purpose), offer.heard_by(listeners)
        return await self._call(
            ask, read, prompt, shown, speaker, settings, heard_by, private=private
        )

    async def structured(
        self,
        messages: Sequence[BaseMessage],
        schema: type[S],
        settings: CallSettings,
        *,
        purpose: type[ModelOutput],
        instead: str,
        speaker: str | None = None,
        tool_calling: ToolCalling | None = None,
        listeners: Sequence[Listener] = (),
        private: bool = False,
    ) -> tuple[AIMessage, S | None]:
        """Ask for an answer that fits a schema."""
        adapter = self.adapter
        prompt = offers_of(adapter.prompting, tool_calling)().prompt(messages, adapter.prompting)

        def ask(settings: CallSettings) -> Ask:
            return adapter.structured(settings, schema, instead)

        def read(found: object) -> tuple[AIMessage, S | None]:
            answer = count_usage(structured_text(found, adapter.label), prompt)
            try:
                # LangChain mends JSON that is cut off; half an answer must not count as whole.
                return answer, read_structured(schema, answer.text)
            except (ValidationError, UnreadableJsonError):
                return answer, None

        try:
            return await self._call(
                ask, read, prompt, purpose, speaker, settings, listeners, private=private
            )
        except (ContextTooLongError, SettingRefusedError):
            raise
        except ModelError as error:
            found = None if error.__cause__ is None else find_refusal(error.__cause__)
            if found is not None and found.status == _NOT_VALID:
                # Servers say in many ways that they do not know the word.
                raise ModelError(
                    f"{error}; if it has no structured output, set {instead}"
                ) from error
            raise

    async def _call(
        self,
        ask: Callable[[CallSettings], Ask],
        read: Callable[[Any], T],
        prompt: Sequence[BaseMessage],
        purpose: type[ModelOutput],
        speaker: str | None,
        settings: CallSettings,
        listeners: Sequence[Listener],
        *,
        private: bool,
    ) -> T:
        """Ask and read the answer, with retries; every failure becomes one error."""
        adapter = self.adapter

        async def once(sent: CallSettings) -> T:
            # For whoever streams messages: the id tells one try's pieces from another's.
            shown = {"purpose": kind_name(purpose), "speaker": speaker, "answer": uuid4().hex}
            name = purpose.run_name.format(speaker=speaker or "Judge")
            config = RunnableConfig(metadata=shown, run_name=name)
            if private or purpose is not Speech:
                # It is no message of the chat, which streams of messages leave out then.
                config["tags"] = [NO_STREAM]
            if listeners:
                # By themselves they would stand in the place of those who listen already.
                config["callbacks"] = [*listeners]
                config = merge_configs(ensure_config(), config)
            found: object
            try:
                found = await ask(sent)(adapter.own_messages(prompt), config)
            except Exception as error:
                found = adapter.answer_in(error)
                if found is None:
                    raise
            return read(adapter.checked(found))

        return await make_call(
            adapter, settings, once, prompt=prompt, gate=self.gate, notify=self.notify
        )
