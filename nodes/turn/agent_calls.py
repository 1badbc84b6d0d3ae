"""Callbacks that count, record and gate the model calls of a user's agent."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from ...graphs.common.errors import (
    DuologueError,
    PausedError,
    ServerDownError,
    SpecError,
    find_address,
    list_names,
)
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.usage import Charges, Usage
from ...graphs.ends.limits import ends_by_money
from ...graphs.text.words import tokens_of_message
from ..models.adapters.provider_parameters import (
    ListPrice,
    label_of_call,
    list_price_of_call,
    load_list,
)
from ..models.answers import count_usage
from ..models.gate import PlannedCall, StepGate, report_outage, suspend_reply_limit
from ..models.refusals import find_refusal, is_for_now, is_outage, read_retry_seconds
from .running_sessions import may_repeat_step, record_as_task

_record: Final = record_as_task("model_call")


async def _record_call(given: dict[str, Any]) -> dict[str, Any]:
    """Record a model call, or a mark for the beginning of a run.

    If the node runs again, return the record that the earlier run made at this point.
    """

    async def itself() -> dict[str, Any]:
        return given

    found: dict[str, Any] = await _record(itself)
    return found


class ModelCalls(BaseCallbackHandler):
    """A counter of the model calls of one agent run.

    Args:
        agent: The agent's name.
        conversation: The conversation, with the models' prices.
    """

    run_inline = True
    raise_error = True
    # Otherwise LangChain calls the empty methods of these events.
    ignore_agent = True
    ignore_chain = True
    ignore_custom_event = True
    ignore_retriever = True
    ignore_retry = True

    def __init__(self, agent: str, conversation: Conversation) -> None:
        self._agent = agent
        self._conversation = conversation
        self._counts_money = ends_by_money(conversation.end_chat.when)
        self._prices: dict[str, Charges | None] = {}
        self._has_list = False
        self._asked: dict[UUID, tuple[str, Sequence[BaseMessage], object]] = {}
        self.used: list[tuple[str, Usage]] = []
        """The model and the usage of each call."""
        self._recording: list[asyncio.Task[None]] = []
        self._unpriced: SpecError | None = None
        # Models may be called in other threads, and within other nodes.
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    async def begin(self) -> None:
        """Count the calls that were recorded by earlier runs of the node, if there are any."""
        if not self._conversation.prices:
            self._has_list = await load_list()
        if not may_repeat_step():
            return
        mark = {"mark": uuid4().hex}
        while (found := await _record_call(mark)) != mark:
            # Marks show the beginnings of runs. All records before this run's mark are from earlier
            # runs.
            if "model" in found:
                self.used.append((found["model"], Usage.model_validate(found["used"])))

    async def finish_recording(self) -> None:
        """Wait until all calls are recorded.

        Raises:
            SpecError: A call has no price.
        """
        # Let callbacks from other threads run first.
        await asyncio.sleep(0)
        await asyncio.gather(*self._recording)
        if self._unpriced is not None:
            # The agent may have caught this error, or raised another one instead.
            raise self._unpriced

    def count_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Count the calls by their messages' usage metadata, if no callback has reported any."""
        if self.used:
            return
        for one in messages:
            if isinstance(one, AIMessage) and one.usage_metadata is not None:
                model = str(one.response_metadata.get("model_name") or self._agent)
                self._find_price(model)
                self._begin_recording(self._count_call(model, one, []))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401  # None, or an awaitable
        """Note the model and the prompt of a call, and refuse a model without a price."""
        model_data, call_data = serialized or {}, metadata or {}
        model = label_of_call(model_data, call_data)
        self._asked[run_id] = model, messages[0], kwargs.get("invocation_params")
        listed = list_price_of_call(model_data, call_data) if self._has_list else None
        self._find_price(model, listed)

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> Any:  # noqa: ANN401  # None, or an awaitable
        """Note the model and the prompt of a call that completes text."""
        messages: list[BaseMessage] = [HumanMessage(prompts[0])]
        return self.on_chat_model_start(serialized, [messages], run_id=run_id, **kwargs)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count an answered call, and record it before the agent continues with the answer."""
        model, prompt, request = self._asked.pop(run_id, ("a model", (), None))
        found = response.generations[0][0]
        message = found.message if isinstance(found, ChatGeneration) else AIMessage(found.text)
        if not isinstance(message, AIMessage):
            return
        call = self._count_call(model, message, prompt, request)
        if asyncio.get_running_loop() is self._loop:
            await self._begin_recording(call)
            return
        # Not awaited: code that is not async may block the loop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin_recording, call)

    def _count_call(
        self, model: str, answer: AIMessage, prompt: Sequence[BaseMessage], request: object = None
    ) -> dict[str, Any]:
        used = Usage().plus(count_usage(answer, prompt, [request]), self._prices.get(model))
        self.used.append((model, used))
        return {"model": model, "used": used.model_dump(mode="json")}

    def _begin_recording(self, call: dict[str, Any]) -> asyncio.Task[None]:
        async def record() -> None:
            await _record_call(call)

        # Recorded as part of the node that runs the agent, in any thread.
        task = self._loop.create_task(record(), context=self._context.copy())
        self._recording.append(task)
        return task

    def _find_price(self, model: str, listed: ListPrice | None = None) -> None:
        """Note a model's price, and refuse the model if a price is needed and unknown."""
        prices = self._conversation.prices
        self._prices[model] = price = prices.get(model) if prices else listed
        if price is None and (prices or self._counts_money):
            why = f"the table has {list_names(prices)}" if prices else "max_cost needs a price"
            self._unpriced = SpecError(
                f"prices: the model {model!r}, which the agent {self._agent!r} "
                f"calls, has no price ({why}); add one"
            )
            raise self._unpriced


def _is_logged(record: logging.LogRecord) -> bool:
    """Return False if LangChain logs an error of these callbacks, which it raises as well."""
    names = (ModelCalls.__name__, GatedModelCalls.__name__)
    return not (isinstance(record.args, tuple) and record.args and record.args[0] in names)


logging.getLogger("langchain_core.callbacks.manager").addFilter(_is_logged)


class GatedModelCalls(ModelCalls):
    """A counter of the model calls of one agent run, each of which passes the gate first.

    The gate delays or refuses calls. Calls that are not async do not wait, because they would block
    the event loop.

    Args:
        agent: The agent's name.
        conversation: The conversation, with the models' prices.
        gate: The gate.
    """

    # If an inline callback raises, LangChain never awaits the callbacks after it.
    run_inline = False

    def __init__(self, agent: str, conversation: Conversation, gate: StepGate) -> None:
        super().__init__(agent, conversation)
        self._counts_money = self._counts_money or gate.needs_prices
        self._gate = gate
        self._paused: PausedError | None = None
        self._outages: dict[UUID, int] = {}
        """The outages that end if a call in flight is answered, by the call's id. 0 if none."""
        self._down: DuologueError | None = None

    async def finish_recording(self) -> None:
        """Wait until all calls are recorded.

        Raises:
            SpecError: A call has no price.
            PausedError: The gate refused a call.
        """
        await super().finish_recording()
        if self._paused is not None:
            # The agent may have caught this error, or raised another one instead.
            raise self._paused

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Wait until the gate lets the model be called."""
        super().on_chat_model_start(serialized, messages, run_id=run_id, **kwargs)
        if asyncio.get_running_loop() is not self._loop:
            return
        model, prompt, _ = self._asked[run_id]
        planned = PlannedCall(model, sum(map(tokens_of_message, prompt)))
        try:
            with suspend_reply_limit():
                self._outages[run_id] = await self._gate.enter(planned)
        except PausedError as error:
            self._paused = error
            raise

    async def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Wait until the gate lets a model that completes text be called."""
        await super().on_llm_start(serialized, prompts, run_id=run_id, **kwargs)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count an answered call, which ends an outage."""
        if outage := self._outages.pop(run_id, 0):
            self._gate.end_outage(self._asked[run_id][0], outage)
        await super().on_llm_end(response, run_id=run_id, **kwargs)

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Delay all calls of a model if its server refuses this call only for now, or is down."""
        model, *_ = self._asked.pop(run_id, ("", (), None))
        self._outages.pop(run_id, None)
        found = find_refusal(error)
        if model and is_outage(error) and asyncio.get_running_loop() is self._loop:
            why = f"the server of the model {model} is down"
            address = find_address(error)
            server = f"the model {model}" if address is None else f"the model server at {address}"
            try:
                number = await report_outage(self._gate, model, server, error)
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
        """Raise an error if the agent failed because a model's server is down.

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
