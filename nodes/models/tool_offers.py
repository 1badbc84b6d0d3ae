"""How one call offers tools to a model: by the API, or by a schema that holds the answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool

from ...graphs.common.errors import SpecError
from ...graphs.log.metadata import ModelOutput, Speech, UnheardReply
from ...graphs.speakers.formats import LabelledFormat
from .adapters.base import Adapter, Ask, Offer, Prompting, ToolCalling
from .answers import normalise_answer, structured_text
from .listeners import Listener
from .settings import CallSettings
from .tool_calls import add_called_names, rename_tools, wire_names
from .tools_by_schema import prompt_with_tools, read_answer

_CHOICES: Final = ("auto", "required", "none")
"""The choices of tools, besides the name of one."""

T = TypeVar("T")


class ToolOffer(ABC):
    """The tools that a call offers.

    Args:
        tools: The tools.
        choice: ``auto``, ``required``, ``none`` or the name of a tool.

    Raises:
        SpecError: The choice is the name of another tool.
    """

    def __init__(self, tools: Sequence[BaseTool] = (), choice: str = "none") -> None:
        if choice not in _CHOICES and all(choice != tool.name for tool in tools):
            raise SpecError(f"tool_choice: {choice!r} is not one of the speaker's tools")
        self.tools = tools
        self.choice = choice
        self.may_call = bool(tools) and choice != "none"

    @staticmethod
    @abstractmethod
    def described(tools: Sequence[T]) -> Sequence[T]:
        """Return the tools that prompts describe, even if the model may call none at the moment."""

    @staticmethod
    @abstractmethod
    def written_prompt(
        messages: Sequence[BaseMessage],
        offered: Callable[[], tuple[Sequence[BaseTool], str]],
        prompting: Prompting,
    ) -> list[BaseMessage]:
        """Return a prompt as people read it, with the names of tools that the log has.

        Args:
            messages: The messages.
            offered: Returns the tools and the choice.
            prompting: How the model's prompts are made.
        """

    @abstractmethod
    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt as it is sent."""

    @abstractmethod
    def ask(
        self,
        adapter: Adapter,
        settings: CallSettings,
        marks: LabelledFormat | None,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a message."""

    @abstractmethod
    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as the log stores it."""

    def shown_as(self, purpose: type[ModelOutput]) -> type[ModelOutput]:
        """Return the purpose as which the answer is streamed."""
        return purpose

    def heard_by(self, listeners: Sequence[Listener]) -> Sequence[Listener]:
        """Return those who listen to the answer while it comes."""
        return listeners


class NativeToolOffer(ToolOffer):
    """Tools that a model calls by its API."""

    def __init__(self, tools: Sequence[BaseTool] = (), choice: str = "none") -> None:
        super().__init__(tools, choice)
        self._names = wire_names(tool.name for tool in tools)

    @staticmethod
    def described(tools: Sequence[T]) -> Sequence[T]:
        """Return none: the API is told of them, and only if the model may call one."""
        return ()

    @staticmethod
    def written_prompt(
        messages: Sequence[BaseMessage],
        offered: Callable[[], tuple[Sequence[BaseTool], str]],
        prompting: Prompting,
    ) -> list[BaseMessage]:
        """Return a prompt as people read it: as it is."""
        return [*messages]

    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt as it is sent, with the names of tools that the provider accepts."""
        return rename_tools(messages, add_called_names(self._names, messages))

    def ask(
        self,
        adapter: Adapter,
        settings: CallSettings,
        marks: LabelledFormat | None,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a message."""
        offer = Offer(self.tools, self.choice, self._names) if self.tools else None
        return adapter.answer(settings, offer, None if self.may_call else marks, purpose)

    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as the log stores it."""
        return adapter.read_calls(normalise_answer(found, adapter.label), self._names)


class SchemaToolOffer(ToolOffer):
    """Tools that a model calls by an answer in JSON, which a schema constrains."""

    @staticmethod
    def described(tools: Sequence[T]) -> Sequence[T]:
        """Return all: a model that writes its calls as text goes on unless it is told not to."""
        return tools

    @staticmethod
    def written_prompt(
        messages: Sequence[BaseMessage],
        offered: Callable[[], tuple[Sequence[BaseTool], str]],
        prompting: Prompting,
    ) -> list[BaseMessage]:
        """Return a prompt as people read it: as it is sent."""
        return SchemaToolOffer(*offered()).prompt(messages, prompting)

    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt as it is sent, with the tools, their calls and results as text."""
        return prompt_with_tools(messages, self.tools, self.choice, prompting.describe_tool)

    def ask(
        self,
        adapter: Adapter,
        settings: CallSettings,
        marks: LabelledFormat | None,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a message."""
        if self.may_call:
            return adapter.constrained(settings, self.tools, self.choice, self.shown_as(purpose))
        return adapter.answer(settings, None, marks, purpose)

    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as the log stores it."""
        if self.may_call:
            is_held = type(found) is dict
            read = structured_text if is_held else normalise_answer
            return read_answer(read(found, adapter.label), self.tools)
        answer = normalise_answer(found, adapter.label)
        if self.tools:
            # A call that it writes although it may call none is no speech.
            answer = read_answer(answer, self.tools)
            answer = answer.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
        return adapter.read_calls(answer, {})

    def shown_as(self, purpose: type[ModelOutput]) -> type[ModelOutput]:
        """Return the purpose as which the answer is streamed: JSON is nothing for people."""
        return UnheardReply if self.may_call and purpose is Speech else purpose

    def heard_by(self, listeners: Sequence[Listener]) -> Sequence[Listener]:
        """Return those who listen to the answer while it comes: nobody to JSON."""
        return () if self.may_call else listeners


_OFFERS: Final[Mapping[ToolCalling, type[ToolOffer]]] = {
    "native": NativeToolOffer,
    "schema": SchemaToolOffer,
}


def offers_of(prompting: Prompting, chosen: ToolCalling | None) -> type[ToolOffer]:
    """Return how a model is offered tools.

    Args:
        prompting: How the model's prompts are made.
        chosen: The speaker's ``tool_calling``. None: as the family of the model needs it.
    """
    return _OFFERS[chosen or prompting.tool_calling]
