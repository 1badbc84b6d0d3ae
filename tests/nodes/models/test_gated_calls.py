"""Each request of a model call passes a gate, also those for the rest of a paused answer."""

import asyncio
from typing import Any, cast

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from duologue.nodes.models.adapters.families import adapter_of
from duologue.nodes.models.gate import PlannedCall, StepGate
from support.models import Model, greet


class Counter:
    """A gate that counts the requests and lets all of them pass."""

    needs_prices = False

    def __init__(self) -> None:
        self.entered: list[PlannedCall] = []

    async def enter(self, call: PlannedCall) -> int:
        """Count a request."""
        self.entered.append(call)
        return 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return a method that nothing calls."""
        return None


def stopped(text: str, reason: str) -> AIMessage:
    return AIMessage(text, response_metadata={"stop_reason": reason})


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("reason", ["pause_turn", "abort"])
def test_each_request_of_a_call_passes_the_gate(
    parts: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_: float) -> None:
        """Do not wait."""

    monkeypatch.setattr("duologue.nodes.models.adapters.base.asyncio.sleep", wait)
    if reason == "abort":
        # A server that fails is asked three times at most.
        parts = min(parts, 3)
    sent = [*(stopped(f"part {n}. ", reason) for n in range(1, parts)), stopped("end", "end_turn")]
    chat, gate = GenericFakeChatModel(messages=iter(sent)), Counter()
    model = Model(adapter_of("m", chat), gate=StepGate(cast("Any", gate)))
    answer = asyncio.run(greet(model, speaker="Ann"))
    assert answer.text.endswith("end")
    assert len(gate.entered) == parts
