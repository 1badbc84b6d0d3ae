"""The model calls of an agent of the user's own, counted by LangChain's callbacks.

Each is recorded by LangGraph when it has ended: where the agent goes on after a question or a kill,
those before it count, too.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from ...graphs.common.errors import SpecError
from ...graphs.common.validation import listing
from ...graphs.ends.limits import ends_by_money
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.usage import Charges, Usage, total
from ..models.adapters.list_prices import (
    ListPrice,
    has_list,
    label_of_call,
    list_price_of_call,
)
from ..models.answers import count_usage
from ..step.in_threads import recorded

_record: Final = recorded("model_call")


async def _recorded(given: dict[str, Any]) -> dict[str, Any]:
    """Record a call, or a mark; where a node runs again, give what was recorded at this place."""

    async def itself() -> dict[str, Any]:
        return given

    found: dict[str, Any] = await _record(itself)
    return found


class ModelCalls(BaseCallbackHandler):
    """Counts the calls of one run.

    Args:
        agent: The agent's name.
        conversation: The spec, with what models charge.
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
        # Models may be asked in other threads, and within other nodes.
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    async def begin(self) -> None:
        """Count what was recorded before, where the agent goes on."""
        if not self._conversation.prices:
            self._has_list = await asyncio.to_thread(has_list)
        mark = {"mark": uuid4().hex}
        while (found := await _recorded(mark)) != mark:
            # Other marks are where earlier runs began.
            if "model" in found:
                self._used.append((found["model"], Usage.model_validate(found["used"])))

    async def recorded(self) -> None:
        """Wait until all calls are recorded; raise where one has no price."""
        # What other threads have told comes first.
        await asyncio.sleep(0)
        await asyncio.gather(*self._recording)
        if self._unpriced is not None:
            # The agent may have made something else of it.
            raise self._unpriced

    def added(self, usage: Mapping[str, Usage]) -> dict[str, Usage]:
        """Give usage with these calls added to it."""
        found = dict(usage)
        for model, used in self._used:
            found[model] = total((found.get(model, Usage()), used))
        return found

    def tell(self, messages: Sequence[BaseMessage]) -> None:
        """Count what the messages tell of their calls, where nothing was heard of any."""
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
    ) -> Any:  # noqa: ANN401  # nothing, or what is awaited
        """Note which model is asked, and with what; refuse one without a price."""
        made, told = serialized or {}, metadata or {}
        model = label_of_call(made, told)
        self._asked[run_id] = model, messages[0]
        self._find_price(model, list_price_of_call(made, told) if self._has_list else None)

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> Any:  # noqa: ANN401  # as above
        """Note the same of a model that completes text."""
        messages: list[BaseMessage] = [HumanMessage(prompts[0])]
        return self.on_chat_model_start(serialized, [messages], run_id=run_id, **kwargs)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count an answered call, and record it before the agent goes on with the answer."""
        model, prompt = self._asked.pop(run_id, ("a model", ()))
        found = response.generations[0][0]
        message = found.message if isinstance(found, ChatGeneration) else AIMessage(found.text)
        if not isinstance(message, AIMessage):
            return
        call = self._counted(model, message, prompt)
        if asyncio.get_running_loop() is self._loop:
            await self._begin_recording(call)
            return
        # Not waited for: what is not async may hold up the loop.
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

        # As a part of the node that asks, wherever the model is asked.
        task = self._loop.create_task(begun(), context=self._context.copy())
        self._recording.append(task)
        return task

    def _find_price(self, model: str, listed: ListPrice | None = None) -> None:
        """Note what a model charges; refuse one whose price is to be known and is not."""
        prices = self._conversation.prices
        self._prices[model] = price = prices.get(model) if prices else listed
        if price is None and (prices or self._counts_money):
            why = f": only for {listing(prices)}" if prices else ": max_cost needs it"
            self._unpriced = SpecError(
                f"prices: there is none for the model {model!r}, which the agent {self._agent!r} "
                f"asks{why}"
            )
            raise self._unpriced
