"""The gate of a batch: rates, pauses that servers request, and budgets."""

import asyncio
import pickle
from bisect import bisect_left
from datetime import UTC, datetime
from io import StringIO
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from rich.console import Console

from duologue.graphs import BatchLimits, ModelUnavailableError
from duologue.graphs.batch.limiter import PATIENCE, Figures, Limiter
from duologue.graphs.batch.status import BatchStatus
from duologue.graphs.cli.terminal.progress import BatchView
from duologue.graphs.common.errors import PausedError
from duologue.graphs.conversation.usage import Usage
from duologue.nodes.models.gate import PlannedCall, StepGate
from support.cases import drawn_cases
from support.screens import Screen
from support.virtual_time import VirtualLoop, in_virtual_time, virtually

DOWN = "the model server can't be reached"


def limiter(
    used: Usage | None = None, seconds: float = 0, patience: float = PATIENCE, **limits: Any
) -> Limiter:
    return Limiter(BatchLimits.model_validate(limits), used, seconds, patience)


def used(tokens: int = 0, cost: float = 0) -> Usage:
    return Usage(calls=1, input_tokens=tokens, cost=cost)


def now() -> float:
    return asyncio.get_running_loop().time()


async def wait(gate: Limiter, tokens: int = 1, model: str = "m") -> float:
    """Make a call, and return the seconds for which the gate delays it."""
    before = now()
    await gate.enter(PlannedCall(model, tokens))
    return now() - before


async def fail(gate: Limiter, model: str = "m", seconds: float | None = None) -> int | None:
    """Report that a server is down, though it can be reached."""
    return await gate.report_outage(model, DOWN, seconds, is_reached=True)


async def times(gate: Limiter, calls: int, model: str = "m", tokens: int = 0) -> list[float]:
    """Let so many callers wait at once; return the times of their entries, in order."""
    found: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        await gate.enter(PlannedCall(model, tokens))
        found.append((number, now()))

    await asyncio.gather(*map(call, range(calls)))
    assert [number for number, _ in found] == [*range(calls)], "first come, first served"
    return [when for _, when in found]


def most_in_a_minute(when: list[float]) -> int:
    return max(bisect_left(when, begin + 60) - place for place, begin in enumerate(when))


@pytest.mark.part(3)
@pytest.mark.parametrize("rate", [1, 7, 60, 61, 100, 600, 1500])
def test_in_no_minute_there_are_more_calls_and_few_less(rate: int) -> None:
    gate = limiter(rates={"m": {"requests_per_minute": rate}})
    when = virtually(times(gate, 3 * rate))
    assert most_in_a_minute(when) <= rate
    assert 2 * 60 - 60 / rate <= when[-1] <= 1.02 * 3 * 60


@pytest.mark.parametrize(("rate", "tokens"), [(6000, 100), (600, 37), (60, 200), (59, 1), (1, 3)])
def test_tokens_are_held_back_however_long_a_prompt_is(rate: int, tokens: int) -> None:
    """A prompt with more tokens than the rate per minute waits for all of them, and then passes."""
    gate = limiter(rates={"m": {"tokens_per_minute": rate}})
    calls = 3 * max(1, rate // tokens)
    when = virtually(times(gate, calls, tokens=tokens))
    should = (calls * tokens - max(1, rate // 60)) / rate * 60
    assert should <= when[-1] <= 1.03 * should + 60 / rate


@pytest.mark.parametrize(("guessed", "real"), [(100, 300), (300, 100), (0, 100)])
def test_what_answers_really_used_counts_in_the_end(guessed: int, real: int) -> None:
    gate = limiter(rates={"m": {"tokens_per_minute": 6000}})

    async def talk() -> float:
        for _ in range(200):
            await gate.enter(PlannedCall("m", guessed))
            gate.count("m", used(real))
        return now()

    assert virtually(talk()) == pytest.approx(200 * real / 6000 * 60, rel=0.05)


def test_each_other_model_has_the_rate_of_the_star_for_itself() -> None:
    rates = {"m": {"requests_per_minute": 60}, "*": {"requests_per_minute": 1}}

    async def talk() -> list[float]:
        gate = limiter(rates=rates)
        each = await asyncio.gather(*(times(gate, 2, model) for model in ("m", "a", "b")))
        free = await times(limiter(rates={"m": {"requests_per_minute": 1}}), 500, "other")
        return [when[-1] for when in each] + [free[-1] - free[0]]

    assert virtually(talk()) == pytest.approx([1, 60, 60, 0], abs=0.01)


@in_virtual_time
async def test_a_server_that_refuses_holds_back_all_calls_of_its_model() -> None:
    gate = limiter()
    await gate.enter(PlannedCall("m", 1))
    gate.refused("m", 30)
    waiting = asyncio.create_task(times(gate, 100))
    await asyncio.sleep(20)
    assert gate.figures().waiting == 100
    gate.refused("m", 5)
    gate.refused("m", 40)
    await gate.enter(PlannedCall("other", 1))
    assert now() == pytest.approx(20, abs=0.01)
    assert await waiting == pytest.approx([60] * 100, abs=0.01)
    assert gate.figures().refusals == 3
    assert gate.figures().waiting == 0


@in_virtual_time
async def test_where_a_server_does_not_say_how_long_it_is_longer_each_time() -> None:
    gate, waits = limiter(), []
    for _ in range(9):
        # The running calls are refused, too.
        gate.refused("m", None)
        gate.refused("m", None)
        waits.append(round(await wait(gate)))
    gate.count("m", used())
    gate.refused("m", None)
    assert [*waits, round(await wait(gate))] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 1]


@in_virtual_time
async def test_a_server_that_takes_no_calls_for_hours_pauses_the_batch() -> None:
    gate = limiter()
    gate.refused("m", 7200)
    with pytest.raises(PausedError, match="model m refuses calls for the next 120 minutes"):
        await gate.enter(PlannedCall("other", 1))


@in_virtual_time
async def test_an_outage_delays_all_calls_longer_each_time_until_the_patience_is_over() -> None:
    gate, waits = limiter(used(), patience=100), []
    while now() < 99:
        # The calls in flight fail, too.
        assert [await fail(gate) for _ in range(3)] == [1] * 3
        assert gate.paused is None
        left = 100 - round(now())
        (outage,) = gate.figures().outages
        assert outage.startswith(f"{DOWN}; its calls wait, for up to ")
        assert ("1 min" in outage) == (left >= 60)
        waits.append(round(max(await asyncio.gather(wait(gate), wait(gate)))))
        assert await wait(gate, model="other") < 0.01
    assert waits == [1, 2, 4, 8, 16, 32, 37]
    with pytest.raises(ModelUnavailableError, match="after a wait of 1 min 40 s"):
        await fail(gate)


@in_virtual_time
async def test_each_answer_ends_an_outage_and_restores_the_patience() -> None:
    gate = limiter(used(), patience=100)
    for number in range(1, 5):
        for _ in range(6):
            assert await fail(gate) == number
            before = now()
            assert await gate.enter(PlannedCall("m", 1)) == number
            assert now() - before <= 33
        # A call that was sent before the outage is answered.
        gate.count("m", used())
        gate.end_outage("m", 0)
        gate.end_outage("m", number - 1)
        assert len(gate.figures().outages) == 1
        gate.end_outage("m", number)
        assert gate.figures().outages == ()
    assert await fail(gate, seconds=50) == 5
    assert await wait(gate) == pytest.approx(50, abs=0.01)
    for model in ("m", "n"):
        await fail(gate, model, 0)
    assert len(gate.figures().outages) == 1


def test_a_server_that_never_replies_is_given_up_after_a_minute() -> None:
    async def give_up(gate: Limiter, *replies: bool) -> tuple[int, bool]:
        """Let all calls of a model fail. The last entry says whether the server keeps replying.

        Return the seconds until the gate gives the server up, and whether it names the address.
        """
        began, left = now(), iter(replies)

        async def fail() -> None:
            while True:
                is_reached = next(left, replies[-1])
                await gate.report_outage("m", DOWN, None, is_reached=is_reached)
                await gate.enter(PlannedCall("m", 1))

        with pytest.raises(ModelUnavailableError) as caught:
            await fail()
        return round(now() - began), "check its address" in str(caught.value)

    async def talk() -> None:
        def after_another_answer(patience: float = PATIENCE) -> Limiter:
            gate = limiter(patience=patience)
            gate.count("other", used())
            return gate

        assert await give_up(after_another_answer(), False) == (60, True)
        assert await give_up(after_another_answer(20), False) == (20, True)
        # A cold start: the server refuses connections, then replies with 503.
        assert await give_up(after_another_answer(), False, False, True) == (3600, False)
        # The batch goes on, so that its addresses were right before.
        assert await give_up(limiter(used()), False) == (3600, False)
        # It replies with 503 before the first answer in the batch, and is restarted.
        assert await give_up(limiter(), True, False) == (3600, False)
        for is_answered in (True, False):
            gate = after_another_answer()
            if is_answered:
                gate.count("m", used())
            else:
                gate.refused("m", 0)
            assert await give_up(gate, False) == (3600, False)

    virtually(talk())


@in_virtual_time
async def test_nobody_waits_before_the_first_answer_without_patience_or_during_a_pause() -> None:
    for gate in (limiter(), limiter(used(), patience=0)):
        assert await gate.report_outage("m", DOWN, None, is_reached=False) is None
        assert await wait(gate) < 0.1
    gate = limiter()
    gate.count("other", used())
    assert await fail(gate, seconds=7200) is None
    assert await fail(gate) == 1
    waiting = asyncio.create_task(gate.enter(PlannedCall("m", 1)))
    await asyncio.sleep(0.5)
    gate.pause("enough")
    with pytest.raises(PausedError, match="enough"):
        await waiting
    with pytest.raises(PausedError, match="enough"):
        await fail(gate)


@in_virtual_time
async def test_a_pause_is_told_to_all_that_wait_at_once_and_the_first_reason_stays() -> None:
    gate = limiter(rates={"m": {"requests_per_minute": 1, "tokens_per_minute": 10}})
    calls = [asyncio.create_task(gate.enter(PlannedCall("m", 100))) for _ in range(500)]
    await asyncio.sleep(1)
    calls[7].cancel()
    await asyncio.sleep(1)
    gate.pause("somebody pressed Ctrl-C")
    gate.pause("another")
    before = now()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert now() - before < 0.1
    assert isinstance(ended.pop(7), asyncio.CancelledError)
    assert {type(one) for one in ended} == {PausedError}
    assert {str(one) for one in ended} == {gate.paused} == {"somebody pressed Ctrl-C"}
    with pytest.raises(PausedError):
        await gate.enter(PlannedCall("other", 1))
    assert gate.figures().waiting == 0
    gate.count("m", used(5))
    assert gate.figures().used == used(5)


@pytest.mark.parametrize("name", ["max_cost", "max_tokens"])
def test_a_budget_that_earlier_runs_used_up_stops_a_batch_at_once(name: str) -> None:
    assert limiter(used(300, 300), **{name: 300}).paused == f"limits.{name} of 300 is used up"
    assert limiter(used(299, 299), **{name: 300}).paused is None


@in_virtual_time
async def test_the_time_of_all_runs_is_measured_from_the_first_call() -> None:
    gate = limiter(seconds=100, max_seconds=130, rates={"*": {"requests_per_minute": 1}})
    await asyncio.sleep(1000)
    await gate.enter(PlannedCall("m", 1))
    before = now()
    with pytest.raises(PausedError, match="max_seconds of 130 is used up"):
        await gate.enter(PlannedCall("m", 1))
    assert now() - before == pytest.approx(30, abs=0.01)
    with pytest.raises(PausedError, match="is used up"):
        await limiter(seconds=130, max_seconds=130).enter(PlannedCall("m", 1))


def test_figures_tell_how_it_goes() -> None:
    async def talk() -> None:
        gate = limiter(used(7))
        assert gate.figures() == (used(7), 0, 0, 0, None, ())
        for _ in range(100):
            await asyncio.sleep(0.25)
            gate.count("m", used(1, 0.5))
        found = gate.figures()
        assert found.calls_per_second == pytest.approx(4, rel=0.05)
        assert found.used == Usage(calls=101, input_tokens=107, cost=50)
        assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  # our own
        await asyncio.sleep(60)
        assert gate.figures().calls_per_second == 0

    virtually(talk())
    error = pickle.loads(pickle.dumps(PausedError("It is paused.")))  # noqa: S301  # our own
    assert type(error) is PausedError
    assert str(error) == "It is paused."


def test_many_that_wait_cost_no_rounds_of_the_loop() -> None:
    """Only the callers that may enter wake up, without a busy loop."""

    async def rounds(waiting: int) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        gate = limiter(rates={"m": {"requests_per_minute": 60, "tokens_per_minute": 6000}})
        calls = [asyncio.create_task(gate.enter(PlannedCall("m", 100))) for _ in range(waiting)]
        await asyncio.sleep(1)
        before = loop.rounds
        await asyncio.sleep(60)
        gate.pause("enough")
        await asyncio.gather(*calls, return_exceptions=True)
        return loop.rounds - before

    few, many = virtually(rounds(100)), virtually(rounds(2000))
    assert many <= few + 5
    assert few <= 60 * 10


# No call of a batch begins once a budget is used up. Only the calls in flight can exceed it.


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


OUTAGE = "the model server at \x1b[1mhttp://127.0.0.1 can't be reached; its calls wait"


@pytest.mark.parametrize("is_screen", [True, False])
def test_an_outage_is_shown_at_once(is_screen: bool) -> None:
    """In the table as long as it lasts; elsewhere in a line at its beginning and its end."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    status = BatchStatus(batch="b", title="", cells=2, created_at=now, updated_at=now)
    file, texts = Screen() if is_screen else StringIO(), list[str]()
    environ = {"TERM": "xterm"}
    console = Console(file=file, width=60, color_system=None, _environ=environ)
    with BatchView(console, clock=lambda: 0.0) as view:
        for outages in ((), (OUTAGE,), (OUTAGE,), ()):
            before = len(file.getvalue())
            view.show(status, Figures(Usage(), 0, 0, 0.0, None, outages))
            texts.append(" ".join(file.getvalue()[before:].split()))
    assert "\x1b[1mhttp" not in file.getvalue()
    told = ["The model server at" in text and "its calls wait." in text for text in texts]
    assert told == [False, True, is_screen, False]
    assert ("All model servers answer again." in texts[-1]) is not is_screen
