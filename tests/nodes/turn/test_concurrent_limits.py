"""Rounds in which all speakers speak at once: the gate of a batch, and the computed limits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import MaxMessages
from duologue.graphs.common.errors import PausedError
from duologue.graphs.conversation.limits import most_messages, plain_calls
from duologue.graphs.conversation.usage import Usage
from duologue.graphs.session.run import run_session
from duologue.nodes.models.gate import PlannedCall
from support.results import outcome_of

from .test_concurrent_rounds import models, play, vote


@pytest.mark.exhaustive
def test_bounds_count_whole_rounds() -> None:
    capped = vote(end_chat=MaxMessages(4))
    assert most_messages(capped) >= 6
    result = play(capped, models())
    assert outcome_of(result).total.calls == plain_calls(capped) == 6


class CountingGate:
    """A gate that lets a number of calls through, and counts the calls in flight."""

    needs_prices = False

    def __init__(self, left: int) -> None:
        self.left = left
        self.entered = self.counted = 0
        self.refused: Callable[[str, float | None], None] = lambda *_: None

    async def enter(self, call: PlannedCall) -> int:
        if self.left == 0:
            raise PausedError("the batch is paused")
        self.left -= 1
        self.entered += 1
        return 0

    def count(self, model: str, used: Usage) -> None:
        self.counted += 1

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        return None

    def end_outage(self, model: str, number: int) -> None:
        """End nothing."""


@pytest.mark.exhaustive
async def test_every_call_of_a_round_passes_the_gate_of_a_batch(tmp_path: Path) -> None:
    """A round that is paused in its middle continues with the calls that were not made."""
    used, store = models(), tmp_path / "sessions.db"
    gate = CountingGate(left=2)
    given: Any = {"reset": False, "tokens": False, "gate": gate}
    options: Any = {"store": store, "models": used}
    with pytest.raises(PausedError):
        _ = [event async for event in run_session(vote(), "vote", options, **given)]
    assert gate.entered == 2
    gate.left = 9
    _ = [event async for event in run_session(None, "vote", options, **given)]
    assert sorted(len(model.calls) for model in used.values()) == [2, 2, 2]
    assert gate.entered == gate.counted == 6
