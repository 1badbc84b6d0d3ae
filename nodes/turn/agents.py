"""Runs of users' own agents and of inner conversations, as sources of replies.

A compiled graph runs as a subgraph of the session. Its steps are stored with the session's steps,
so after a kill only the call in flight is repeated. Its interrupts are questions of the session.
Any other Runnable runs again as a whole. LangGraph records each finished model call, so the calls
before a question or a kill are counted, too. Agents run in an event loop even if LangGraph runs the
graph in threads. An inner conversation runs as a subgraph, too; when it has ended, the session's
log contains its whole log.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Container, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand, is_invalid_resume
from langgraph.pregel.protocol import PregelProtocol
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_json, to_jsonable_python

from ...graphs.common.content import files_of, make_content
from ...graphs.common.errors import (
    AnswerError,
    DuologueError,
    PausedError,
    SpecError,
    StoreError,
    function_error,
)
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.questions import describe_misfit
from ...graphs.conversation.served import first_argument
from ...graphs.conversation.usage import Usage, dump_usage, read_usage
from ...graphs.ends.end import Facts
from ...graphs.log.messages import count_spoken, dump_log, storable
from ...graphs.log.metadata import NOBODY, InnerSession, Source
from ...graphs.log.state import State, log_of
from ...graphs.rules.log_counter import with_usage
from ...graphs.rules.met_ends import limit_inner
from ...graphs.rules.outcome import Outcome, find_output, output_text, output_value
from ...graphs.rules.position import max_steps
from ...graphs.speakers.reply_parts import THOUGHT
from ...tools.registry.functions import Agent, is_cancelled, is_remote, takes_state
from ...tools.sandbox import sandbox
from ..models.answers import normalise_answer
from ..models.connections import separate_loops
from ..models.model import NO_STREAM
from .agent_calls import GatedModelCalls, ModelCalls
from .hooks import DraftReply
from .interrupt import describe_unstorable
from .log_writer import CallsMade, add_agent_calls
from .node_context import NodeContext
from .running_sessions import RunningSessions, runs_in_threads, use_saver_in_threads

_RUNTIME = "__pregel_runtime"
"""The key under which LangGraph passes a subgraph the context and the store."""


def _lend_own_store(agent: Agent, config: RunnableConfig) -> RunnableConfig:
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


async def ask_agent(context: NodeContext, name: str, view: Sequence[BaseMessage]) -> DraftReply:
    """Ask an agent for the speaker's reply. Its earlier calls of tools become messages of the log.

    Args:
        context: The session's state.
        name: The agent's name.
        view: The messages for the agent, which it may change.
    """
    agent = context.resources.registry.agent(name)
    conversation, gate = context.conversation, context.gate
    if gate is None:
        calls = ModelCalls(name, conversation)
    else:
        # A graph stores its steps, so it can be resumed. Any other agent runs again as a whole.
        gate.is_resumable = isinstance(agent, PregelProtocol)
        calls = GatedModelCalls(name, conversation, gate)
    await calls.begin()
    try:
        found = await _run(agent, name, context.turn.speaker, view, calls)
    except Exception as error:
        if not is_cancelled():
            await calls.finish_recording()
            if isinstance(calls, GatedModelCalls):
                calls.check_outage(error)
        raise
    messages = _read_messages(name, found)
    calls.count_messages(messages)
    await calls.finish_recording()
    if isinstance(found, list):
        messages = _join_last(messages, {one.id for one in view})
    structured = found.get("structured_response") if isinstance(found, Mapping) else None
    parsed: JsonValue = to_jsonable_python(structured, fallback=str)
    is_state = isinstance(found, Mapping | list)
    heard = {one.id for one in view if one.id is not None} if is_state else set[str]()
    last = messages[-1] if messages else None
    if last is None or last.id in heard:
        raise SpecError(f"the agent {name!r} failed: it must return a new message")
    # The agent's input ends with the user's message.
    users = (at for at in reversed(range(len(messages))) if isinstance(messages[at], HumanMessage))
    made = [*_pair_calls(messages[next(users, -1) + 1 : -1])]
    reply = _read_reply(name, last, parsed, made)
    if made and made[-1][0].text.strip() == reply.text:
        # The text of the calls is the reply, so it is not said with the calls as well.
        made[-1] = made[-1][0].model_copy(update={"content": ""}), made[-1][1]
    add_agent_calls(context, made)
    for model, used in calls.used:
        context.add_usage({model: used})
    return DraftReply(reply, Source.AGENT, parsed)


def _join_last(messages: Sequence[BaseMessage], heard: Container[str | None]) -> list[BaseMessage]:
    """Return a list of messages in which the new texts at its end are one message."""
    last = [
        *takewhile(
            lambda one: (
                isinstance(one, AIMessage)
                and not one.tool_calls
                and (one.id is None or one.id not in heard)
            ),
            reversed(messages),
        )
    ][::-1]
    if len(last) < 2:  # nothing to join
        return [*messages]
    text = "\n\n".join(one.text for one in last if one.text)
    files = [file for one in last for file in files_of(one.content)]
    joined = last[-1].model_copy(update={"content": make_content(text, files)})
    return [*messages[: -len(last)], joined]


def _pair_calls(messages: Sequence[BaseMessage]) -> Iterator[CallsMade]:
    """Yield the messages with tool calls whose results are known, each with these results."""
    results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            ids = [call["id"] for call in message.tool_calls]
            found = [results[one] for one in ids if one in results]
            if len(found) == len(message.tool_calls):
                yield message, found


def _locate_thread(
    agent: Agent, speaker: str, view: Sequence[BaseMessage], config: RunnableConfig
) -> tuple[RunnableConfig, list[BaseMessage]]:
    """Return the configuration and the messages of a run; a remote graph has its own thread.

    LangGraph's servers accept only UUIDs as thread ids. The id of the thread is computed from the
    session and the speaker, so that no two speakers share a thread. It also depends on the first
    message, so that a session that was deleted and begun again does not continue the old thread.
    The thread keeps its messages from turn to turn and replaces those whose ids it knows, so all
    messages need stable ids.
    """
    messages = [*view]
    configurable = config.get("configurable", {})
    session = configurable.get("thread_id")
    if session is None or not is_remote(agent):
        return config, messages
    # The last part of the namespace is the speaker's node, the others belong to outer graphs.
    outer = str(configurable.get("checkpoint_ns", "")).rpartition("|")[0]
    first = next((one.id for one in messages if one.id is not None), None)
    thread = uuid5(NAMESPACE_OID, json.dumps([session, outer, speaker, first]))
    stable = [
        one
        if one.id is not None
        else one.model_copy(
            update={"id": str(uuid5(thread, "" if one.type == "system" else one.text))}
        )
        for one in messages
    ]
    return {**config, "configurable": {**configurable, "thread_id": str(thread)}}, stable


async def _run(
    agent: Agent, name: str, speaker: str, view: Sequence[BaseMessage], calls: ModelCalls
) -> object:
    """Run the agent as part of the node, and convert the errors that it raises."""
    own = getattr(agent, "config", None) or {}
    config = RunnableConfig(
        callbacks=[calls],
        metadata={"speaker": speaker},
        # A graph's models are streamed as the models of a subgraph. In the stream of any other
        # agent, the reply cannot be recognized, and it may be private.
        tags=[] if isinstance(agent, PregelProtocol) else [NO_STREAM],
        # Otherwise the agent would use the session's limit, which is set for the session's steps.
        recursion_limit=own.get("recursion_limit", _STEPS),
    )
    whole, messages = _locate_thread(agent, speaker, view, merge_configs(ensure_config(), config))
    whole = _lend_own_store(agent, whole)
    where = f"the turn of {speaker!r}"
    given = {"messages": messages} if takes_state(agent) else messages
    separate_loops(agent)
    try:
        return await agent.ainvoke(
            given, use_saver_in_threads(whole) if runs_in_threads() else whole
        )
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


def _read_messages(name: str, found: object) -> Sequence[BaseMessage]:
    """Read an agent's result as messages."""
    match found:
        case str():
            return [AIMessage(found)]
        case BaseMessage():
            return [found]
        case {"messages": list() as messages} | (list() as messages):
            # A graph on a server returns its messages as plain data.
            return _convert_messages(name, messages)
        case {"role": _, "content": _}:
            return _convert_messages(name, [found])
        case BaseModel() if (message := _read_openai(found)) is not None:
            return _convert_messages(name, [message])
        case Mapping():
            fields = ", ".join(map(repr, found)) or "no fields"
            raise SpecError(
                f"the agent {name!r} failed: it returned a state with {fields}; add 'messages', or "
                "wrap the agent in a function that returns the reply's text"
            )
    raise SpecError(
        f"the agent {name!r} failed: it must return text, a message, a list of messages or a state "
        f"with messages, not {type(found).__name__}"
    )


def _convert_messages(name: str, messages: Sequence[Any]) -> Sequence[BaseMessage]:
    try:
        return convert_to_messages(messages)
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        raise SpecError(
            f"the agent {name!r} failed: it returned a message that can't be read: {error}"
        ) from error


def _read_openai(found: BaseModel) -> Mapping[str, Any] | None:
    """Return a reply of OpenAI's client as a message, or None if it is another object.

    It is a message, a completion with choices, or a response with `output_text`.
    """
    if isinstance(text := getattr(found, "output_text", None), str):
        return {"role": "assistant", "content": text}
    choices = getattr(found, "choices", None)
    message: Any = getattr(choices[0], "message", None) if choices else found
    if not hasattr(message, "content") or not hasattr(message, "role"):
        return None
    fields = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
    return {"content": getattr(message, "refusal", None) or "", **fields}


def _read_reply(
    name: str, last: BaseMessage, parsed: JsonValue, made: Sequence[CallsMade]
) -> AIMessage:
    """Return the last message of an agent as its reply.

    If it is blank, the reply is the text of the agent's newest calls, or of their results.
    """
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    plain = AIMessage(last.content, additional_kwargs=last.additional_kwargs, id=last.id)
    answer = normalise_answer(plain, name)
    text, files = str(answer.text), files_of(answer.content)
    is_blank = not (text.strip() or files)
    if parsed is not None and (isinstance(last, ToolMessage) or is_blank):
        # A tool call returned the structured response.
        text = to_json(parsed).decode()
    elif calls and is_blank:
        called = calls[0]["name"]
        raise SpecError(
            f"the agent {name!r} failed: it returned a call to the tool {called!r} without running "
            "it; use an agent that runs its tools"
        )
    elif made and is_blank:
        message, results = made[-1]
        found = (one.text for one in results if one.status != "error")
        said = str(normalise_answer(message, name).text).strip()
        text = said or "\n\n".join(filter(None, found))
    thought = answer.additional_kwargs.get(THOUGHT)
    content = make_content(storable(text), files)
    return AIMessage(content, additional_kwargs={THOUGHT: thought}, id=last.id)


class InnerOutput(NamedTuple):
    """The output of an inner conversation."""

    text: str
    """The output as text."""
    value: Any
    """The output as plain values. None if it is only text."""


class InnerRun(NamedTuple):
    """An inner conversation that has ended or failed."""

    about: InnerSession
    """Its record for the outer log."""
    usage: dict[str, Usage]
    """Its usage, by model."""
    output: InnerOutput | None
    """Its output. None if it has none."""
    outcome: Outcome | None
    """Its outcome. None if it has failed."""
    error: Exception | None = None
    """The error by which it has failed. None if it has ended."""


INNER_STATE: Final = (
    *("spec", "specified_task", "messages", "unspoken", "usage", "outcome", "interpreter"),
)
"""The channels of the inner graph's state that are read."""


async def run_inner(
    context: NodeContext,
    inner: Conversation,
    text: str | None,
    call_id: str | None = None,
    seconds: float | None = None,
) -> InnerRun:
    """Run or resume an inner conversation.

    Args:
        context: The context of the outer node.
        inner: The conversation.
        text: Its task, or its person's first message. If None, it has its own task, and its person
            is asked for the first message.
        call_id: The id of the tool call that runs it. None if it replies for the speaker.
        seconds: The maximum running time in seconds. No limit if None.

    Raises:
        GraphBubbleUp: It waits for a person.
        AnswerError: The answer of a person does not fit, and the question stays open.
        PausedError: A batch is paused.
        StoreError: The store can't be read or written.
    """
    given = input_of_inner(inner, text)
    values: State = {}
    error: Exception | None = None
    try:
        async with (
            asyncio.timeout(seconds) as limit,
            aclosing(_begin_stream(context, inner, given)) as states,
        ):
            async for found in states:
                values = found
    except TimeoutError:
        if not limit.expired():
            raise
        error = DuologueError(f"it took longer than {seconds:g} s and was stopped")
    except (GraphBubbleUp, AnswerError, PausedError, StoreError):
        raise
    except Exception as raised:
        # Objects that users pass, such as chat models, may raise any error.
        error = raised
    await close_inner(values)
    return _read_run(context.turn.speaker, inner, values, call_id, error)


def input_of_inner(inner: Conversation, text: str | None) -> dict[str, Any]:
    """Return the input of the inner graph: the conversation, with a task or a first message."""
    if text is None:
        return {"conversation": inner.stored()}
    if first_argument(inner) == "message":
        return {"conversation": inner.stored(), "messages": [HumanMessage(text)]}
    return {"conversation": inner.model_copy(update={"task": text}).stored()}


def _begin_stream(
    context: NodeContext, inner: Conversation, given: dict[str, Any]
) -> AsyncGenerator[State, None]:
    """Return a generator of the state of the inner graph after each step."""
    compile_inner = context.resources.compile_inner
    assert compile_inner is not None  # noqa: S101  # `graphs.build` sets it
    facts = count_facts_now(context)
    speaker = context.turn.speaker
    limit = partial(limit_inner, outer=context.conversation, facts=facts, speaker=speaker)
    graph = compile_inner(
        replace(
            context.resources,
            form=None,
            progress=None,
            tokens=False,
            running=RunningSessions(limit=limit),
            is_inner=True,
        )
    )
    config = merge_configs(ensure_config(), RunnableConfig(recursion_limit=max_steps(inner)))
    config = use_saver_in_threads(config) if runs_in_threads() else config
    stream = graph.astream(given, config, stream_mode="values", output_keys=[*INNER_STATE])
    return cast("AsyncGenerator[State, None]", stream)


async def close_inner(values: State) -> None:
    """Close the interpreter of an inner conversation that has ended, and delete its files."""
    kept = values.get("interpreter")
    if kept:
        await sandbox.close(kept["key"])


def count_facts_now(context: NodeContext) -> Facts:
    """Return the counts of a session, with its usage and the seconds up to now."""
    before, speaker = context.position.facts, context.turn.speaker
    facts = with_usage(before, context.usage.values(), before, speaker)
    seconds = facts.seconds + time.monotonic() - context.began
    return facts.model_copy(update={"seconds": seconds})


def _read_run(
    speaker: str,
    inner: Conversation,
    values: State,
    call_id: str | None,
    error: Exception | None,
) -> InnerRun:
    log, usage = log_of(values), read_usage(values)
    ended = values.get("outcome")
    outcome = Outcome.model_validate(ended) if ended else None
    output = read_output(inner, log) if error is None else None
    end = str(outcome) if error is None else f"it failed: {describe_error(error)}"
    count = count_spoken(log)
    of = f"{count} {'message' if count == 1 else 'messages'}"
    about = InnerSession(
        speaker=speaker,
        audience=NOBODY,
        summary=f"{of}: {end}",
        conversation=values.get("spec") or inner.stored(),
        specified_task=values.get("specified_task") or None,
        log=dump_log(log),
        outcome=ended or None,
        usage=dump_usage(usage),
        call_id=call_id,
    )
    return InnerRun(about, usage, output, outcome, error)


def read_output(inner: Conversation, log: Sequence[AnyMessage]) -> InnerOutput | None:
    """Return the output of an inner conversation, or None if it has none."""
    message = find_output(inner, log)
    if message is None:
        return None
    value, text = output_value(inner, message), output_text(inner, message)
    if value is None or isinstance(value, str):
        return InnerOutput(text, None)
    return InnerOutput(text if text.strip() else to_json(value).decode(), value)


def describe_error(error: Exception) -> str:
    """Return the text of an error. If the error is not duologue's, its type comes first."""
    is_ours = isinstance(error, DuologueError)
    return str(error) if is_ours else f"{type(error).__name__}: {error}"
