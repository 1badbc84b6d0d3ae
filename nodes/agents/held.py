"""The gate in front of the model calls of an agent of the user's own."""

import asyncio
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage

from ...graphs.common.errors import PausedError
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.usage import Usage
from ...graphs.text.tokens import tokens_of_message
from ..models.gate import Gate
from ..models.refusals import find_refusal, is_for_now, read_retry_seconds
from .calls import ModelCalls


class HeldCalls(ModelCalls):
    """Counts the calls of one run, each of which passes the gate first.

    Those that are not async do not wait: they may hold up the loop.

    Args:
        agent: The agent's name.
        conversation: The spec, with what models charge.
        gate: The gate.
    """

    # Where an inline one raises, LangChain never awaits those behind it.
    run_inline = False

    def __init__(self, agent: str, conversation: Conversation, gate: Gate) -> None:
        super().__init__(agent, conversation)
        self._counts_money = self._counts_money or gate.needs_prices
        self._gate = gate
        self._paused: PausedError | None = None

    async def recorded(self) -> None:
        """Wait until all calls are recorded; raise where one was not made."""
        await super().recorded()
        if self._paused is not None:
            # The agent may have made something else of it.
            raise self._paused

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Wait until the model may be asked."""
        super().on_chat_model_start(serialized, messages, run_id=run_id, **kwargs)
        if asyncio.get_running_loop() is not self._loop:
            return
        model, prompt = self._asked[run_id]
        try:
            await self._gate.enter(model, sum(map(tokens_of_message, prompt)))
        except PausedError as error:
            self._paused = error
            raise

    async def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Wait before a model that completes text, too."""
        await super().on_llm_start(serialized, prompts, run_id=run_id, **kwargs)

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Hold back all calls where a server refuses this one for now."""
        model, _ = self._asked.pop(run_id, ("", ()))
        found = find_refusal(error)
        if model and found is not None and is_for_now(error):
            self._loop.call_soon_threadsafe(
                self._gate.refused, model, read_retry_seconds(found.headers)
            )

    def _begin_recording(self, call: dict[str, Any]) -> asyncio.Task[None]:
        self._gate.count(call["model"], Usage.model_validate(call["used"]))
        return super()._begin_recording(call)
