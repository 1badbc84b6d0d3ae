"""What conversations name and no file can hold: tools, functions, hooks and schemas, by name.

What is not given in Python is looked up among the entry points of installed packages, so that a
file can name it too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar, cast

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel
from typing_extensions import TypedDict, get_type_hints

from duologue.graphs.data import listing
from duologue.graphs.ends import Predicate, leaves
from duologue.graphs.errors import SpecError
from duologue.graphs.formats import Schema
from duologue.graphs.judging import ByFunction
from duologue.graphs.replies import FunctionReply
from duologue.graphs.speaker import Speaker
from duologue.graphs.spec import Conversation
from duologue.graphs.validation import did_you_mean
from duologue.tools.hooks import Hook, Turn
from duologue.tools.kinds import KINDS, check_kind

T = TypeVar("T")

PredicateFunction: TypeAlias = Callable[[Sequence[BaseMessage]], bool | Awaitable[bool]]
"""Takes what all heard in the rounds and as last words, oldest first, each with ``name`` and
``text``; True ends it."""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Takes what all heard, oldest first, and the speakers' names; gives who speaks next."""

ReplyFunction: TypeAlias = Callable[[Turn], str | Awaitable[str | None] | None]
"""Takes the speaker's turn; gives its reply, or None to leave it to what stands behind it."""


async def call(
    what: str,
    name: str,
    function: Callable[..., T | Awaitable[T]],
    *given: Any,  # noqa: ANN401
    at: str | None = None,
) -> T:
    """Call a function of the user's own, sync or async.

    Args:
        what: What it is for, as an error says it.
        name: The name it is registered by.
        function: The function.
        *given: Its arguments.
        at: Which of several functions by that name it is.

    Returns:
        What it gives.

    Raises:
        SpecError: It failed; says how.
    """
    try:
        answer = function(*given)
        return await answer if isawaitable(answer) else answer
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # It is the whole run that is cancelled.
            raise
        where = "" if at is None else f" in {at}"
        raise SpecError(
            f"the {what} {name!r} failed{where}: {type(error).__name__}: {error}"
        ) from error


class Registered(TypedDict, total=False):
    """What conversations may name, as `converse` and `build_graph` take it."""

    tools: Iterable[BaseTool]
    """LangChain tools, which bring their names."""
    functions: Mapping[str, ReplyFunction]
    """Functions that give replies, by name."""
    hooks: Mapping[str, Hook | None]
    """Hooks, by name. None takes a hook away: who names it goes on without."""
    schemas: Mapping[str, type[BaseModel]]
    """Pydantic models that replies must fit, by name."""
    predicates: Mapping[str, PredicateFunction]
    """Functions that may end conversations, by name."""
    orders: Mapping[str, OrderFunction]
    """Functions that say who speaks next, by name."""


def check_options(options: Mapping[str, object], known: type) -> None:
    """Refuse options that there are not.

    Args:
        options: What was given by name.
        known: The TypedDict of those there are.

    Raises:
        TypeError: There is no such option; names those there are.
    """
    names = get_type_hints(known)
    for name in options:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; there are {listing(names)}")


class Registry:
    """Tools, functions, hooks and schemas by the names that conversations use.

    Args:
        registered: What was given in Python; it wins over entry points.

    Raises:
        SpecError: Two tools share a name, or something is not what it is registered as.
    """

    def __init__(self, registered: Registered | None = None) -> None:
        given = cast("dict[str, Any]", registered or {})
        self._found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for kind in KINDS.keys() - {"tools"}:
            for name, one in _by_name(kind, given.get(kind)).items():
                check_kind(kind, one, f"{kind}: {name!r}")
                self._found[kind][name] = one
        for tool in _tools(given.get("tools")):
            called = getattr(tool, "name", None) or getattr(tool, "__name__", "one")
            check_kind("tools", tool, f"tools: {called!r}")
            if tool.name in self._found["tools"]:
                raise SpecError(f"tools: two tools are called {tool.name!r}")
            self._found["tools"][tool.name] = tool

    def tool(self, name: str) -> BaseTool | None:
        """Give the tool of this name, or None."""
        found: BaseTool | None = self._found["tools"].get(name)
        return found

    def tools_of(self, speaker: Speaker) -> list[BaseTool]:
        """Give the tools that a speaker may call, in the spec's order."""
        return [self._found["tools"][name] for name in speaker.tools]

    def hooks_of(self, speaker: Speaker) -> list[tuple[str, Hook]]:
        """Give the hooks of a speaker with their names, in the spec's order."""
        found = [(name, self._found["hooks"][name]) for name in speaker.hooks]
        return [(name, hook) for name, hook in found if hook is not None]

    def function(self, name: str) -> ReplyFunction:
        """Give the function that gives replies by this name."""
        found: ReplyFunction = self._found["functions"][name]
        return found

    def schema_of(self, speaker: Speaker) -> type[BaseModel] | None:
        """Give the pydantic model that a speaker's replies must fit; None where there is none."""
        if not isinstance(speaker.format, Schema):
            return None
        found: type[BaseModel] = self._found["schemas"][speaker.format.name]
        return found

    def predicate(self, name: str) -> PredicateFunction:
        """Give the predicate of this name."""
        found: PredicateFunction = self._found["predicates"][name]
        return found

    def order(self, name: str) -> OrderFunction:
        """Give the order of this name."""
        found: OrderFunction = self._found["orders"][name]
        return found

    def knows(self, conversation: Conversation) -> bool:
        """Whether everything that a conversation names is at hand."""
        return all(name in self._found[kind] for _, kind, name in _named(conversation))

    def check(self, conversation: Conversation) -> None:
        """Make sure that everything that a conversation names is here. May import packages.

        Raises:
            SpecError: Something is not; names the field, the name and the near ones.
        """
        for path, kind, name in _named(conversation):
            if name in self._found[kind]:
                continue
            if name not in self._installed[kind]:
                # What is installed and was found before is in both.
                known = list({**self._found[kind], **self._installed[kind]})
                hint = did_you_mean(name, known) or self._elsewhere(kind, name)
                raise SpecError(f"{path}: there is no {KINDS[kind]} {name!r}{hint}")
            self._found[kind][name] = _loaded(kind, self._installed[kind][name], path)

    def _elsewhere(self, kind: str, name: str) -> str:
        for other, found in self._found.items():
            if name in found:
                return f"; it is registered as a {KINDS[other]}"
        return f"; register it, or install the package that offers it as duologue.{kind}"

    @cached_property
    def _installed(self) -> dict[str, dict[str, EntryPoint]]:
        return {
            kind: {entry.name: entry for entry in entry_points(group=f"duologue.{kind}")}
            for kind in KINDS
        }


def _named(conversation: Conversation) -> Iterator[tuple[str, str, str]]:
    """Everything that a conversation names: the field, its kind and the name."""
    for number, speaker in enumerate(conversation.speakers):
        at = f"speakers.{number}"
        yield from ((f"{at}.tools", "tools", name) for name in speaker.tools)
        yield from ((f"{at}.hooks", "hooks", name) for name in speaker.hooks)
        for place, reply in enumerate(speaker.replies):
            if isinstance(reply, FunctionReply):
                yield f"{at}.replies.{place}.name", "functions", reply.name
        if isinstance(speaker.format, Schema):
            yield f"{at}.format.name", "schemas", speaker.format.name
    for path, end in leaves(conversation.end_chat.when, "end_chat.when"):
        if isinstance(end, Predicate):
            yield f"{path}.name", "predicates", end.name
    if isinstance(conversation.turn_order, ByFunction):
        yield "turn_order.name", "orders", conversation.turn_order.name


def _loaded(kind: str, entry: EntryPoint, path: str) -> Any:  # noqa: ANN401
    what = f"the {KINDS[kind]} {entry.name!r} of {entry.value}"
    try:
        found = entry.load()
    except Exception as error:
        raise SpecError(
            f"{path}: {what} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    check_kind(kind, found, f"{path}: {what}")
    if kind == "tools" and found.name != entry.name:
        raise SpecError(f"{path}: {what} calls itself {found.name!r}: give both one name")
    return found


def _by_name(kind: str, given: object) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise SpecError(f"{kind}: must be a dict from names to {kind}, not {type(given).__name__}")
    return given or {}


def _tools(given: object) -> Iterable[BaseTool]:
    # A tool is a pydantic model, and they are iterable.
    if given is not None and (isinstance(given, BaseTool) or not isinstance(given, Iterable)):
        raise SpecError(f"tools: must be a list of tools, not {type(given).__name__}")
    return given or ()
