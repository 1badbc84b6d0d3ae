"""One model that speaks: asked for a message, or for an answer that fits a schema.

Which model a name means is in `nodes.models.resolve`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from ...graphs.common.errors import ContextTooLongError, ModelError, SpecError
from ...graphs.common.validation import listing
from ...graphs.log.kinds import Kind
from ...graphs.log.viewpoint import copied
from ...graphs.speakers.formats import Marks
from ...graphs.speakers.schemas import is_strict, schema_of
from ...graphs.speakers.structured_answers import read_structured
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.ends import ends_by_money
from ...graphs.spec.usage import Price
from ...graphs.text.json_objects import UnreadableJsonError
from .answers import as_answer, as_text, counted
from .client.failures import failures, refusals
from .client.forms import form_of, takes_forms
from .client.origin import answer_in, comes_from, is_ours, is_status_error, speaks_openai
from .client.retries import Asked, AtGate, answered
from .composed import Chat, bound_options, configured, first
from .embedded import child as embedded
from .embedded.grammar import grammar
from .gate import Gate
from .list_prices import ListPrice
from .listeners import Listener
from .providers import check_reply_size, provider_failures
from .structured import shaped
from .tool_calling.by_schema import answer_schema, read_answer, response_format, told
from .tool_calling.calls import normalised, unread
from .tool_calling.names import renamed, wire_names, with_called
from .tool_calling.native import ToolCalling, check_choice, offering

NO_STREAM = "nostream"
"""LangGraph's `TAG_NOSTREAM`, without the second that its import takes."""

Notify = Callable[[str], None]
"""Takes one line that tells the user what is going on."""


def _ignore(text: str) -> None:
    """Drop a notice."""


S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A model that is ready to be asked."""

    label: str
    """How it is called in usage and errors."""
    chat: Chat
    """What speaks to it: a chat model, or one that is composed of some."""
    address: str | None = None
    """Where its server is. None: in a child of this process, or not ours to know."""
    is_local: bool = False
    """Whether it runs in a child of this process."""
    is_of_provider: bool = False
    """Whether it was made by the name of a provider."""
    max_reply_size: int | None = None
    """Maximum size of a reply, in bytes, if its client does not limit it. No limit if None."""
    is_embedded: bool = False
    """Whether it is the tiny embedded one, which is told little and held to its form."""
    n_ctx: int = embedded.N_CTX
    """The tokens of context that a model on this machine is started with."""
    notify: Notify = _ignore
    """Is told when an answer takes longer than it should."""
    name: str | None = None
    """What the conversation calls it."""
    listed: ListPrice | None = None
    """What its provider charges, where a conversation has no prices."""
    gate: Gate | None = None
    """What its calls pass."""

    @property
    def max_tokens(self) -> int | None:
        """The longest answer, in tokens, where a call names none. None: not known."""
        if isinstance(self.chat, BaseChatModel):
            most = getattr(self.chat, "max_tokens", None)
        else:
            own = getattr(first(self.chat), "max_tokens", None)
            most = bound_options(self.chat).get("max_tokens", own)
        return most if isinstance(most, int) else None

    @property
    def takes_max_tokens(self) -> bool:
        """Whether it is known to take a limit by this name; not all clients do."""
        return is_ours(self.chat) or "max_tokens" in type(first(self.chat)).model_fields

    def price(self, prices: Mapping[str, Price]) -> Price | ListPrice | None:
        """Give what it charges by a price table, under either of its names."""
        if not prices:
            return self.listed
        return prices.get(self.label) or prices.get(self.name or "")

    def check_price(self, conversation: Conversation) -> None:
        """Make sure that the price is known, where there is a price table or money is an end."""
        prices = conversation.prices
        counts_money = ends_by_money(conversation.end_chat.when) or (
            self.gate is not None and self.gate.needs_prices
        )
        if self.price(prices) is None and (prices or counts_money):
            why = f", only for {listing(prices)}" if prices else ", and max_cost needs it"
            raise SpecError(f"prices: there is none for the model {self.label!r}{why}")

    async def answer(
        self,
        messages: Sequence[BaseMessage],
        parameters: Mapping[str, Any],
        *,
        purpose: Kind,
        speaker: str | None = None,
        marks: Marks | None = None,
        tools: Sequence[BaseTool] = (),
        tool_choice: str = "auto",
        tool_calling: ToolCalling | None = None,
        listeners: Sequence[Listener] = (),
        private: bool = False,
    ) -> AIMessage:
        """Ask for one message; of a private one nothing is streamed as a message of the chat."""
        check_choice(tool_choice, tools)
        options = self._options(parameters)
        by_schema = self.by_schema(tool_calling)
        may_call = bool(tools) and tool_choice != "none"
        if self.is_embedded:
            talks = purpose is not Kind.SPECIFIED_TASK
            sampling = embedded.sampling(self.n_ctx) if talks else embedded.REWRITING
            extra = {**options.get("extra_body", {}), **sampling}
            if marks is not None and not may_call:
                extra["grammar"] = grammar(marks.lines, marks.end)
            options["extra_body"] = extra
        prompt = self._prompt(messages, tools, tool_choice, tool_calling)
        if by_schema and may_call:
            # What streams in is JSON, which is nothing for people to read.
            shown = Kind.ANSWER if purpose is Kind.SPEECH else purpose
            return await self._by_form(prompt, tools, tool_choice, options, shown, speaker)
        names = wire_names(tool.name for tool in tools)
        chat = self.chat if isinstance(self.chat, BaseChatModel) else configured(self.chat)
        if tools and not by_schema:
            chat = offering(chat, self.label, tools, tool_choice, names)

        def read(found: object) -> AIMessage:
            answer = as_answer(found, self.label)
            if by_schema and tools:
                # A call that it writes though it was told not to is nothing to say.
                answer = read_answer(answer, tools)
                answer = answer.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
            # Our client and the scripted one do.
            keeps_broken = not answer.tool_calls or comes_from(first(self.chat), "duologue.nodes")
            return counted(normalised(answer, names, keeps_broken=keeps_broken), prompt)

        try:
            return await self._asked(
                chat.ainvoke, read, prompt, purpose, speaker, options, listeners, private=private
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
        parameters: Mapping[str, Any],
        *,
        purpose: Kind,
        instead: str,
        speaker: str | None = None,
        tool_calling: ToolCalling | None = None,
        listeners: Sequence[Listener] = (),
        private: bool = False,
    ) -> tuple[AIMessage, S | None]:
        """Ask for an answer that fits a schema."""
        options = self._options(parameters)
        ask: Callable[..., Awaitable[Any]]
        if is_ours(self.chat) and takes_forms(self.chat.model_name):
            # LangChain's own way costs more than the call.
            ask, options["response_format"] = self.chat.ainvoke, form_of(schema)
        else:
            # A dict: given the class, the client raises on what it can't read and hides the text.
            form = schema_of(schema)
            strict = is_strict(form)
            asked = shaped(self.chat, self.label, form, options, instead, strict=strict)
            ask, options = asked.ainvoke, {}
        prompt = self._prompt(messages, (), "none", tool_calling)

        def read(found: Any) -> tuple[AIMessage, S | None]:  # noqa: ANN401
            raw, parsed = (found["raw"], found["parsed"]) if type(found) is dict else (found, None)
            answer = counted(as_text(as_answer(raw, self.label), parsed), prompt)
            try:
                # LangChain mends JSON that is cut off; half an answer must not count as whole.
                return answer, read_structured(schema, answer.text)
            except (ValidationError, UnreadableJsonError):
                return answer, None

        try:
            return await self._asked(
                ask, read, prompt, purpose, speaker, options, listeners, private=private
            )
        except ContextTooLongError:
            raise
        except ModelError as error:
            if is_status_error(error.__cause__) and error.__cause__.status_code == 400:
                # Servers say in many ways that they do not know the word.
                raise ModelError(
                    f"{error}; if it has no structured output, set {instead}"
                ) from error
            raise
        except Exception as error:
            unfit = answer_in(error)
            if unfit is None:
                raise
            return counted(as_answer(unfit, self.label), prompt), None

    def by_schema(self, tool_calling: ToolCalling | None) -> bool:
        """Whether its calls of tools are answers that are held to a schema."""
        return self.is_local if tool_calling is None else tool_calling == "schema"

    def _prompt(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[BaseTool],
        choice: str,
        tool_calling: ToolCalling | None,
    ) -> list[BaseMessage]:
        """The prompt as it is sent: calls as text, or by names that are accepted."""
        if self.by_schema(tool_calling):
            return told(messages, tools, choice, briefly=self.is_embedded)
        return renamed(messages, with_called(wire_names(tool.name for tool in tools), messages))

    async def _by_form(
        self,
        prompt: Sequence[BaseMessage],
        tools: Sequence[BaseTool],
        choice: str,
        options: Mapping[str, Any],
        purpose: Kind,
        speaker: str | None,
    ) -> AIMessage:
        """Ask for an answer that is held to the schema of the tools."""

        def read(found: object) -> AIMessage:
            return counted(read_answer(as_answer(found, self.label), tools), prompt)

        def read_with_raw(found: dict[str, Any]) -> AIMessage:
            return read(as_text(as_answer(found["raw"], self.label), found["parsed"]))

        if speaks_openai(self.chat):
            # As extra body: else the client raises where an answer is cut off, and hides the text.
            extra = {**(self.chat.extra_body or {}), **options.get("extra_body", {})}
            extra["response_format"] = response_format(tools, choice)
            held = {**options, "extra_body": extra}
            return await self._asked(self.chat.ainvoke, read, prompt, purpose, speaker, held)
        schema = {"title": "answer", **answer_schema(tools, choice)}
        asked = shaped(self.chat, self.label, schema, options, 'tool_calling = "native"')
        return await self._asked(asked.ainvoke, read_with_raw, prompt, purpose, speaker, {})

    def _options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a call; a seed means nothing where a cache may change the numbers."""
        seeded = self.is_local and parameters.get("seed") is not None
        return {**parameters, **({"extra_body": dict(embedded.REPRODUCIBLE)} if seeded else {})}

    async def _asked(
        self,
        ask: Callable[..., Awaitable[Any]],
        read: Callable[[Any], T],
        messages: Sequence[BaseMessage],
        purpose: Kind,
        speaker: str | None,
        options: Mapping[str, Any],
        listeners: Sequence[Listener] = (),
        *,
        private: bool = False,
    ) -> T:
        """Ask and read the answer, with retries; every failure becomes one error."""
        if is_ours(self.chat):
            reading = failures(self.label, self.address)
        elif self.is_of_provider:
            reading = provider_failures(self.label)
        else:
            # What a model of the user's own raises is the user's to read, unless many runs meet it.
            reading = refusals(self.label, of_many=self.gate is not None)
        retries = (self.chat.max_retries or 0) if is_ours(self.chat) else 0

        async def once() -> T:
            # For whoever streams messages: the id tells one try's pieces from another's.
            shown = {"purpose": purpose.value, "speaker": speaker, "answer": uuid4().hex}
            name = purpose.row.run.format(speaker=speaker or "Judge")
            config = RunnableConfig(metadata=shown, run_name=name)
            if private or purpose is not Kind.SPEECH:
                # It is no message of the chat, which streams of messages leave out then.
                config["tags"] = [NO_STREAM]
            if listeners:
                # By themselves they would stand in the place of those who listen already.
                config["callbacks"] = [*listeners]
                config = merge_configs(ensure_config(), config)
            # Others may change what they are given, and it is shown again.
            prompt = [*messages] if is_ours(self.chat) else copied(messages)
            found = await ask(prompt, config=config, **options)
            if self.max_reply_size is not None:
                check_reply_size(found, self.label, self.max_reply_size)
            return read(found)

        asked = Asked(self.label, self.address, self.notify, retries, is_ours(self.chat))
        gate = None if self.gate is None else AtGate(self.gate, self.label, messages)
        with reading:
            return await answered(asked, once, gate)
