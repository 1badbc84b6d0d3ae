"""One model that speaks: asked for a message, or for an answer that fits a schema.

Which model a name means is in `nodes.models.resolve`; how each family of models is asked is in
`nodes.models.adapters`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from ...graphs.common.errors import ContextTooLongError, ModelError, SpecError
from ...graphs.common.validation import listing
from ...graphs.log.metadata import ModelOutput, Speech, UnheardReply, kind_name
from ...graphs.log.viewpoint import copied
from ...graphs.speakers.formats import LabelledFormat
from ...graphs.speakers.structured_answers import read_structured
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.ends import ends_by_money
from ...graphs.spec.usage import Price
from ...graphs.text.json_objects import UnreadableJsonError
from .adapters.base import Adapter, Ask, Capabilities, Offer
from .adapters.native import ToolCalling, check_choice
from .adapters.negotiation import SettingRefusedError, negotiate
from .adapters.providers import check_reply_size
from .answers import as_answer, as_text, counted
from .client.origin import answer_in
from .client.retries import Asked, AtGate, answered
from .gate import Gate
from .list_prices import ListPrice
from .listeners import Listener
from .refusals import refusal
from .settings import CallSettings
from .tool_calling.by_schema import read_answer, told
from .tool_calling.calls import normalised, unread
from .tool_calling.names import Names, renamed, wire_names, with_called

NO_STREAM = "nostream"
"""LangGraph's `TAG_NOSTREAM`, without the second that its import takes."""

Notify = Callable[[str], None]
"""Takes one line that tells the user what is going on."""

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

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the model."""
        return self.adapter.capabilities

    @property
    def max_tokens(self) -> int | None:
        """The longest answer, in tokens, if a call sets none. None: it is not known."""
        return self.adapter.longest_answer

    @property
    def limits_answers(self) -> bool:
        """Whether the model is known to have a setting for the longest answer."""
        return self.adapter.limits_answers

    def price(self, prices: Mapping[str, Price]) -> Price | ListPrice | None:
        """Give what it charges by a price table, under either of its names."""
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
            why = f", only for {listing(prices)}" if prices else ", and max_cost needs it"
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
        check_choice(tool_choice, tools)
        by_schema = self.by_schema(tool_calling)
        may_call = bool(tools) and tool_choice != "none"
        names = wire_names(tool.name for tool in tools)
        prompt = self._prompt(messages, tools, tool_choice, None if by_schema else names)
        if by_schema and may_call:
            # What streams in is JSON, which is nothing for people to read.
            shown = UnheardReply if purpose is Speech else purpose
            return await self._by_form(prompt, tools, tool_choice, settings, shown, speaker)
        offer = Offer(tools, tool_choice, names) if tools and not by_schema else None

        def ask(settings: CallSettings) -> Ask:
            return self.adapter.answer(settings, offer, None if may_call else marks, purpose)

        def read(found: object) -> AIMessage:
            answer = as_answer(found, self.adapter.label)
            if by_schema and tools:
                # A call that it writes though it was told not to is nothing to say.
                answer = read_answer(answer, tools)
                answer = answer.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
            keeps_broken = not answer.tool_calls or self.adapter.capabilities.keeps_broken_calls
            return counted(normalised(answer, names, keeps_broken=keeps_broken), prompt)

        try:
            return await self._asked(
                ask, read, prompt, purpose, speaker, settings, listeners, private=private
            )
        except ValidationError as error:
            found = unread(error)
            if found is None:
                raise
            return read(found)

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

        def ask(settings: CallSettings) -> Ask:
            return self.adapter.structured(settings, schema, instead)

        names = None if self.by_schema(tool_calling) else Names()
        prompt = self._prompt(messages, (), "none", names)

        def read(found: Any) -> tuple[AIMessage, S | None]:  # noqa: ANN401
            answer = counted(self._text(found), prompt)
            try:
                # LangChain mends JSON that is cut off; half an answer must not count as whole.
                return answer, read_structured(schema, answer.text)
            except (ValidationError, UnreadableJsonError):
                return answer, None

        try:
            return await self._asked(
                ask, read, prompt, purpose, speaker, settings, listeners, private=private
            )
        except (ContextTooLongError, SettingRefusedError):
            raise
        except ModelError as error:
            found = None if error.__cause__ is None else refusal(error.__cause__)
            if found is not None and found.status == _NOT_VALID:
                # Servers say in many ways that they do not know the word.
                raise ModelError(
                    f"{error}; if it has no structured output, set {instead}"
                ) from error
            raise
        except Exception as error:
            unfit = answer_in(error)
            if unfit is None:
                raise
            return counted(as_answer(unfit, self.adapter.label), prompt), None

    def by_schema(self, tool_calling: ToolCalling | None) -> bool:
        """Return whether its tool calls are answers that a schema constrains."""
        if tool_calling is None:
            return not self.adapter.capabilities.calls_tools
        return tool_calling == "schema"

    def _prompt(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[BaseTool],
        choice: str,
        names: Names | None,
    ) -> list[BaseMessage]:
        """Return the prompt as it is sent, with tool calls by these names. None: as text."""
        if names is None:
            return told(messages, tools, choice, briefly=self.adapter.capabilities.is_small)
        return renamed(messages, with_called(names, messages))

    async def _by_form(
        self,
        prompt: Sequence[BaseMessage],
        tools: Sequence[BaseTool],
        choice: str,
        settings: CallSettings,
        purpose: type[ModelOutput],
        speaker: str | None,
    ) -> AIMessage:
        """Ask for an answer that the schema of the tools constrains."""

        def ask(settings: CallSettings) -> Ask:
            return self.adapter.constrained(settings, tools, choice, purpose)

        def read(found: Any) -> AIMessage:  # noqa: ANN401
            if type(found) is dict:
                return counted(read_answer(self._text(found), tools), prompt)
            return counted(read_answer(as_answer(found, self.adapter.label), tools), prompt)

        return await self._asked(ask, read, prompt, purpose, speaker, settings)

    def _text(self, found: Any) -> AIMessage:  # noqa: ANN401
        """Return an answer with a schema as a message of text."""
        raw, parsed = (found["raw"], found["parsed"]) if type(found) is dict else (found, None)
        return as_text(as_answer(raw, self.adapter.label), parsed)

    async def _asked(
        self,
        ask: Callable[[CallSettings], Ask],
        read: Callable[[Any], T],
        messages: Sequence[BaseMessage],
        purpose: type[ModelOutput],
        speaker: str | None,
        settings: CallSettings,
        listeners: Sequence[Listener] = (),
        *,
        private: bool = False,
    ) -> T:
        """Ask and read the answer, with retries; every failure becomes one error."""
        adapter = self.adapter
        if settings.is_set:
            adapter.check(settings)
        sends_tries = adapter.capabilities.sends_tries
        asked = Asked(adapter.label, adapter.address, self.notify, adapter.retries, sends_tries)
        gate = None if self.gate is None else AtGate(self.gate, adapter.label, messages)

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
            # Others may change what they are given, and it is shown again.
            prompt = copied(messages) if adapter.copies_prompts else [*messages]
            found = await ask(sent)(prompt, config)
            if adapter.max_reply_size is not None:
                check_reply_size(found, adapter.label, adapter.max_reply_size)
            return read(found)

        def call(sent: CallSettings) -> Awaitable[T]:
            return answered(asked, partial(once, sent), gate)

        with adapter.errors(of_many=self.gate is not None):
            return await negotiate(adapter, settings, call)
