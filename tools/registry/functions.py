"""Functions and agents of the user's own: their arguments, and the one way to call them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, TypeAlias, TypeVar, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ...graphs.common.errors import SpecError, function_error
from ...graphs.common.threads import in_thread
from .hooks import ArgumentsError, Turn

T = TypeVar("T")

PredicateFunction: TypeAlias = Callable[[Sequence[BaseMessage]], bool | Awaitable[bool]]
"""Takes what all heard in the rounds and as last words, oldest first, each with ``name`` and
``text``; True ends it."""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Takes what all heard, oldest first, and the speakers' names; gives who speaks next."""

ReplyFunction: TypeAlias = Callable[[Turn], str | Awaitable[str | None] | None]
"""Takes the speaker's turn; gives its reply, or None to leave it to what comes after it."""


async def call(
    what: str,
    name: str,
    function: Callable[..., T | Awaitable[T]],
    *given: Any,
    at: str | None = None,
) -> T:
    """Call a function of the user's own, sync or async.

    One that is not async gets a thread of its own: whatever it waits for holds up no other
    conversation. It can't be ended: where the run is cancelled it runs on, unheard.
    """
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
            answer: object = function(*given)
        else:
            answer, raised = await in_thread(_outcome, function, *given)
            if raised is not None:
                raise raised
        return cast("T", await answer if isawaitable(answer) else answer)
    except GeneratorExit:
        # Nobody waits for the answer any more.
        raise
    except BaseException as error:
        # What is no exception would end the loop that runs all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise function_error(what, name, error, at) from error


def _outcome(
    function: Callable[..., object], *given: object
) -> tuple[object, BaseException | None]:
    """Give what a function gives, and what it raises, which not every thread hands on."""
    try:
        return function(*given), None
    except BaseException as error:
        return None, error


def is_cancelled() -> bool:
    """Whether the whole run is cancelled, and not only what a function awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def takes_values(score: Callable[..., object]) -> bool:
    """Whether a score is given the values of its cell, too: it needs them, or names them."""
    try:
        takes = signature(score)
    except (TypeError, ValueError):
        # Some that are written in C do not tell.
        return False
    try:
        takes.bind("result", "values")
    except TypeError:
        return False
    second = [*takes.parameters.values()][1:2]
    return any(one.name == "values" or one.default is one.empty for one in second)


def parameters_of(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments as models are told of them."""
    found: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    return found


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Make sure that arguments are what a JSON schema asks for."""
    # Here, since most conversations need none of it, and it takes long to load.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        # With a registry of its own it fetches nothing that the schema refers to.
        found = list(kind(schema, registry=Registry()).iter_errors(arguments))
    except (SchemaError, Unresolvable, re.error):
        # It is the tool's to say.
        return
    if found:
        wrong = (f"{'.'.join(map(str, one.path)) or 'they'}: {one.message:.200}" for one in found)
        raise ArgumentsError("; ".join(wrong))


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
