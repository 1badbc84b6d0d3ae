"""Asking an agent of the user's own for a reply: what it is given, and what it may give.

A compiled graph is run as a subgraph of the session: it keeps its steps where the session's are
kept, so that a kill repeats the call in flight alone, and what it asks is a question of the
session. Any other Runnable runs again as a whole.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand, is_invalid_resume
from langgraph.pregel.protocol import PregelProtocol
from pydantic import JsonValue, ValidationError
from pydantic_core import to_json, to_jsonable_python

from ...graphs.common.errors import DuologueError, SpecError, failed
from ...graphs.log.messages import storable
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.questions import unfit
from ...graphs.spec.usage import Usage
from ...tools.registry.agents import Agent, takes_state
from ...tools.registry.functions import is_cancelled
from ...tools.registry.hooks import Turn
from ..models.answers import THOUGHT, normalise_answer
from ..models.gate import Gate, Unbroken
from ..models.model import NO_STREAM
from ..step.asking import unstorable
from ..step.in_threads import runs_in_threads
from .calls import ModelCalls
from .held import HeldCalls
from .savers import for_loop

_STEPS: Final = 10_000
"""How many steps a graph may take that names no limit: as many as LangGraph itself allows."""


async def ask_agent(
    agent: Agent,
    name: str,
    turn: Turn,
    usage: Mapping[str, Usage],
    conversation: Conversation,
    gate: Gate | None,
) -> tuple[AIMessage, JsonValue, dict[str, Usage]]:
    """Ask for a reply; give it, what it says as plain values, and the usage after it."""
    if gate is None:
        calls = ModelCalls(name, conversation)
    else:
        # A graph keeps its own steps; any other runs again as a whole.
        is_graph = isinstance(agent, PregelProtocol)
        calls = HeldCalls(name, conversation, gate if is_graph else Unbroken(gate))
    await calls.begin()
    try:
        found = await _run(agent, name, turn, calls)
    except Exception:
        if not is_cancelled():
            await calls.recorded()
        raise
    messages = _messages(name, found)
    calls.tell(messages)
    await calls.recorded()
    structured = found.get("structured_response") if isinstance(found, Mapping) else None
    parsed: JsonValue = to_jsonable_python(structured, fallback=str)
    is_state = isinstance(found, Mapping)
    heard = {one.id for one in turn.messages if one.id is not None} if is_state else set[str]()
    last = messages[-1] if messages else None
    if last is None or last.id in heard:
        raise SpecError(f"the agent {name!r} failed: it gave no message of its own")
    return _reply(name, last, parsed), parsed, calls.added(usage)


async def _run(agent: Agent, name: str, turn: Turn, calls: ModelCalls) -> object:
    """Run it as a part of the node that asks, whatever it raises."""
    own = getattr(agent, "config", None) or {}
    config = RunnableConfig(
        callbacks=[calls],
        metadata={"speaker": turn.speaker},
        # A graph's models are streamed as those of a subgraph. Of what else they say nobody knows
        # what is the reply, which may be for one alone.
        tags=[] if isinstance(agent, PregelProtocol) else [NO_STREAM],
        # Else it had that of the session, which is made for its own steps.
        recursion_limit=own.get("recursion_limit", _STEPS),
    )
    messages, where = [*turn.messages], f"the turn of {turn.speaker!r}"
    given = {"messages": messages} if takes_state(agent) else messages
    whole = merge_configs(ensure_config(), config)
    try:
        return await agent.ainvoke(given, for_loop(whole) if runs_in_threads() else whole)
    except (DuologueError, GeneratorExit):
        raise
    except ParentCommand as error:
        raise SpecError(
            f"the agent {name!r} failed in {where}: it gave a Command to its parent graph, the "
            "conversation's: who speaks next is a matter of the turn order"
        ) from error
    except GraphInterrupt as error:
        problem = unstorable(error)
        if problem is None:
            raise
        raise SpecError(
            f"the agent {name!r} failed in {where}: what it asks can't be stored: {problem}"
        ) from error
    except GraphBubbleUp:
        raise
    except ValidationError as error:
        if is_invalid_resume(error):
            raise unfit(error) from error
        raise failed("agent", name, error, where) from error
    except BaseException as error:
        # What is no exception would end the loop that runs all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise failed("agent", name, error, where) from error


def _messages(name: str, found: object) -> Sequence[BaseMessage]:
    """Read what it gave."""
    match found:
        case str():
            return [AIMessage(found)]
        case BaseMessage():
            return [found]
        case {"messages": list() as messages}:
            # A graph on a server gives them as plain data.
            return convert_to_messages(messages)
    raise SpecError(
        f"the agent {name!r} failed: it must give text, a message or a state with messages, not "
        f"{type(found).__name__}"
    )


def _reply(name: str, last: BaseMessage, parsed: JsonValue) -> AIMessage:
    """Make a reply of the last of its messages."""
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    plain = AIMessage(last.content, additional_kwargs=last.additional_kwargs, id=last.id)
    answer = normalise_answer(plain, name)
    text = str(answer.text)
    if parsed is not None and (isinstance(last, ToolMessage) or not text.strip()):
        # It was given by a call of a tool.
        text = to_json(parsed).decode()
    elif calls and not text.strip():
        called = calls[0]["name"]
        raise SpecError(
            f"the agent {name!r} failed: it gave a call of the tool {called!r}, which nobody runs: "
            "give an agent that runs its tools itself"
        )
    thought = answer.additional_kwargs.get(THOUGHT)
    return AIMessage(storable(text), additional_kwargs={THOUGHT: thought}, id=last.id)
