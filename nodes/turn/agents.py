"""Users' own agents as speakers, and their runs.

A compiled graph runs as a subgraph of the session. Its steps are stored with the session's steps,
so after a kill only the call in flight is repeated. Its interrupts are questions of the session.
Any other Runnable runs again as a whole. LangGraph records each finished model call, so the calls
before a question or a kill are counted, too. Agents run in an event loop even if LangGraph runs the
graph in threads. Many checkpointers work only in threads, so they are wrapped.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand, is_invalid_resume
from langgraph.pregel.protocol import PregelProtocol
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from pydantic import JsonValue, ValidationError
from pydantic_core import to_json, to_jsonable_python

from ...graphs.common.errors import (
    DuologueError,
    SpecError,
    function_error,
)
from ...graphs.common.threads import in_thread
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.questions import describe_misfit
from ...graphs.conversation.usage import Usage
from ...graphs.log.messages import storable
from ...graphs.speakers.reply_parts import THOUGHT
from ...tools.registry.functions import Agent, is_cancelled, is_remote, takes_state
from ...tools.registry.hooks import Turn
from ..models.answers import normalise_answer
from ..models.connections import separate_loops
from ..models.gate import StepGate
from ..models.model import NO_STREAM
from .agent_calls import GatedModelCalls, ModelCalls
from .interrupt import describe_unstorable
from .log_writer import CallsMade
from .running_sessions import runs_in_threads

_LENT = "__pregel_checkpointer"
"""The key under which LangGraph lends a subgraph the checkpointer."""

_RUNTIME = "__pregel_runtime"
"""The key under which LangGraph passes a subgraph the context and the store."""


def for_loop(config: RunnableConfig) -> RunnableConfig:
    """Return a configuration whose checkpointer uses only its methods for threads."""
    configurable = config.get("configurable", {})
    saver = configurable.get(_LENT)
    if not isinstance(saver, BaseCheckpointSaver):
        return config
    lent = copy(saver)
    # LangGraph may copy the checkpointer again, so none of its methods may be bound to this
    # instance.
    lent.__class__ = type(type(saver).__name__, (_InThreads, type(saver)), {})
    return {**config, "configurable": {**configurable, _LENT: lent}}


class _InThreads(BaseCheckpointSaver[Any]):
    """The methods of a checkpointer that a run needs, executed in threads."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await in_thread(self.get_tuple, config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Any:  # noqa: ANN401  # the type that LangGraph uses
        found = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await in_thread(found)


def _with_own_store(agent: Agent, config: RunnableConfig) -> RunnableConfig:
    """Return a configuration with the agent's own store if the conversation has no store.

    LangGraph passes a subgraph the store of its parent, even if that is None.
    """
    configurable = config.get("configurable", {})
    runtime, own = configurable.get(_RUNTIME), getattr(agent, "store", None)
    if not isinstance(runtime, Runtime) or not isinstance(own, BaseStore):
        return config
    lent = runtime if runtime.store is not None else runtime.override(store=own)
    return {**config, "configurable": {**configurable, _RUNTIME: lent}}


_STEPS: Final = 10_000
"""Maximum number of steps of a graph that sets no limit, about as many as LangGraph's default."""


class AgentAnswer(NamedTuple):
    """The answer of an agent."""

    reply: AIMessage
    """The reply."""
    parsed: JsonValue
    """The structured response of the agent, as plain values. None if there is none."""
    usage: dict[str, Usage]
    """The usage so far, by model."""
    calls: Sequence[CallsMade]
    """The agent's messages with tool calls before the reply, oldest first, each with the results of
    its calls."""


async def ask_agent(
    agent: Agent,
    name: str,
    turn: Turn,
    usage: Mapping[str, Usage],
    conversation: Conversation,
    gate: StepGate | None,
) -> AgentAnswer:
    """Ask an agent for a reply."""
    if gate is None:
        calls = ModelCalls(name, conversation)
    else:
        # A graph stores its steps, so it can be resumed. Any other agent runs again as a whole.
        gate.is_resumable = isinstance(agent, PregelProtocol)
        calls = GatedModelCalls(name, conversation, gate)
    await calls.begin()
    try:
        found = await _run(agent, name, turn, calls)
    except Exception as error:
        if not is_cancelled():
            await calls.recorded()
            if isinstance(calls, GatedModelCalls):
                calls.check_outage(error)
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
        raise SpecError(f"the agent {name!r} failed: it must return a new message")
    made = [*_with_results(_after_input(messages)[:-1])]
    reply = _reply(name, last, parsed, made)
    if made and made[-1][0].text.strip() == reply.text:
        # The text of the calls is the reply, so it is not said with the calls as well.
        made[-1] = made[-1][0].model_copy(update={"content": ""}), made[-1][1]
    return AgentAnswer(reply, parsed, calls.added(usage), made)


def _after_input(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the messages that an agent has added to its input, which ends with the user's."""
    for place in reversed(range(len(messages))):
        if isinstance(messages[place], HumanMessage):
            return messages[place + 1 :]
    return messages


def _with_results(messages: Sequence[BaseMessage]) -> Iterator[CallsMade]:
    """Yield the messages with tool calls whose results are known, each with these results."""
    results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            ids = [call["id"] for call in message.tool_calls]
            found = [results[one] for one in ids if one in results]
            if len(found) == len(message.tool_calls):
                yield message, found


def _located(
    agent: Agent, turn: Turn, config: RunnableConfig
) -> tuple[RunnableConfig, list[BaseMessage]]:
    """Return the configuration and the messages of a run; a remote graph has its own thread.

    LangGraph's servers accept only UUIDs as thread ids. The id of the thread is computed from the
    session and the speaker, so that no two speakers share a thread. It also depends on the first
    message, so that a session that was deleted and begun again does not continue the old thread.
    The thread keeps its messages from turn to turn and replaces those whose ids it knows, so all
    messages need stable ids.
    """
    messages = [*turn.messages]
    configurable = config.get("configurable", {})
    session = configurable.get("thread_id")
    if session is None or not is_remote(agent):
        return config, messages
    # The last part of the namespace is the speaker's node, the others belong to outer graphs.
    outer = str(configurable.get("checkpoint_ns", "")).rpartition("|")[0]
    first = next((one.id for one in messages if one.id is not None), None)
    thread = uuid5(NAMESPACE_OID, json.dumps([session, outer, turn.speaker, first]))
    stable = [
        one
        if one.id is not None
        else one.model_copy(
            update={"id": str(uuid5(thread, "" if one.type == "system" else one.text))}
        )
        for one in messages
    ]
    return {**config, "configurable": {**configurable, "thread_id": str(thread)}}, stable


async def _run(agent: Agent, name: str, turn: Turn, calls: ModelCalls) -> object:
    """Run the agent as part of the node, and convert the errors that it raises."""
    own = getattr(agent, "config", None) or {}
    config = RunnableConfig(
        callbacks=[calls],
        metadata={"speaker": turn.speaker},
        # A graph's models are streamed as the models of a subgraph. In the stream of any other
        # agent, the reply cannot be recognized, and it may be private.
        tags=[] if isinstance(agent, PregelProtocol) else [NO_STREAM],
        # Otherwise the agent would use the session's limit, which is set for the session's steps.
        recursion_limit=own.get("recursion_limit", _STEPS),
    )
    whole, messages = _located(agent, turn, merge_configs(ensure_config(), config))
    whole = _with_own_store(agent, whole)
    where = f"the turn of {turn.speaker!r}"
    given = {"messages": messages} if takes_state(agent) else messages
    separate_loops(agent)
    try:
        return await agent.ainvoke(given, for_loop(whole) if runs_in_threads() else whole)
    except (DuologueError, GeneratorExit):
        raise
    except ParentCommand as error:
        raise SpecError(
            f"the agent {name!r} failed in {where}: it returned a Command to its parent graph, "
            "the conversation; choose the next speaker with the turn order"
        ) from error
    except GraphInterrupt as error:
        problem = describe_unstorable(error)
        if problem is None:
            raise
        raise SpecError(
            f"the agent {name!r} failed in {where}: its question cannot be stored: {problem}"
        ) from error
    except GraphBubbleUp:
        raise
    except ValidationError as error:
        if is_invalid_resume(error):
            raise describe_misfit(error) from error
        raise function_error("agent", name, error, where) from error
    except BaseException as error:
        # An error that is not an Exception would end the event loop of all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise function_error("agent", name, error, where) from error


def _messages(name: str, found: object) -> Sequence[BaseMessage]:
    """Read an agent's result as messages."""
    match found:
        case str():
            return [AIMessage(found)]
        case BaseMessage():
            return [found]
        case {"messages": list() as messages}:
            # A graph on a server returns its messages as plain data.
            return convert_to_messages(messages)
    raise SpecError(
        f"the agent {name!r} failed: it must return text, a message or a state with messages, not "
        f"{type(found).__name__}"
    )


def _reply(name: str, last: BaseMessage, parsed: JsonValue, made: Sequence[CallsMade]) -> AIMessage:
    """Return the last message of an agent as its reply.

    If it is blank, the reply is the text of the agent's newest calls, or of their results.
    """
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    plain = AIMessage(last.content, additional_kwargs=last.additional_kwargs, id=last.id)
    answer = normalise_answer(plain, name)
    text = str(answer.text)
    if parsed is not None and (isinstance(last, ToolMessage) or not text.strip()):
        # A tool call returned the structured response.
        text = to_json(parsed).decode()
    elif calls and not text.strip():
        called = calls[0]["name"]
        raise SpecError(
            f"the agent {name!r} failed: it returned a call to the tool {called!r} without running "
            "it; use an agent that runs its tools"
        )
    elif made and not text.strip():
        message, results = made[-1]
        found = (one.text for one in results if one.status != "error")
        said = str(normalise_answer(message, name).text).strip()
        text = said or "\n\n".join(filter(None, found))
    thought = answer.additional_kwargs.get(THOUGHT)
    return AIMessage(storable(text), additional_kwargs={THOUGHT: thought}, id=last.id)
