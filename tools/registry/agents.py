"""Agents of the user's own, as they are registered: which can be asked, and with what."""

from typing import Any, TypeAlias

from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from ...graphs.common.errors import SpecError

Agent: TypeAlias = Runnable[Any, Any]
"""A compiled graph, or any other of LangChain's Runnables."""


def check_agent(agent: Agent, where: str) -> None:
    """Refuse graphs that can't be given messages, and those that say how their steps are kept."""
    graph = _asked(agent)
    if isinstance(own := getattr(graph, "checkpointer", None), bool):
        raise SpecError(
            f"{where} is compiled with checkpointer={own}: leave that out, since the session keeps "
            "its steps, and gives it what was said at each turn"
        )
    if hasattr(graph, "builder") and "messages" not in getattr(graph, "channels", ("messages",)):
        raise SpecError(
            f"{where} is a graph without messages in its state: add them, or wrap it in a "
            "RunnableLambda that takes a list of messages"
        )


def takes_state(agent: Agent) -> bool:
    """Whether it is given a state with messages, instead of the messages themselves."""
    # Here, since what names no agent loads no LangGraph.
    from langgraph.pregel.protocol import PregelProtocol

    asked = _asked(agent)
    if isinstance(asked, PregelProtocol):
        # What a graph on a server takes is not known here; most take a state.
        return "messages" in getattr(asked, "channels", ("messages",))
    return "messages" in getattr(asked.get_input_schema(), "model_fields", ())


def _asked(agent: Agent) -> Agent:
    """Give what takes the input, of what is composed of several."""
    match agent:
        case RunnableBindingBase():
            return _asked(agent.bound)
        case RunnableWithFallbacks():
            return _asked(agent.runnable)
        case RunnableSequence():
            return _asked(agent.first)
        case _:
            return agent
