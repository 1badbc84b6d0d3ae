"""One model that speaks: asked for a message, or for an answer that fits a schema.

Which model a name means is in `duologue.nodes.models`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
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
from duologue.graphs.errors import ContextTooLongError, ModelError, SpecError
from duologue.graphs.fences import unfenced
from duologue.graphs.formats import Marks
from duologue.graphs.log import Kind
from duologue.graphs.usage import ESTIMATED, Price
from duologue.nodes import embedded
from duologue.nodes.clients import UNREADABLE, ChatModel, broke_off, failures, refusals
from duologue.nodes.grammar import grammar

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
    is_local: bool = False
    """Whether it runs in a child of this process."""
    is_embedded: bool = False
    """Whether it is the tiny embedded one, which is told little and held to its form."""
    n_ctx: int = embedded.N_CTX
    """The tokens of context that a model on this machine is started with."""
    notify: Notify = _ignore
    """Is told when an answer takes longer than it should."""
    name: str | None = None
    """What the conversation calls it."""

    @property
    def max_tokens(self) -> int | None:
        """The longest answer, in tokens, where a call names none. None: not known."""
        most = getattr(self.chat, "max_tokens", None)
        return most if isinstance(most, int) else None

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
            ContextTooLongError: The model refused the prompt as too long.
            ModelError: There was none; says why.
        """
        options = self._options(parameters)
        if self.is_embedded:
            talks = purpose is not Kind.SPECIFIED_TASK
            sampling = embedded.sampling(self.n_ctx) if talks else embedded.REWRITING
            extra = {**options.get("extra_body", {}), **sampling}
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
            ContextTooLongError: The model refused the prompt as too long.
            ModelError: There was no answer, or the model can't be held to a schema.
        """
        fields = type(self.chat).model_fields
        options = self._options(parameters)
        chat = self.chat.model_copy(
            update={name: value for name, value in options.items() if name in fields}
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
        except ContextTooLongError:
            raise
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

    def _options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a call; a seed means nothing where a cache may change the numbers."""
        seeded = self.is_local and parameters.get("seed") is not None
        return {**parameters, **({"extra_body": dict(embedded.REPRODUCIBLE)} if seeded else {})}

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
        with failures(self.label, self.address) if explained else refusals(self.label):
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
