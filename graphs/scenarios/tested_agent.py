"""The agent under test as a Runnable that runs apart from the session that tests it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config

from ...tools.registry.functions import Agent, call, check_agent, takes_state
from ..common.errors import SpecError
from ..common.validation import name_type

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

OnInterrupt: TypeAlias = Callable[[Any], Any | Awaitable[Any]]
"""Accepts the value of a graph's interrupt. Returns the answer."""

PATIENCE: Final = 300.0
"""The default time in seconds after which a reply is cancelled."""

_NAMELESS = ("<lambda>", "")


@dataclass
class TestedAgent:
    """An agent under test, in one simulation."""

    __test__ = False  # not a test class of pytest

    agent: Agent | Callable[..., Any]
    """The Runnable, or the function of the messages."""
    on_interrupt: OnInterrupt | None = None
    """A function that answers a graph's interrupts. None if there is none."""
    timeout: float = PATIENCE
    """Seconds after which a reply is cancelled."""
    state: Any = None
    """The newest state of a graph. None for other agents."""
    thread: str = field(default_factory=lambda: str(uuid4()))
    """The thread of a graph that has a checkpointer."""

    @classmethod
    def of(
        cls,
        agent: object,
        on_interrupt: OnInterrupt | None = None,
        timeout: float | None = None,
    ) -> "TestedAgent":
        """Return the agent under test.

        Raises:
            TypeError: The agent has a wrong type.
            SpecError: The agent is a graph that cannot be called with messages.
        """
        if on_interrupt is not None and not callable(on_interrupt):
            raise TypeError(f"on_interrupt: must be a function, not {name_type(on_interrupt)}")
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise TypeError(f"agent_timeout: must be a number of seconds above 0, not {timeout!r}")
        seconds = PATIENCE if timeout is None else timeout
        if isinstance(agent, str) and agent.startswith(("http://", "https://")):
            # Imported here, since the import takes long.
            from langchain_openai import ChatOpenAI

            # The server at this address must not receive a key of the environment.
            model = ChatOpenAI(base_url=agent, model="agent", api_key=lambda: "none")
            return cls(model, timeout=seconds)
        if isinstance(agent, Runnable):
            check_agent(agent, "agent: it")
            return cls(agent, on_interrupt, seconds)
        if callable(agent) and not isinstance(agent, type):
            return cls(agent, on_interrupt, seconds)
        shown = repr(agent) if isinstance(agent, str) else name_type(agent)
        raise TypeError(
            "agent: must be a Runnable, such as a compiled graph, a function of the messages, or a "
            f"URL that begins with http:// or https://, not {shown}"
        )

    @property
    def name(self) -> str:
        """Return the agent's name, for errors."""
        if isinstance(self.agent, Runnable):
            return self.agent.get_name()
        name = str(getattr(self.agent, "__name__", ""))
        return "agent" if name in _NAMELESS else name

    def runnable(self) -> Runnable[Any, Any]:
        """Return a Runnable that accepts the messages of the conversation."""

        async def reply(messages: list[BaseMessage], config: RunnableConfig) -> Any:  # noqa: ANN401
            # Within the session's context, a graph would use the session's checkpointer.
            context = copy_context()
            context.run(var_child_runnable_config.set, None)
            asked = self._reply(messages, config)
            try:
                async with asyncio.timeout(self.timeout) as limit:
                    return await asyncio.create_task(asked, context=context)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise SpecError(
                    f"agent_timeout: the agent {self.name!r} did not answer in {self.timeout:g} s, "
                    "so its reply was cancelled; raise the limit or make the agent faster"
                ) from None

        return RunnableLambda(reply, name=self.name)

    async def _reply(self, messages: Sequence[BaseMessage], config: RunnableConfig) -> object:
        if not isinstance(self.agent, Runnable):
            return await call("agent", self.name, self.agent, [*messages])
        own = RunnableConfig(callbacks=config.get("callbacks"))
        if not _is_graph(self.agent):
            given: Any = {"messages": [*messages]} if takes_state(self.agent) else [*messages]
            return await self.agent.ainvoke(given, own)
        return await self._reply_of_graph(self.agent, messages, own)

    async def _reply_of_graph(
        self,
        graph: "Pregel[Any, Any, Any, Any]",
        messages: Sequence[BaseMessage],
        config: RunnableConfig,
    ) -> object:
        keeps = bool(getattr(graph, "checkpointer", None))
        if keeps:
            config["configurable"] = {"thread_id": self.thread}
            messages = _new(messages)
        found = await graph.ainvoke(
            {"messages": [*messages]} if takes_state(graph) else [*messages], config
        )
        while isinstance(found, Mapping) and found.get("__interrupt__"):
            found = await graph.ainvoke(await self._answer(found["__interrupt__"]), config)
        self.state = (await graph.aget_state(config)).values if keeps else found
        return found

    async def _answer(self, interrupts: Sequence[Any]) -> object:
        """Return the command that resumes a graph with the answers to its interrupts."""
        from langgraph.types import Command

        if self.on_interrupt is None:
            raise SpecError(
                f"on_interrupt: the agent {self.name!r} asks {interrupts[0].value!r}; pass a "
                "function that returns the answer"
            )
        name = getattr(self.on_interrupt, "__name__", "on_interrupt")
        answers = {
            one.id: await call("function", name, self.on_interrupt, one.value) for one in interrupts
        }
        return Command(resume=answers)


def _is_graph(agent: Agent) -> "TypeGuard[Pregel[Any, Any, Any, Any]]":
    # Imported here, since the import takes long.
    from langgraph.pregel import Pregel

    return isinstance(agent, Pregel)


def _new(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the messages after the agent's last one."""
    for place in reversed(range(len(messages))):
        if isinstance(messages[place], AIMessage):
            return messages[place + 1 :]
    return messages
