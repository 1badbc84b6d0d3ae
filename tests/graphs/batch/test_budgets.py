"""No call of a batch begins once a budget is used up. Only the calls in flight can exceed it."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from duologue import arun_batch
from duologue.graphs import BatchLimits
from duologue.graphs.batch.limiter import Limiter
from duologue.graphs.common.errors import PausedError
from duologue.graphs.conversation.usage import Usage
from duologue.nodes.models.gate import PlannedCall, StepGate
from duologue.nodes.testing import Reply, ScriptedChatModel
from support.cases import drawn_cases
from support.virtual_time import virtually


@drawn_cases(
    5,
    100,
    seed=st.integers(0, 2**32),
    at_once=st.integers(1, 40),
    most=st.integers(1, 20_000),
    earlier=st.integers(0, 30_000),
    by_tokens=st.booleans(),
    rate=st.sampled_from([None, 600]),
)
def test_no_call_begins_once_a_budget_is_used_up(
    seed: int, at_once: int, most: int, earlier: int, by_tokens: bool, rate: int | None
) -> None:
    random, flying = Random(seed), set[int]()  # noqa: S311  # a drawn seed, nothing secret
    name = "max_tokens" if by_tokens else "max_cost"
    rates = {} if rate is None else {"*": {"requests_per_minute": rate}}
    limits = BatchLimits.model_validate({name: most, "rates": rates})
    gate = Limiter(limits, Usage(calls=1, input_tokens=earlier, cost=earlier))

    async def make_steps(worker: int) -> None:
        while True:
            step = StepGate(gate)
            for _ in range(random.choice([1, 1, 2, 3])):
                await step.enter(PlannedCall("m", random.randint(1, 400)))
                assert gate.figures().used.input_tokens < most
                flying.add(worker)
                await asyncio.sleep(random.uniform(0, 3))
                flying.discard(worker)
                if random.random() < 0.8:
                    # Other calls fail and are not charged.
                    tokens = random.randint(0, 2000)
                    step.count("m", Usage(calls=1, input_tokens=tokens, cost=tokens))

    async def talk() -> None:
        ended = await asyncio.gather(*map(make_steps, range(at_once)), return_exceptions=True)
        assert {type(one) for one in ended} == {PausedError}
        assert {str(one) for one in ended} == {f"limits.{name} of {most} is used up"}
        assert not flying, "calls in flight are completed"
        used = gate.figures().used
        assert most <= used.input_tokens < max(earlier, most) + 2000 * at_once
        assert earlier < most or used.calls == 1

    virtually(talk())


async def test_a_step_with_answers_ends_in_a_pause_but_not_beyond_a_budget() -> None:
    gate = Limiter(BatchLimits(max_tokens=10))
    begun, fresh = StepGate(gate), StepGate(gate)
    recorded = StepGate(gate, is_resumable=True)
    for step in (begun, recorded):
        await step.enter(PlannedCall("m", 1))
        step.count("m", Usage(calls=1, input_tokens=4))
    gate.pause("somebody pressed Ctrl-C")
    for step in (fresh, recorded):
        with pytest.raises(PausedError, match="Ctrl-C"):
            await step.enter(PlannedCall("m", 1))
    await begun.enter(PlannedCall("m", 1))
    begun.count("m", Usage(calls=1, input_tokens=4))
    with pytest.raises(PausedError, match="Ctrl-C"):
        await begun.enter(PlannedCall("m", 1))


ANSWER = "word " * 60
PRICES = {"ScriptedChatModel": {"input": 1.0, "output": 6.0}}


def batch(**limits: float) -> dict[str, Any]:
    return {
        "conversation": {
            "task": "Plan.",
            "speakers": [{"name": "Ann"}, {"name": "Bob"}],
            "end_chat": {"max_iterations": 2},
            "prices": PRICES,
        },
        "vary": {"task": [f"Plan garden {number}." for number in range(25)]},
        "limits": limits,
    }


@pytest.mark.exhaustive
async def test_twenty_sessions_at_once_exceed_a_budget_by_their_calls_in_flight(
    tmp_path: Path,
) -> None:
    store, model = (
        tmp_path / "s.db",
        ScriptedChatModel(lambda prompt: Reply(text=ANSWER, delay=0.01)),
    )
    limited = batch(max_cost=0.02)
    status = await arun_batch(limited, name="b", model=model, store=store)
    largest = (status.cost or 0) / status.calls * 1.5
    assert 0.02 <= (status.cost or 0) < 0.02 + 20 * largest
    assert status.stopped == "limits.max_cost of 0.02 is used up"
    assert status.calls == len(model.calls), "the calls in flight are stored"
    status = await arun_batch(limited, name="b", model=model, store=store)
    assert (status.calls, status.stopped) == (
        len(model.calls),
        "limits.max_cost of 0.02 is used up",
    )
    status = await arun_batch(batch(max_cost=1), name="b", model=model, store=store)
    assert (status.finished, status.calls) == (25, len(model.calls)), "no call was repeated"
