"""Registered functions and agents: their arguments, and how they are called."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

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
"""Accepts the messages of the rounds and the last words that all speakers hear, oldest first, each
with ``name`` and ``text``. Returns whether the conversation ends.
"""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Accepts the messages that all speakers hear, oldest first, and the names of the speakers. Returns
the name of the next speaker.
"""

ReplyFunction: TypeAlias = Callable[[Turn], str | Awaitable[str | None] | None]
"""Accepts the speaker's turn. Returns its reply, or None to leave the reply to the next entry of
``replies``.
"""


async def call(
    what: str,
    name: str,
    function: Callable[..., T | Awaitable[T]],
    *given: Any,
    at: str | None = None,
) -> T:
    """Call a registered function, sync or async.

    A sync function runs in its own thread, so that it does not block other conversations. Threads
    cannot be stopped: if the run is cancelled, the function continues and its result is ignored.
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
        # The caller no longer waits for the answer.
        raise
    except BaseException as error:
        # A BaseException, such as SystemExit, would end the event loop that runs all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise function_error(what, name, error, at) from error


def _outcome(
    function: Callable[..., object], *given: object
) -> tuple[object, BaseException | None]:
    """Return a function's result, or return its exception: some threads would not raise it."""
    try:
        return function(*given), None
    except BaseException as error:
        return None, error


def is_cancelled() -> bool:
    """Return whether the whole run is cancelled, not only something that a function awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def takes_values(score: Callable[..., object]) -> bool:
    """Return whether a score function accepts, as second argument, the values set by the batch."""
    try:
        takes = signature(score)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return False
    try:
        takes.bind("result", "values")
    except TypeError:
        return False
    second = [*takes.parameters.values()][1:2]
    return any(one.name == "values" or one.default is one.empty for one in second)


def parameters_of(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, as models see it."""
    found: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    return found


def needs_store(tool: BaseTool) -> bool:
    """Return whether an argument of a tool is marked with LangGraph's ``InjectedStore``."""
    # Not imported, since the import takes long. If the module is not loaded, there is no such mark.
    prebuilt = sys.modules.get("langgraph.prebuilt.tool_node")
    if prebuilt is None:
        return False
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    try:
        hints = {} if function is None else get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # The types of the arguments can't be read. The schema may contain the mark.
        hints = {}
    marks = [mark for hint in hints.values() for mark in get_args(hint)[1:]]
    fields = getattr(tool.get_input_schema(), "model_fields", {})
    marks += [mark for field in fields.values() for mark in field.metadata]
    kind = prebuilt.InjectedStore
    return any(mark is kind or isinstance(mark, kind) for mark in marks)


def check_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise ArgumentsError unless the arguments match a JSON schema."""
    # Imported here, since it loads slowly and most conversations do not need it.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        # An empty registry prevents the download of schemas that this schema refers to.
        found = list(kind(schema, registry=Registry()).iter_errors(arguments))
    except (SchemaError, Unresolvable, re.error):
        # The schema is invalid, so the tool itself must check its arguments.
        return
    if found:
        wrong = (
            f"{'.'.join(map(str, one.path)) or 'arguments'}: {one.message:.200}" for one in found
        )
        raise ArgumentsError("; ".join(wrong))


Agent: TypeAlias = Runnable[Any, Any]
"""A compiled graph, or any other LangChain Runnable."""


def check_agent(agent: Agent, where: str) -> None:
    """Raise SpecError if a graph has no messages in its state, or sets its own checkpointer."""
    graph = _asked(agent)
    if isinstance(own := getattr(graph, "checkpointer", None), bool):
        raise SpecError(
            f"{where} is compiled with checkpointer={own}; remove that, since the session stores "
            "the graph's steps and passes it the messages of each turn"
        )
    if hasattr(graph, "builder") and "messages" not in getattr(graph, "channels", ("messages",)):
        raise SpecError(
            f"{where} is a graph without messages in its state; add them, or wrap it in a "
            "RunnableLambda that accepts a list of messages"
        )


def takes_state(agent: Agent) -> bool:
    """Return whether an agent expects a state with messages instead of a list of messages."""
    # Imported here, since conversations without agents need no LangGraph.
    from langgraph.pregel.protocol import PregelProtocol

    asked = _asked(agent)
    if isinstance(asked, PregelProtocol):
        # The input of a remote graph is not known here; most expect a state.
        return "messages" in getattr(asked, "channels", ("messages",))
    return "messages" in getattr(asked.get_input_schema(), "model_fields", ())


def is_remote(agent: Agent) -> bool:
    """Return whether an agent is a graph on a LangGraph server."""
    # Not imported, since the import takes a second. If the module is not loaded, there is no such
    # graph.
    remote = sys.modules.get("langgraph.pregel.remote")
    return remote is not None and isinstance(_asked(agent), remote.RemoteGraph)


def _asked(agent: Agent) -> Agent:
    """Return the runnable inside a composed Runnable that receives the input."""
    match agent:
        case RunnableBindingBase():
            return _asked(agent.bound)
        case RunnableWithFallbacks():
            return _asked(agent.runnable)
        case RunnableSequence():
            return _asked(agent.first)
        case _:
            return agent
