"""Users' own agents as speakers: their runs, and the counting and gating of their model calls.

A compiled graph runs as a subgraph of the session. Its steps are stored with the session's, so a
kill repeats only the call in flight, and its interrupts are questions of the session. Any other
Runnable runs again as a whole. LangGraph records each finished model call, so the calls before a
question or a kill are counted, too. Agents run in an event loop even if LangGraph runs the graph in
threads. Many checkpointers work only in threads, so they are wrapped.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from functools import partial
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.outputs import ChatGeneration, LLMResult
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
from pydantic import JsonValue, ValidationError
from pydantic_core import to_json, to_jsonable_python

from ...graphs.common.errors import (
    DuologueError,
    PausedError,
    ServerDownError,
    SpecError,
    function_error,
)
from ...graphs.common.threads import in_thread
from ...graphs.common.validation import list_names
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.questions import describe_misfit
from ...graphs.conversation.usage import Charges, Usage, add_usage
from ...graphs.ends.limits import ends_by_money
from ...graphs.log.messages import storable
from ...graphs.text.words import tokens_of_message
from ...tools.registry.functions import Agent, is_cancelled, is_remote, takes_state
from ...tools.registry.hooks import Turn
from ..models.adapters.list_prices import (
    ListPrice,
    has_list,
    label_of_call,
    list_price_of_call,
)
from ..models.answers import THOUGHT, count_usage, normalise_answer
from ..models.gate import Gate, Unbroken, report_outage
from ..models.model import NO_STREAM
from ..models.refusals import find_refusal, is_for_now, is_outage, read_retry_seconds
from .interrupt import describe_unstorable
from .running_sessions import record_as_task, runs_in_threads

_record: Final = record_as_task("model_call")


async def _recorded(given: dict[str, Any]) -> dict[str, Any]:
    """Record a call or a mark. If the node runs again, return the earlier record at this place."""

    async def itself() -> dict[str, Any]:
        return given

    found: dict[str, Any] = await _record(itself)
    return found


class ModelCalls(BaseCallbackHandler):
    """A counter of one run's model calls.

    Args:
        agent: The agent's name.
        conversation: The conversation, with the models' prices.
    """

    run_inline = True
    raise_error = True

    def __init__(self, agent: str, conversation: Conversation) -> None:
        self._agent = agent
        self._conversation = conversation
        self._counts_money = ends_by_money(conversation.end_chat.when)
        self._prices: dict[str, Charges | None] = {}
        self._has_list = False
        self._asked: dict[UUID, tuple[str, Sequence[BaseMessage]]] = {}
        self._used: list[tuple[str, Usage]] = []
        self._recording: list[asyncio.Task[None]] = []
        self._unpriced: SpecError | None = None
        # Models may be called in other threads, and within other nodes.
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    async def begin(self) -> None:
        """Count the calls that were recorded before, if the agent continues."""
        if not self._conversation.prices:
            self._has_list = await asyncio.to_thread(has_list)
        mark = {"mark": uuid4().hex}
        while (found := await _recorded(mark)) != mark:
            # Other marks show the beginnings of earlier runs.
            if "model" in found:
                self._used.append((found["model"], Usage.model_validate(found["used"])))

    async def recorded(self) -> None:
        """Wait until all calls are recorded.

        Raises:
            SpecError: A call has no price.
        """
        # Callbacks from other threads come first.
        await asyncio.sleep(0)
        await asyncio.gather(*self._recording)
        if self._unpriced is not None:
            # The agent may have caught the error, or raised another.
            raise self._unpriced

    def added(self, usage: Mapping[str, Usage]) -> dict[str, Usage]:
        """Return a usage with these calls added."""
        found = dict(usage)
        for model, used in self._used:
            found[model] = add_usage((found.get(model, Usage()), used))
        return found

    def tell(self, messages: Sequence[BaseMessage]) -> None:
        """Count the calls by their messages' usage metadata, if no callback has reported any."""
        if self._used:
            return
        for one in messages:
            if isinstance(one, AIMessage) and one.usage_metadata is not None:
                model = str(one.response_metadata.get("model_name") or self._agent)
                self._find_price(model)
                self._begin_recording(self._counted(model, one, []))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401  # None, or an awaitable
        """Note the model and its prompt, and refuse a model without a price."""
        model_data, call_data = serialized or {}, metadata or {}
        model = label_of_call(model_data, call_data)
        self._asked[run_id] = model, messages[0]
        listed = list_price_of_call(model_data, call_data) if self._has_list else None
        self._find_price(model, listed)

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> Any:  # noqa: ANN401  # None, or an awaitable
        """Note the same for a model that completes text."""
        messages: list[BaseMessage] = [HumanMessage(prompts[0])]
        return self.on_chat_model_start(serialized, [messages], run_id=run_id, **kwargs)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count an answered call, and record it before the agent continues with the answer."""
        model, prompt = self._asked.pop(run_id, ("a model", ()))
        found = response.generations[0][0]
        message = found.message if isinstance(found, ChatGeneration) else AIMessage(found.text)
        if not isinstance(message, AIMessage):
            return
        call = self._counted(model, message, prompt)
        if asyncio.get_running_loop() is self._loop:
            await self._begin_recording(call)
            return
        # Not awaited: code that is not async may block the loop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin_recording, call)

    def _counted(
        self, model: str, answer: AIMessage, prompt: Sequence[BaseMessage]
    ) -> dict[str, Any]:
        used = Usage().plus(count_usage(answer, prompt), self._prices.get(model))
        self._used.append((model, used))
        return {"model": model, "used": used.model_dump(mode="json")}

    def _begin_recording(self, call: dict[str, Any]) -> asyncio.Task[None]:
        async def begun() -> None:
            await _recorded(call)

        # Recorded as part of the node that runs the agent, in any thread.
        task = self._loop.create_task(begun(), context=self._context.copy())
        self._recording.append(task)
        return task

    def _find_price(self, model: str, listed: ListPrice | None = None) -> None:
        """Note a model's price, and refuse the model if a price is needed and unknown."""
        prices = self._conversation.prices
        self._prices[model] = price = prices.get(model) if prices else listed
        if price is None and (prices or self._counts_money):
            why = f"the table has {list_names(prices)}" if prices else "max_cost needs one"
            self._unpriced = SpecError(
                f"prices: the model {model!r}, which the agent {self._agent!r} "
                f"calls, has no price ({why}); add one"
            )
            raise self._unpriced


class GatedModelCalls(ModelCalls):
    """A counter of one run's model calls, each of which passes the gate first.

    Calls that are not async do not wait, because they may block the loop.

    Args:
        agent: The agent's name.
        conversation: The conversation, with the models' prices.
        gate: The gate.
    """

    # If an inline callback raises, LangChain never awaits the callbacks after it.
    run_inline = False

    def __init__(self, agent: str, conversation: Conversation, gate: Gate) -> None:
        super().__init__(agent, conversation)
        self._counts_money = self._counts_money or gate.needs_prices
        self._gate = gate
        self._paused: PausedError | None = None
        self._outages: dict[UUID, tuple[str, int]] = {}
        """The outages that calls end if they are answered, by the calls' ids."""
        self._down: DuologueError | None = None

    async def recorded(self) -> None:
        """Wait until all calls are recorded.

        Raises:
            SpecError: A call has no price.
            PausedError: The gate refused a call.
        """
        await super().recorded()
        if self._paused is not None:
            # The agent may have caught the error, or raised another.
            raise self._paused

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Wait until the model may be called."""
        super().on_chat_model_start(serialized, messages, run_id=run_id, **kwargs)
        if asyncio.get_running_loop() is not self._loop:
            return
        model, prompt = self._asked[run_id]
        try:
            number = await self._gate.enter(model, sum(map(tokens_of_message, prompt)))
        except PausedError as error:
            self._paused = error
            raise
        if number:
            self._outages[run_id] = model, number

    async def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Wait before a model that completes text, too."""
        await super().on_llm_start(serialized, prompts, run_id=run_id, **kwargs)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count an answered call, which ends an outage."""
        if (outage := self._outages.pop(run_id, None)) is not None:
            self._gate.end_outage(*outage)
        await super().on_llm_end(response, run_id=run_id, **kwargs)

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Delay all calls of a model if its server refuses this one temporarily."""
        model, _ = self._asked.pop(run_id, ("", ()))
        self._outages.pop(run_id, None)
        found = find_refusal(error)
        if model and is_outage(error) and asyncio.get_running_loop() is self._loop:
            why = f"the server of the model {model} is down"
            try:
                number = await report_outage(self._gate, model, f"the model {model}", found)
            except DuologueError as stopped:
                self._down = stopped
            else:
                self._down = None if number is None else ServerDownError(why, number)
            if self._down is not None:
                return
        if model and found is not None and is_for_now(error):
            self._loop.call_soon_threadsafe(
                self._gate.refused, model, read_retry_seconds(found.headers)
            )

    def check_outage(self, error: Exception) -> None:
        """Stop the run if the agent failed because a server is down that the gate waits for.

        Raises:
            ServerDownError: The run can be resumed in the same batch.
            ModelUnavailableError: The server has been down for too long.
            PausedError: No more calls are made for now.
        """
        if self._down is not None and is_outage(error):
            raise self._down from error

    def _begin_recording(self, call: dict[str, Any]) -> asyncio.Task[None]:
        self._gate.count(call["model"], Usage.model_validate(call["used"]))
        return super()._begin_recording(call)


_LENT = "__pregel_checkpointer"
"""The key under which LangGraph lends a subgraph the checkpointer."""


def for_loop(config: RunnableConfig) -> RunnableConfig:
    """Return a configuration whose checkpointer uses only its methods for threads."""
    configurable = config.get("configurable", {})
    saver = configurable.get(_LENT)
    if not isinstance(saver, BaseCheckpointSaver):
        return config
    lent = copy(saver)
    # LangGraph may copy it again, so no method of it may be bound to this instance.
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


_STEPS: Final = 10_000
"""Maximum number of steps of a graph that sets no limit: the maximum of LangGraph itself."""


async def ask_agent(
    agent: Agent,
    name: str,
    turn: Turn,
    usage: Mapping[str, Usage],
    conversation: Conversation,
    gate: Gate | None,
) -> tuple[AIMessage, JsonValue, dict[str, Usage]]:
    """Ask an agent for a reply. Return it, its plain values, and the usage after it."""
    if gate is None:
        calls = ModelCalls(name, conversation)
    else:
        # A graph stores its steps. Any other agent runs again as a whole.
        is_graph = isinstance(agent, PregelProtocol)
        calls = GatedModelCalls(name, conversation, gate if is_graph else Unbroken(gate))
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
        raise SpecError(f"the agent {name!r} failed: it returned no new message")
    return _reply(name, last, parsed), parsed, calls.added(usage)


def _located(
    agent: Agent, turn: Turn, config: RunnableConfig
) -> tuple[RunnableConfig, list[BaseMessage]]:
    """Return the configuration and the messages of a run; a remote graph has its own thread.

    LangGraph's servers accept only UUIDs as thread ids. The thread follows from the session and the
    speaker, so that no two speakers share one. It also follows from the first message, so that a
    session that was deleted and begun again does not continue the old thread. The thread keeps its
    messages from turn to turn and replaces those whose id it knows, so all messages need stable
    ids.
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
        # A graph's models are streamed as those of a subgraph. In other streamed output, the reply
        # cannot be recognized, and it may be private.
        tags=[] if isinstance(agent, PregelProtocol) else [NO_STREAM],
        # Otherwise the agent would use the session's limit, which is set for the session's steps.
        recursion_limit=own.get("recursion_limit", _STEPS),
    )
    whole, messages = _located(agent, turn, merge_configs(ensure_config(), config))
    where = f"the turn of {turn.speaker!r}"
    given = {"messages": messages} if takes_state(agent) else messages
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
        # An error that is no Exception would end the event loop of all sessions.
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


def _reply(name: str, last: BaseMessage, parsed: JsonValue) -> AIMessage:
    """Return the last message of an agent as its reply."""
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
    thought = answer.additional_kwargs.get(THOUGHT)
    return AIMessage(storable(text), additional_kwargs={THOUGHT: thought}, id=last.id)
