"""The agent under test as a Runnable that runs apart from the session that tests it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, cast
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from pydantic_core import to_json

from ...nodes.models.adapters.composed import AsyncRunnable
from ...nodes.models.gate import reply_limit
from ...nodes.models.recorder import note_new_ids
from ...tools.registry.functions import (
    Agent,
    call,
    check_agent,
    import_object,
    is_remote,
    takes_state,
)
from ..common.addresses import show_address
from ..common.data import is_method_of_agent
from ..common.errors import AgentError, SpecError, name_type
from .a2a_agent import A2A, A2aAgent
from .http_agent import HTTP, HttpAgent, ModelServer, name_server, read_address
from .world import check_maker, make_agent_for

if TYPE_CHECKING:
    from langgraph.pregel.protocol import PregelProtocol
    from langgraph.types import Interrupt


OnInterrupt: TypeAlias = Callable[[Any], Any | Awaitable[Any]] | Literal["user"]
"""A function that accepts the value of a graph's interrupt and returns the answer, or ``"user"``:
the simulated user answers."""

PATIENCE: Final = 300.0
"""The default time in seconds after which a reply is cancelled."""

_NAMELESS = ("<lambda>", "")


@dataclass
class AgentSource:
    """The agent under test, or the function that makes it for each simulation."""

    agent: Any = field(repr=False)
    """The agent, as `simulate` accepts it, or the function that makes it."""
    is_made: bool = False
    """Whether each simulation has its own agent, which the function makes."""
    on_interrupt: OnInterrupt | None = None
    """A function that answers a graph's interrupts. None if there is none."""
    timeout: float | None = None
    """Seconds after which a reply is cancelled. The default if None."""
    reference: str | None = None
    """The agent or function as ``module:name``, for other processes. None if only the object is
    known."""
    server: tuple[str | None, str | None] = None, None
    """The options ``agent_model`` and ``agent_key_env`` of an agent that the function makes."""

    @classmethod
    def take(cls, agent: object, options: dict[str, Any], *, worldless: str = "") -> Self:
        """Return the agent that a caller has passed, and remove its options from the others.

        Args:
            agent: The agent. None if the option ``make_agent`` makes it.
            options: The options of `simulate`.
            worldless: The name in errors of a scenario without a world. Empty if there is none.

        Raises:
            TypeError: Both the agent and ``make_agent`` are passed, or neither; or an option has a
                wrong type.
            SpecError: The agent can't be imported, or needs a world, and a scenario has none.
        """
        for name in ("agent_model", "agent_key_env", "agent_version"):
            if not isinstance(given := options.get(name), str | None):
                raise TypeError(f"{name}: must be text, not {name_type(given)}")
        make_agent = options.pop("make_agent", None)
        if (agent is None) is (make_agent is None):
            raise TypeError("agent: pass either the agent, or make_agent")
        options.pop("agent_version", None)
        given, field_name = (agent, "agent") if make_agent is None else (make_agent, "make_agent")
        found = import_agent(given, field_name)
        reference = given if isinstance(given, str) and found is not given else None
        names = ("on_interrupt", "agent_timeout", "agent_model", "agent_key_env")
        on_interrupt, timeout, *server = (options.pop(name, None) for name in names)
        if make_agent is None:
            named = name_server(found, *server)
            # The reference does not name the model and the key.
            return cls(named, False, on_interrupt, timeout, reference if named is found else None)
        check_maker(found, worldless=worldless)
        return cls(found, True, on_interrupt, timeout, reference, (server[0], server[1]))

    async def make(self, world: object) -> object:
        """Return the agent of one simulation with its world."""
        if not self.is_made:
            return self.agent
        return name_server(await make_agent_for(self.agent, world), *self.server)

    def test(self, agent: object) -> "TestedAgent":
        """Return an agent in a new simulation.

        Raises:
            TypeError: The agent has a wrong type.
            SpecError: The agent is a graph that cannot be called with messages, or a text that is
                no valid address.
        """
        on_interrupt, timeout = self.on_interrupt, self.timeout
        if on_interrupt not in (None, "user") and not callable(on_interrupt):
            shown = repr(on_interrupt) if isinstance(on_interrupt, str) else name_type(on_interrupt)
            raise TypeError(f"on_interrupt: must be a function or 'user', not {shown}")
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise TypeError(f"agent_timeout: must be a number of seconds above 0, not {timeout!r}")
        if isinstance(agent, str) and agent.startswith(A2A):
            agent = A2aAgent(read_address(agent.removeprefix(A2A)))
        elif isinstance(agent, str) and agent.startswith(HTTP):
            agent = ModelServer(agent)
        if isinstance(agent, ModelServer):
            agent = agent.connect()
        elif isinstance(agent, HttpAgent):
            agent = agent.begin()
        elif isinstance(agent, Runnable):
            check_agent(agent, "agent: it")
        elif is_method_of_agent(agent):
            raise TypeError("agent: must be the agent itself, not its method; pass the agent")
        elif not callable(agent) or isinstance(agent, type):
            shown = repr(show_address(agent)) if isinstance(agent, str) else name_type(agent)
            hint = "; pass an object of this class" if isinstance(agent, type) else ""
            kind = SpecError if isinstance(agent, str) else TypeError
            raise kind(
                "agent: must be a Runnable, such as a compiled graph, a function of the messages, "
                "the name of one of them as module:name, or a URL that begins with http://, "
                f"https:// or a2a:http, not {shown}{hint}"
            )
        seconds = PATIENCE if timeout is None else timeout
        return TestedAgent(cast("Agent", agent), on_interrupt, seconds)


def import_agent(given: object, field_name: str = "agent") -> Any:  # noqa: ANN401  # any agent
    """Return an agent, or a function that makes it, which ``module:name`` can name.

    Raises:
        SpecError: It can't be imported.
    """
    module, _, name = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    # An address may have a colon in its path.
    is_reference = module and "://" not in module and name.replace(".", "").isidentifier()
    return import_object(f"{module}:{name}", field_name) if is_reference else given


@dataclass
class TestedAgent:
    """An agent under test, in one simulation."""

    __test__ = False  # not a test class of pytest

    agent: Agent | Callable[..., Any] = field(repr=False)
    """The Runnable, or the function of the messages."""
    on_interrupt: OnInterrupt | None = None
    """A function that answers a graph's interrupts, or the user. An interrupt is an error if
    None."""
    timeout: float = PATIENCE
    """Seconds after which a reply is cancelled."""
    state: Any = None
    """The newest state of a graph. None for other agents."""
    speaks_first: bool = False
    """Whether the conversation begins with a fixed reply of the agent."""
    thread: str = field(default_factory=lambda: str(uuid4()))
    """The thread of a graph that has a checkpointer."""
    scripted: int = 0
    """Number of fixed replies after the agent's last own reply. The agent reads them with its next
    messages."""
    asked: tuple["Interrupt", ...] = ()
    """The interrupts that the user answers next."""
    reported: frozenset[str | None] = frozenset()
    """The ids of the messages that the agent wrote before these interrupts."""

    @property
    def name(self) -> str:
        """Return the agent's name, for errors."""
        if isinstance(self.agent, Runnable):
            return self.agent.get_name()
        name = str(getattr(self.agent, "__name__", ""))
        return "agent" if name in _NAMELESS else name

    def runnable(self) -> Runnable[Any, Any]:
        """Return a Runnable that accepts the messages of the conversation."""
        return _Replies(self)

    async def areply(self, messages: list[BaseMessage], config: RunnableConfig) -> Any:  # noqa: ANN401
        """Return the agent's answer to the messages of the conversation."""
        note_new_ids(self.thread, *(one.id for one in messages))
        # Within the session's context, a graph would use the session's checkpointer.
        context = copy_context()
        context.run(var_child_runnable_config.set, None)
        asked = self._reply(messages, config)
        try:
            async with asyncio.timeout(self.timeout) as limit:
                context.run(reply_limit.set, limit)
                return await asyncio.create_task(asked, context=context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AgentError(
                f"agent_timeout: the agent {self.name!r} did not answer in {self.timeout:g} s, "
                "so its reply was cancelled; raise the limit or make the agent faster"
            ) from None

    async def _reply(self, messages: Sequence[BaseMessage], config: RunnableConfig) -> object:
        if self.speaks_first:
            # The instruction to the speaker of the first message is no part of the conversation.
            messages = messages[1:]
        if not isinstance(self.agent, Runnable):
            found = await call("agent", self.name, self.agent, [*messages])
            if isinstance(found, Generator | AsyncGenerator):
                return await call("agent", self.name, _gather, found)
            return found
        # Imported here, since the import takes long.
        from langgraph.pregel.protocol import PregelProtocol

        own = RunnableConfig(callbacks=config.get("callbacks"))
        if not isinstance(self.agent, PregelProtocol):
            given: Any = {"messages": [*messages]} if takes_state(self.agent) else [*messages]
            return await self.agent.ainvoke(given, own)
        return await self._reply_of_graph(self.agent, messages, own)

    async def _reply_of_graph(
        self,
        graph: "PregelProtocol[Any, Any]",
        messages: Sequence[BaseMessage],
        config: RunnableConfig,
    ) -> object:
        # A graph on a server keeps its thread there.
        keeps = is_remote(graph) or bool(getattr(graph, "checkpointer", None))
        if keeps:
            config["configurable"] = {"thread_id": self.thread}
            # The thread is new if a session is resumed, for example after its process was killed.
            messages = messages if self.state is None else self._new(messages)
        given: Any = {"messages": [*messages]} if takes_state(graph) else [*messages]
        if self.asked:
            given = _resume_with({one.id: messages[-1].text for one in self.asked})
            self.asked = ()
        found = await graph.ainvoke(given, config)
        self.scripted = 0
        while isinstance(found, Mapping) and found.get("__interrupt__"):
            if self.on_interrupt == "user":
                return await self._ask_user(found, config, graph)
            found = await graph.ainvoke(await self._answer(found["__interrupt__"]), config)
        self.state = (await graph.aget_state(config)).values if keeps else found
        return self._remove_reported(found)

    async def _ask_user(
        self, found: Mapping[str, Any], config: RunnableConfig, graph: "PregelProtocol[Any, Any]"
    ) -> object:
        """Return the interrupts as the agent's message. The user's next message answers them."""
        self.asked = tuple(_read_interrupt(one) for one in found["__interrupt__"])
        self.state = (await graph.aget_state(config)).values
        text = "\n\n".join(
            one.value if isinstance(one.value, str) else to_json(one.value, fallback=str).decode()
            for one in self.asked
        )
        shown = self._remove_reported({"messages": [], **found})
        messages = convert_to_messages(shown["messages"])
        results = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
        waiting = {
            call["id"]
            for one in messages
            if isinstance(one, AIMessage)
            for call in one.tool_calls
            if call["id"] not in results
        }
        self.reported |= {
            one.id
            for one in messages
            if not waiting.intersection(call["id"] for call in getattr(one, "tool_calls", ()))
        }
        return {"messages": [*messages, AIMessage(text)]}

    def _remove_reported(self, found: Any) -> Any:  # noqa: ANN401  # the output of any graph
        """Return a state without the messages that an earlier reply of the same run contains."""
        if not self.reported or not isinstance(found, Mapping):
            return found
        messages = convert_to_messages(found.get("messages", ()))
        new = [one for one in messages if one.id not in self.reported]
        return {**found, "messages": new}

    def _new(self, messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        """Return the messages after the agent's last own one."""
        left = self.scripted
        for place in reversed(range(len(messages))):
            if isinstance(messages[place], AIMessage):
                if not left:
                    return messages[place + 1 :]
                left -= 1
        return messages

    async def _answer(self, interrupts: Sequence[Any]) -> object:
        """Return the command that resumes a graph with the answers to its interrupts."""
        asked = [_read_interrupt(one) for one in interrupts]
        if self.on_interrupt is None or isinstance(self.on_interrupt, str):
            raise SpecError(
                f"on_interrupt: the agent {self.name!r} asks {asked[0].value!r}; pass a function "
                "that returns the answer, or 'user'"
            )
        name = getattr(self.on_interrupt, "__name__", "on_interrupt")
        answers = {
            one.id: await call("function", name, self.on_interrupt, one.value) for one in asked
        }
        return _resume_with(answers)


class _Replies(AsyncRunnable):
    """An agent under test as a Runnable. If no callback follows its runs, it is called directly."""

    def __init__(self, tested: TestedAgent) -> None:
        self.name = tested.name
        self._reply: Any = tested.areply

    async def ainvoke(
        self,
        input: Any,  # noqa: A002, ANN401  # as in the base class
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401
        """Return the agent's answer."""
        config = ensure_config(config)
        listening = config.get("callbacks")
        if isinstance(listening, BaseCallbackManager) and all(
            one.ignore_chain for one in listening.handlers
        ):
            return await self._reply(input, config)
        return await self._acall_with_config(self._reply, input, config)


def _resume_with(answers: Mapping[str, object]) -> object:
    from langgraph.types import Command

    return Command(resume=answers)


def _gather(found: Generator[Any, Any, Any] | AsyncGenerator[Any, Any]) -> Any:  # noqa: ANN401
    """Return the reply that a generator yields: its text or message in pieces, or its last state.

    A sync generator is read in a thread.
    """
    if isinstance(found, AsyncGenerator):

        async def gather() -> object:
            return _join([piece async for piece in found])

        return gather()
    return _join([*found])


def _join(pieces: Sequence[Any]) -> object:
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    if all(isinstance(piece, BaseMessageChunk) for piece in pieces):
        return sum(pieces[1:], start=pieces[0])
    if any(getattr(piece, "object", None) == "chat.completion.chunk" for piece in pieces):
        # Azure's content filter adds chunks of another kind, with choices that have no delta.
        choices = (one for piece in pieces for one in getattr(piece, "choices", ()))
        deltas = (getattr(one, "delta", None) for one in choices)
        return "".join(getattr(delta, "content", None) or "" for delta in deltas)
    return pieces[-1]


def _read_interrupt(given: object) -> "Interrupt":
    """Return an interrupt, which a server sends as a dict."""
    from langgraph.types import Interrupt

    return Interrupt(**given) if isinstance(given, Mapping) else cast("Interrupt", given)
