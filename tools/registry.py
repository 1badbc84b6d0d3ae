"""What conversations name and no file can hold: tools and functions, by their names."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

from duologue.graphs.ends import Predicate, leaves
from duologue.graphs.errors import SpecError
from duologue.graphs.judging import ByFunction
from duologue.graphs.speaker import Speaker
from duologue.graphs.spec import Conversation
from duologue.graphs.validation import did_you_mean

T = TypeVar("T")

PredicateFunction: TypeAlias = Callable[[Sequence[BaseMessage]], bool | Awaitable[bool]]
"""Takes what all heard in the rounds and as last words, oldest first, each with ``name`` and
``text``; True ends it."""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Takes what all heard, oldest first, and the speakers' names; gives who speaks next."""


async def call(what: str, name: str, function: Callable[..., T | Awaitable[T]], *given: Any) -> T:  # noqa: ANN401
    """Call a function of the user's own, sync or async.

    Args:
        what: What it is for, as an error says it.
        name: The name it is registered by.
        function: The function.
        *given: Its arguments.

    Returns:
        What it gives.

    Raises:
        SpecError: It failed; says how.
    """
    try:
        answer = function(*given)
        return await answer if isawaitable(answer) else answer
    except Exception as error:
        raise SpecError(f"the {what} {name!r} failed: {type(error).__name__}: {error}") from error


class Registry:
    """Tools and functions by the names that conversations use.

    Args:
        tools: LangChain tools.
        predicates: Functions that say whether a conversation is to end.
        orders: Functions that say who speaks next.

    Raises:
        SpecError: Two tools share a name.
    """

    def __init__(
        self,
        tools: Iterable[BaseTool] = (),
        predicates: Mapping[str, PredicateFunction] | None = None,
        orders: Mapping[str, OrderFunction] | None = None,
    ) -> None:
        self._tools: dict[str, BaseTool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise SpecError(f"tools: two tools are called {tool.name!r}")
            self._tools[tool.name] = tool
        self.predicates = dict(predicates or {})
        self.orders = dict(orders or {})

    def get(self, name: str) -> BaseTool | None:
        """Give the tool of this name, or None."""
        return self._tools.get(name)

    def of(self, speaker: Speaker) -> list[BaseTool]:
        """Give the tools that a speaker may call, in the spec's order."""
        return [self._tools[name] for name in speaker.tools]

    def check(self, conversation: Conversation) -> None:
        """Make sure that everything that a conversation names is here.

        Raises:
            SpecError: Something is not; names the field, the name and the near ones.
        """
        for number, speaker in enumerate(conversation.speakers):
            for name in speaker.tools:
                _find(f"speakers.{number}.tools", "tool", name, self._tools)
        for path, end in leaves(conversation.end_chat.when, "end_chat.when"):
            if isinstance(end, Predicate):
                _find(f"{path}.name", "predicate", end.name, self.predicates)
        order = conversation.turn_order
        if isinstance(order, ByFunction):
            _find("turn_order.name", "order", order.name, self.orders)


def _find(field: str, what: str, name: str, known: Mapping[str, object]) -> None:
    if name in known:
        return
    hint = did_you_mean(name, list(known)) or "; register it"
    raise SpecError(f"{field}: there is no {what} {name!r}{hint}")
