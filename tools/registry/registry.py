"""Registered tools, functions, hooks and schemas, by the names that conversations use.

Objects that are not passed in Python are looked up among the entry points of installed packages, so
that a conversation in a file can name them too. `ConversationTool` is the tool that runs a
conversation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForToolRun, CallbackManagerForToolRun
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ...graphs.common.data import NamedObject
from ...graphs.common.errors import (
    SpecError,
    ToolServerError,
    did_you_mean,
    how_to_install,
    list_names,
)
from ...graphs.common.threads import run_coroutine
from ...graphs.conversation.conversation import (
    MOST_LEVELS,
    Conversation,
    inner_conversations,
)
from ...graphs.conversation.fields import Wording
from ...graphs.conversation.judges import TurnFunction
from ...graphs.conversation.sandbox import Language
from ...graphs.ends.end import leaves
from ...graphs.prompts.prompts import PROMPTS
from ...graphs.speakers.formats import SchemaFormat, is_object
from ...graphs.speakers.replies import AgentReply, FunctionReply, HumanReply
from ...graphs.speakers.speaker import TO_USER, Speaker
from ..mcp.servers import McpServer, Server, configured_servers, hint_of, is_at, read_given_servers
from .functions import (
    NOUNS,
    Agent,
    OrderFunction,
    PredicateFunction,
    ReplyFunction,
    check_kind,
    check_registered_name,
    load_entry_points,
    make_tool,
    needs_store,
    parameters_of,
    read_mapping,
    reference_to,
    tools_in,
)
from .hooks import Hook, languages_of

RunConversation = Callable[[str | None], Awaitable[str]]
"""Runs a conversation with a task, or with a person's first message, and returns its output."""


class ConversationTool(BaseTool):
    """A tool that runs a conversation.

    In a duologue conversation, the session of the caller contains the inner session. Elsewhere,
    `run` runs the conversation.
    """

    conversation: Conversation
    """The conversation that each call starts."""
    argument: str
    """The name of the argument: ``task``, or ``message`` if one person takes part."""
    run_conversation: RunConversation = Field(exclude=True, repr=False)
    """Runs the conversation outside of a duologue conversation."""

    async def _arun(
        self, run_manager: AsyncCallbackManagerForToolRun | None = None, **arguments: Any
    ) -> str:
        return await self.run_conversation(arguments.get(self.argument))

    def _run(self, run_manager: CallbackManagerForToolRun | None = None, **arguments: Any) -> str:
        found: str = run_coroutine(self._arun(**arguments))
        return found


class Registered(TypedDict, total=False):
    """Objects that conversations may name, as `converse` and `build_graph` accept them."""

    tools: Iterable[BaseTool | Callable[..., Any]] | None
    """LangChain tools, and plain functions, each under its own name. The docstring and the types of
    a function describe it to the model.
    """
    functions: Mapping[str, ReplyFunction] | None
    """Functions that return replies, by name."""
    agents: Mapping[str, Agent] | None
    """Agents that return replies, by name: compiled graphs or any other LangChain Runnables."""
    hooks: Mapping[str, Hook | None] | None
    """Hooks, by name. None removes a hook: speakers that name it run without it."""
    schemas: Mapping[str, type[BaseModel]] | None
    """Pydantic models that replies must match, by name."""
    predicates: Mapping[str, PredicateFunction] | None
    """Functions that may end conversations, by name."""
    orders: Mapping[str, OrderFunction] | None
    """Functions that choose the next speaker, by name."""
    prompts: Mapping[str, str] | None
    """Texts that replace built-in prompts, by name."""
    mcp_servers: Mapping[str, McpServer] | None
    """MCP servers, by name. Speakers name their tools as ``server.tool``. Servers of the file named
    by ``DUOLOGUE_MCP_SERVERS`` are available as well. MCP servers need the ``mcp`` extra.
    """


class Registry:
    """Tools, functions, hooks and schemas by the names that conversations use."""

    def __init__(self, registered: Registered | None = None) -> None:
        given = cast("dict[str, Any]", registered or {})
        self._found: dict[str, dict[str, Any]] = {kind: {} for kind in NOUNS}
        self._brought: dict[tuple[str, str], object] = {}
        """The registered objects by kind and name, before plain functions became tools."""
        for kind in NOUNS.keys() - {"tools"}:
            for name, one in read_mapping(kind, given.get(kind)).items():
                check_registered_name(name, kind)
                check_kind(kind, one, f"{kind}: {name!r}")
                self._found[kind][name] = self._brought[kind, name] = one
        for number, one in enumerate(tools_in(given.get("tools"))):
            tool = make_tool(one, f"tools.{number}")
            called = getattr(tool, "name", None) or getattr(tool, "__name__", None)
            check_kind("tools", tool, f"tools: {called!r}" if called else f"tools.{number}")
            if tool.name in self._found["tools"]:
                raise SpecError(
                    f"tools: two tools are named {tool.name!r}; give each a unique name"
                )
            self._found["tools"][tool.name] = tool
            self._brought["tools", tool.name] = one
        self._silent: set[str] = set()
        """Names of the tools that are known to have no argument called `TO_USER`."""
        self._given_servers = read_given_servers(given.get("mcp_servers"))

    def bring(self, conversation: Conversation) -> None:
        """Register the objects that a conversation carries instead of their names.

        Raises:
            SpecError: An object does not fit its kind, or two objects of one kind share a name.
        """
        for path, kind, name in _iter_named(conversation):
            if not isinstance(name, NamedObject):
                continue
            one = name.brought
            if (kind, name) not in self._brought:
                found = make_tool(one, path) if kind == "tools" else one
                check_kind(kind, found, f"{path}: {str(name)!r}")
                self._found[kind][str(name)] = found
                self._brought[kind, name] = one
            # A registered hook may be None, which removes it.
            elif self._brought[kind, name] not in (one, None):
                raise SpecError(
                    f"{path}: two different {kind} are named {str(name)!r}; give each a unique name"
                )

    def inner_of(self, conversation: Conversation) -> Iterable[tuple[str, Conversation]]:
        """Return the conversations inside a conversation, as `_inner_of` yields them."""
        has_tools = [speaker for speaker in conversation.speakers if speaker.tools]
        return self._inner_of(conversation) if has_tools or conversation.has_inner else ()

    def _inner_of(
        self, conversation: Conversation, at: str = "", outer: tuple[Conversation, ...] = ()
    ) -> Iterator[tuple[str, Conversation]]:
        """Yield the conversations inside a conversation at all levels, each with its path.

        A conversation is inside another one as a source of replies or as a tool. The objects that
        it carries are registered before it is yielded.

        Args:
            conversation: The conversation, whose names are known.
            at: Its path within the outermost conversation. Empty for the outermost.
            outer: The conversations that contain it.

        Raises:
            SpecError: A conversation contains itself, or the levels are too many.
        """
        outer = (*outer, conversation)
        for path, inner in self._direct_inner(conversation):
            if any(inner is one for one in outer):
                raise SpecError(f"{at}{path}: the conversation contains itself; remove it here")
            if len(outer) >= MOST_LEVELS:
                raise SpecError(
                    f"{at}{path}: conversations are nested too deeply; use at most {MOST_LEVELS} "
                    "levels"
                )
            self.bring(inner)
            yield f"{at}{path}", inner
            yield from self._inner_of(inner, f"{at}{path}.", outer)

    def _direct_inner(self, conversation: Conversation) -> Iterator[tuple[str, Conversation]]:
        if conversation.has_inner:
            yield from inner_conversations(conversation)
        for number, speaker in enumerate(conversation.speakers):
            for name in speaker.tools:
                tool = self.tool(name)
                if isinstance(tool, ConversationTool):
                    yield f"speakers.{number}.tools.{name}", tool.conversation

    def languages_of(self, conversation: Conversation) -> set[Language]:
        """Return the languages in which speakers certainly run code, by tools or as a reply."""
        tools = [tool for speaker in conversation.speakers for tool in self.tools_of(speaker)]
        by_tools = {language for tool in tools for language in languages_of(tool)}
        runs_code = any(speaker.runs_code for speaker in conversation.speakers)
        # A shell block that cannot run is refused when its message is run.
        return by_tools | ({"python"} if runs_code else set())

    def tool(self, name: str) -> BaseTool | None:
        """Return the tool of this name, or None if there is none."""
        found: BaseTool | None = self._found["tools"].get(name)
        return found

    def find_object(self, kind: str, name: str) -> Any | None:  # noqa: ANN401  # each kind has its own
        """Return the registered or installed object of this name, or None. May import packages."""
        entries = self._entry_points[kind].get(name)
        if name not in self._found[kind] and entries:
            self._found[kind][name] = load_entry_points(kind, entries, name)
        return self._found[kind].get(name)

    def tools_of(self, speaker: Speaker) -> list[BaseTool]:
        """Return the tools that a speaker may call, in the spec's order."""
        return [self._found["tools"][name] for name in speaker.tools]

    def hooks_of(self, speaker: Speaker) -> list[tuple[str, Hook]]:
        """Return the hooks of a speaker with their names, in the spec's order."""
        known = self._found["hooks"]
        return [(name, hook) for name in speaker.hooks if (hook := known[name]) is not None]

    def function(self, name: str) -> ReplyFunction:
        """Return the reply function of this name."""
        found: ReplyFunction = self._found["functions"][name]
        return found

    def agent(self, name: str) -> Agent:
        """Return the reply agent of this name."""
        found: Agent = self._found["agents"][name]
        return found

    def schema_of(self, speaker: Speaker) -> type[BaseModel] | None:
        """Return the pydantic model that a speaker's replies must match, or None."""
        if not isinstance(speaker.format, SchemaFormat):
            return None
        found: type[BaseModel] = self._found["schemas"][speaker.format.name]
        return found

    def predicate(self, name: str) -> PredicateFunction:
        """Return the predicate of this name."""
        found: PredicateFunction = self._found["predicates"][name]
        return found

    def order(self, name: str) -> OrderFunction:
        """Return the turn function of this name."""
        found: OrderFunction = self._found["orders"][name]
        return found

    def resolve_prompts(self, conversation: Conversation) -> Conversation:
        """Return a conversation with the texts of registered prompts, which are stored."""
        found = conversation.prompts
        texts = {
            name: own if own.name is None or own.text is not None else self._text(name, own.name)
            for name, own in found.items()
        }
        return conversation.model_copy(update={"prompts": texts})

    def _text(self, prompt: str, name: str) -> Wording:
        text: str = self._found["prompts"][name]
        unfit = PROMPTS[prompt].find_placeholder_error(text)
        if unfit is not None:
            raise SpecError(f"prompts.{prompt}: the registered text {name!r}: {unfit}")
        return Wording(name=name, text=text)

    def knows(self, conversation: Conversation) -> bool:
        """Return whether all objects that a conversation names are registered and checked."""
        speaking = (one for one in conversation.speakers if one.speaks_with_tool_calls)
        return (
            all(name in self._found[kind] for _, kind, name in _iter_named(conversation))
            and all(name in self._silent for speaker in speaking for name in speaker.tools)
            and not any(self._no_objects(conversation))
        )

    def check(self, conversation: Conversation) -> None:
        """Check that everything a conversation names exists, except tools of MCP servers.

        May import packages and read files. `connect` checks the tools of MCP servers.

        Raises:
            SpecError: A name is unknown, or an object does not fit its place.
        """
        for path, kind, name in _iter_named(conversation):
            if self._is_here(kind, name):
                continue
            if name not in self._entry_points[kind]:
                # A loaded entry point is in both mappings.
                known = list({**self._found[kind], **self._entry_points[kind]})
                hint = did_you_mean(name, known) or self._elsewhere(kind, name)
                raise SpecError(f"{path}: there is no {NOUNS[kind]} {name!r}{hint}")
            self._found[kind][name] = load_entry_points(kind, self._entry_points[kind][name], path)
        self._check_to_user(conversation)
        for path, name in self._no_objects(conversation):
            raise SpecError(
                f"{path}: {name!r} is not a JSON object, which structured output needs; set "
                'format.form = "text", or put it into a field of another pydantic model'
            )

    def list_named_objects(self, conversation: Conversation) -> Iterator[tuple[str, str, bool]]:
        """Yield the kind and the name of each named object, and whether the object exists."""
        named = dict.fromkeys((kind, str(name)) for _, kind, name in _iter_named(conversation))
        for kind, name in named:
            yield kind, name, self._is_here(kind, name) or name in self._entry_points[kind]

    def locate_tools(self, conversation: Conversation) -> dict[str, str]:
        """Return where the named tools that were passed can be imported, by their names."""
        named = {name for _, kind, name in _iter_named(conversation) if kind == "tools"}
        passed = {name: self._brought.get(("tools", name)) for name in map(str, named)}
        places = {name: reference_to(one) for name, one in sorted(passed.items())}
        return {name: place for name, place in places.items() if place is not None}

    def _is_here(self, kind: str, name: str) -> bool:
        return name in self._found[kind] or (kind == "tools" and is_at(self._servers, name))

    async def connect(self, conversation: Conversation) -> None:
        """Load the MCP tools that a conversation names, after `check`.

        Only the servers of these tools are asked, concurrently.
        """
        wanted = [
            (path, name)
            for path, kind, name in _iter_named(conversation)
            if kind == "tools" and name not in self._found[kind]
        ]
        self._found["tools"].update(await _find_mcp_tools(self._servers, wanted))
        self._check_to_user(conversation)

    def check_runtime_store(self, conversation: Conversation, store: object) -> None:
        """Check that LangGraph's store is not None if a tool has an argument for it."""
        for number, speaker in enumerate(conversation.speakers if store is None else ()):
            for tool in filter(needs_store, self.tools_of(speaker)):
                raise SpecError(
                    f"speakers.{number}.tools: {tool.name!r} needs a store of LangGraph; pass one "
                    "as runtime_store, such as InMemoryStore()"
                )

    def _check_to_user(self, conversation: Conversation) -> None:
        """Check that no tool known so far has an argument called `TO_USER`."""
        for number, speaker in enumerate(conversation.speakers):
            found = map(self.tool, speaker.tools if speaker.speaks_with_tool_calls else ())
            for tool in filter(None, found):
                if TO_USER in parameters_of(tool).get("properties", {}):
                    raise SpecError(
                        f"speakers.{number}.speaks_with_tool_calls: the tool {tool.name!r} has its "
                        f"own argument {TO_USER!r}; leave speaks_with_tool_calls off, or rename "
                        "the tool's argument"
                    )
                self._silent.add(tool.name)

    def _no_objects(self, conversation: Conversation) -> Iterator[tuple[str, str]]:
        """Yield the field and name of each structured schema that is not a JSON object."""
        for number, speaker in enumerate(conversation.speakers):
            model, held = self.schema_of(speaker), speaker.format
            if model is None or not isinstance(held, SchemaFormat) or held.form != "structured":
                continue
            if not is_object(model):
                yield f"speakers.{number}.format.name", held.name

    def _elsewhere(self, kind: str, name: str) -> str:
        for other, what in NOUNS.items():
            if name in self._found[other] or name in self._entry_points[other]:
                return f"; it is registered as a {what}"
        about_servers = hint_of(self._servers, name) if kind == "tools" else None
        if about_servers:
            return about_servers
        by_module = ["name its module by --tools on the command line"] if kind == "tools" else []
        remedies = [
            f"pass it in Python, as {kind} of converse",
            *by_module,
            f"install the package that offers it as duologue.{kind}",
        ]
        known = sorted({**self._found[kind], **self._entry_points[kind]})
        if known:
            remedies.append(f"use one of {list_names(known)}")
        return f"; {', '.join(remedies[:-1])}, or {remedies[-1]}"

    @cached_property
    def _servers(self) -> dict[str, Server]:
        return configured_servers() | self._given_servers

    @cached_property
    def _entry_points(self) -> dict[str, dict[str, list[EntryPoint]]]:
        found: dict[str, dict[str, list[EntryPoint]]] = {kind: {} for kind in NOUNS}
        for kind, entries in found.items():
            for entry in entry_points(group=f"duologue.{kind}"):
                entries.setdefault(entry.name, []).append(entry)
        return found


def _iter_named(conversation: Conversation) -> Iterator[tuple[str, str, str]]:
    """Yield the field, the kind and the name of everything that a conversation names."""
    for number, speaker in enumerate(conversation.speakers):
        yield from _iter_named_by(speaker, f"speakers.{number}")
    for path, end in leaves(conversation.end_chat.when, "end_chat.when"):
        for field, kind, name in end.registered():
            yield f"{path}.{field}", kind, name
    for path, inner in inner_conversations(conversation) if conversation.has_inner else ():
        for field, kind, name in _iter_named(inner):
            yield f"{path}.{field}", kind, name
    if isinstance(conversation.turn_order, TurnFunction):
        yield "turn_order.name", "orders", conversation.turn_order.name
    # Prompts of a session that has begun are stored with it.
    for key, own in conversation.prompts.items():
        if own.text is None:
            yield f"prompts.{key}.name", "prompts", str(own.name)


def _iter_named_by(speaker: Speaker, at: str) -> Iterator[tuple[str, str, str]]:
    """Yield the field, the kind and the name of everything that a speaker names."""
    for name in speaker.tools:
        yield f"{at}.tools", "tools", name
    for name in speaker.hooks:
        yield f"{at}.hooks", "hooks", name
    for place, reply in enumerate(speaker.replies):
        if isinstance(reply, FunctionReply | AgentReply):
            yield f"{at}.replies.{place}.name", f"{reply.kind}s", reply.name
        elif isinstance(reply, HumanReply) and reply.is_termination is not None:
            yield f"{at}.replies.{place}.is_termination", "predicates", reply.is_termination
    if isinstance(speaker.format, SchemaFormat):
        yield f"{at}.format.name", "schemas", speaker.format.name


async def _find_mcp_tools(
    servers: Mapping[str, Server], wanted: Iterable[tuple[str, str]]
) -> dict[str, BaseTool]:
    """Return MCP tools by their names. Only the servers of these tools are asked, concurrently.

    Args:
        servers: The MCP servers, by name.
        wanted: The field and the name of each tool. Errors mention the field.

    Raises:
        SpecError: A server has no tool of this name.
        ToolServerError: A server fails.
    """
    named: dict[str, list[tuple[str, str]]] = {}
    for path, name in wanted:
        named.setdefault(name.partition(".")[0], []).append((path, name))
    if not named:
        return {}
    tools_of = await asyncio.to_thread(_import_tools_of, *next(iter(named.values()))[0])
    asks = (tools_of(servers[server], server) for server in named)
    answers = await asyncio.gather(*asks, return_exceptions=True)
    found: dict[str, BaseTool] = {}
    for (server, names), answer in zip(named.items(), answers, strict=True):
        for path, name in names:
            if isinstance(answer, ToolServerError):
                raise ToolServerError(f"{path}: the MCP server {server!r} {answer}") from answer
            if isinstance(answer, BaseException):
                raise answer
            if name not in answer:
                hint = did_you_mean(name, list(answer))
                hint = hint or f"; its tools are {list_names(answer)}"
                raise SpecError(f"{path}: the MCP server {server!r} has no tool {name!r}{hint}")
            found[name] = answer[name]
    return found


def _import_tools_of(
    path: str, name: str
) -> Callable[[Server, str], Awaitable[dict[str, BaseTool]]]:
    """Import the MCP client, which takes a while and needs an extra."""
    try:
        from ..mcp.tools import tools_of
    except ImportError as error:
        raise SpecError(
            f"{path}: {name!r} is a tool of an MCP server, which needs more packages ({error}); "
            + how_to_install("mcp")
        ) from error
    return tools_of
