"""The interface of all adapters.

An adapter is chosen once, when a name or an object is resolved to a model. It translates the
settings of a call into the names of its client, and asks the client.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from ....graphs.common.errors import SpecError
from ....graphs.log.metadata import ModelOutput
from ....graphs.speakers.formats import LabelledFormat
from ..list_prices import ListPrice
from ..settings import CallSettings
from ..tool_calling.names import Names
from .collisions import check_collisions
from .refused import Learned

Ask: TypeAlias = Callable[[Sequence[BaseMessage], RunnableConfig], Awaitable[Any]]
"""Asks a model: takes the prompt and LangChain's configuration. Returns the answer, or for an
answer with a schema also a dict with ``raw`` and ``parsed``. It streams if a callback of the
configuration listens to a stream."""


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a model that a conversation must know."""

    calls_tools: bool = True
    """Whether the model calls tools by its API. If not, its calls are answers in JSON that a schema
    constrains."""
    is_small: bool = False
    """Whether the model needs short prompts, and a grammar for its format."""
    keeps_broken_calls: bool = False
    """Whether the client returns tool calls that are not valid as they came."""
    sends_tries: bool = False
    """Whether the HTTP client makes each try pass the gate, so that the caller need not."""


class Offer(NamedTuple):
    """The tools that a call offers."""

    tools: Sequence[BaseTool]
    """The tools."""
    choice: str
    """``auto``, ``required``, ``none`` or the name of a tool."""
    names: Names
    """The names of the tools as they are sent."""


class Adapter(ABC):
    """One family of models.

    Args:
        label: How the model is called in usage and errors.
        learned: The facts about its settings that earlier calls of the model have shown.
    """

    capabilities: Capabilities = Capabilities()
    """The capabilities of the model."""
    address: str | None = None
    """The address of the model's server. None if it is a child of this process, or not known."""
    retries: int = 0
    """The number of times that an answer that breaks off is asked for again."""
    max_reply_size: int | None = None
    """Maximum size of a reply, in bytes, if its client does not limit it. No limit if None."""
    copies_prompts: bool = True
    """Whether the client may change the messages that it is given."""

    def __init__(self, label: str, learned: Learned) -> None:
        self.label = label
        self.learned = learned

    @property
    @abstractmethod
    def longest_answer(self) -> int | None:
        """The limit on answers, in tokens, of calls that set none. None: it is not known."""

    @property
    @abstractmethod
    def limits_answers(self) -> bool:
        """Whether the client is known to have a setting for the longest answer."""

    def check(self, settings: CallSettings) -> None:
        """Check that the client has the settings that the user set, and that each is set once.

        Raises:
            SpecError: It lacks one, or one collides with another. Names the field.
        """
        check_collisions(settings)
        for name in settings.chosen:
            if not self.has(name):
                raise SpecError(
                    f"{settings.where}.{name}: the model {self.label!r} has no such setting; "
                    "remove it, or choose another model"
                )

    def has(self, name: str) -> bool:
        """Return whether the client has a setting."""
        return True

    @abstractmethod
    def sent_names(self, settings: CallSettings) -> Mapping[str, str]:
        """Return the client's names for the settings of a call, by ours."""

    def learns(self, name: str, text: str) -> bool:
        """Return whether the next try sends a refused setting by another name.

        Args:
            name: Our name for the setting.
            text: The refusal, in lower case.
        """
        return False

    @abstractmethod
    def answer(
        self,
        settings: CallSettings,
        offer: Offer | None,
        marks: LabelledFormat | None,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a message.

        Args:
            settings: The settings of the call.
            offer: The tools, if the model may call some by its API.
            marks: The format that a grammar enforces, if the model needs one.
            purpose: The purpose of the answer.
        """

    @abstractmethod
    def structured(self, settings: CallSettings, schema: type[BaseModel], instead: str) -> Ask:
        """Return how to ask for an answer that fits a schema.

        Args:
            settings: The settings of the call.
            schema: The pydantic model of the answer.
            instead: The setting of the conversation that needs no structured output, for errors.
        """

    @abstractmethod
    def constrained(
        self,
        settings: CallSettings,
        tools: Sequence[BaseTool],
        choice: str,
        purpose: type[ModelOutput],
    ) -> Ask:
        """Return how to ask for a tool call as an answer in JSON that a schema constrains."""

    @abstractmethod
    def errors(self, *, of_many: bool) -> AbstractContextManager[None]:
        """Turn the errors of the client into errors of duologue.

        Args:
            of_many: Whether many sessions share the model, so that they all meet its failures.
        """

    @abstractmethod
    def list_price(self) -> ListPrice | None:
        """Return the provider's list price, or None if it is not known. It reads files."""
