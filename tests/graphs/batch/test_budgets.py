"""The budgets of a batch are exceeded neither by calls in flight nor by calls lost to a kill.

A simulated server charges for each call when it is sent, as providers do.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import strategies as st

from duologue import BatchRun, arun_batch
from duologue.graphs.batch.batch_row import mark_lost_calls
from duologue.graphs.batch.limiter import Limiter
from duologue.graphs.batch.spec import BatchLimits
from duologue.graphs.batch.status import LostCalls
from duologue.graphs.common.errors import BatchError, PausedError
from duologue.graphs.conversation.usage import Price, Usage, add_usage
from duologue.graphs.store.batches import BatchLease, CallRow, CellRow
from duologue.graphs.store.open import Store, open_store
from duologue.nodes.models.gate import PlannedCall, StepGate
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel
from support.cases import drawn_cases
from support.virtual_time import virtually


@dataclass
class Talks:
    """Sessions of a batch that call a simulated server, through runs that are killed."""

    store: Store
    limits: BatchLimits
    price: Price
    seed: int
    at_once: int
    longest: int
    is_limited: bool = True
    fails: float = 0.0
    dies: float = 0.0
    paid: list[Usage] = field(default_factory=list)
    """The usage that the server has charged for, by call."""
    stored: dict[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))
    """The usage of each session's stored answers."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)  # noqa: S311  # a drawn seed, nothing secret

    async def run(self, seconds: float) -> Limiter:
        """Run the batch, and kill it after a time unless it has been paused."""
        async with self.store.lock_batch("b") as lease:
            await self._catch_up(lease)
            limiter = Limiter(
                self.limits,
                add_usage(one for each in self.stored.values() for one in each),
                batch="b",
                rows=await mark_lost_calls(self.store, lease),
                write=lambda rows: self._write(lease, rows),
            )
            numbers = iter(range(1, 1000))
            workers = [
                asyncio.create_task(self._work(limiter, lease, numbers))
                for _ in range(self.at_once)
            ]
            _, running = await asyncio.wait(workers, timeout=seconds)
            for one in running:
                one.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for one in workers:
                if one not in running:
                    one.result()
            return limiter

    async def _catch_up(self, lease: BatchLease) -> None:
        for session, used in self.stored.items():
            await self._put(lease, session, len(used))

    async def _put(self, lease: BatchLease, session: str, calls: int) -> None:
        row = CellRow(
            batch="b",
            number=int(session),
            session=session,
            calls=calls,
            updated_at=datetime.now(UTC),
        )
        await lease.put_cell(row)

    async def _write(self, lease: BatchLease, rows: Sequence[CallRow]) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.02))
        await lease.put_calls(rows)
        await asyncio.sleep(self.random.uniform(0, 0.02))

    async def _work(self, limiter: Limiter, lease: BatchLease, numbers: Iterator[int]) -> None:
        with suppress(PausedError):
            for number in numbers:
                session = str(number)
                try:
                    while len(self.stored[session]) < 5:
                        await self._step(limiter, session)
                except PausedError:
                    await self._leave(limiter, lease, session)
                    raise
                await self._leave(limiter, lease, session)

    async def _leave(self, limiter: Limiter, lease: BatchLease, session: str) -> None:
        calls = len(self.stored[session])
        await self._put(lease, session, calls)
        await limiter.leave(session, calls)

    async def _step(self, limiter: Limiter, session: str) -> None:
        """Make the calls of one step. Sometimes it has two calls, stored together."""
        answers = list[Usage]()
        gate = StepGate(limiter, session, len(self.stored[session]))
        for _ in range(self.random.choice([1, 1, 1, 2])):
            prompt = self.random.randint(1, 400)
            limit = self.longest if self.is_limited else None
            call = PlannedCall("m", prompt, limit, self.price)
            permit = await gate.enter(call)
            while self.random.random() < self.fails:
                gate.release(permit)
                permit = await gate.enter(call)
            answer = self.random.randint(0, self.longest)
            cost = self.price.of(Usage(input_tokens=prompt, output_tokens=answer))
            used = Usage(calls=1, input_tokens=prompt, output_tokens=answer, cost=cost)
            self.paid.append(used)
            await asyncio.sleep(self.random.uniform(0, 3))
            if self.random.random() < self.dies:
                # The worker of this session was killed, and another one repeats the step.
                return
            gate.count("m", used, permit)
            answers.append(used)
        await asyncio.sleep(self.random.uniform(0, 0.1))
        self.stored[session] += answers


def tokens(used: Usage) -> int:
    return used.input_tokens + used.output_tokens


def cost(used: Usage | LostCalls) -> float:
    return used.cost or 0.0


@drawn_cases(
    3,
    60,
    seed=st.integers(0, 2**32),
    at_once=st.integers(1, 40),
    longest=st.integers(1, 2000),
    cents=st.tuples(st.floats(0.01, 50), st.floats(0.01, 200)),
    calls=st.floats(1, 150),
    fails=st.sampled_from([0.0, 0.3]),
    dies=st.sampled_from([0.0, 0.1]),
    kills=st.lists(st.floats(0.01, 10), max_size=4),
    by_tokens=st.booleans(),
)
def test_a_budget_is_never_exceeded_if_answers_have_a_limit(
    seed: int,
    at_once: int,
    longest: int,
    cents: tuple[float, float],
    calls: float,
    fails: float,
    dies: float,
    kills: list[float],
    by_tokens: bool,
) -> None:
    price = Price(*cents)
    largest = Usage(
        input_tokens=400,
        output_tokens=longest,
        cost=price.of(Usage(input_tokens=400, output_tokens=longest)),
    )
    most_cost, most_tokens = calls * cost(largest), round(calls * tokens(largest))
    limits = BatchLimits(max_tokens=most_tokens) if by_tokens else BatchLimits(max_cost=most_cost)

    async def talk() -> None:
        async with open_store(f"memory:{seed}-{id(kills)}") as store:
            talks = Talks(store, limits, price, seed, at_once, longest, fails=fails, dies=dies)
            for seconds in (*kills, 1e6):
                limiter = await talks.run(seconds)
                paid = add_usage(talks.paid)
                assert cost(paid) <= most_cost * 1.000001 or by_tokens
                assert tokens(paid) <= most_tokens or not by_tokens
            # It is not paused as long as the largest call fits.
            lost = LostCalls.of([row for row in await store.batches.calls("b") if row.lost])
            known = add_usage(used for each in talks.stored.values() for used in each)
            assert limiter.paused is not None
            if by_tokens:
                assert most_tokens - tokens(known) - lost.tokens < tokens(largest)
                assert tokens(known) + lost.tokens >= tokens(paid)
            else:
                assert most_cost - cost(known) - cost(lost) < cost(largest)
                assert cost(known) + cost(lost) >= cost(paid) * 0.999999
            assert len(talks.paid) <= known.calls + lost.calls
            if not kills and not dies:
                assert lost.calls <= at_once, "only steps of two calls lose an answer"

    virtually(talk())


@drawn_cases(
    3, 60, seed=st.integers(0, 2**32), at_once=st.integers(1, 40), calls=st.integers(1, 100)
)
def test_without_a_limit_on_answers_only_the_calls_in_flight_exceed_a_budget(
    seed: int, at_once: int, calls: int
) -> None:
    price, longest = Price(1, 10), 1000
    most = calls * price.of(Usage(input_tokens=400, output_tokens=longest))

    async def talk() -> None:
        async with open_store(f"memory:{seed}-{calls}-{at_once}") as store:
            limits = BatchLimits(max_cost=most)
            talks = Talks(store, limits, price, seed, at_once, longest, is_limited=False)
            await talks.run(1e6)
            excess = price.of(Usage(output_tokens=longest))
            assert cost(add_usage(talks.paid)) <= most + at_once * excess

    virtually(talk())


ANSWER = "word " * 60
PRICES = {"ScriptedChatModel": {"input": 1.0, "output": 6.0}}


def batch(most: float | None, *, max_tokens: int | None = 110) -> dict[str, object]:
    settings = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {
        "conversation": {
            "task": "Plan.",
            "speakers": [{"name": name, "model_settings": settings} for name in ("Ann", "Bob")],
            "end_chat": {"max_iterations": 2},
            "prices": PRICES,
        },
        "vary": {"task": [f"Plan garden {number}." for number in range(25)]},
        "limits": {} if most is None else {"max_cost": most},
    }


def talker(delay: float = 0.01) -> ScriptedChatModel:
    return ScriptedChatModel(lambda prompt: Reply(text=ANSWER, delay=delay))


@pytest.mark.exhaustive
@pytest.mark.parametrize("max_tokens", [110, None])
async def test_twenty_sessions_at_once_do_not_exceed_the_cost_of_a_batch(
    max_tokens: int | None, tmp_path: Path
) -> None:
    store, model = tmp_path / "s.db", talker()
    limited = batch(0.02, max_tokens=max_tokens)
    status = await arun_batch(limited, name="b", model=model, store=store)
    assert 0.018 < (status.cost or 0) <= 0.02
    assert (status.stopped or "").startswith("limits.max_cost of 0.02 is used up: ")
    assert (status.calls, status.lost) == (len(model.calls), LostCalls())
    status = await arun_batch(limited, name="b", model=model, store=store)
    assert status.calls == len(model.calls)
    unlimited = batch(None, max_tokens=max_tokens)
    status = await arun_batch(unlimited, name="b", model=model, store=store)
    assert (status.finished, status.calls) == (25, len(model.calls)), "no call was repeated"


@pytest.mark.exhaustive
async def test_calls_lost_to_a_kill_count_for_the_budget_and_are_shown(tmp_path: Path) -> None:
    store, first = tmp_path / "s.db", talker()

    def answer(prompt: Prompt) -> Reply:
        # The calls after the first two of each session are never answered.
        if len(model.calls) == 15:
            running.cancel()
        return Reply(text=ANSWER, delay=3600 if len(prompt) > 3 else 0)

    model = ScriptedChatModel(answer)
    running = asyncio.create_task(
        arun_batch(batch(0.02), name="b", model=model, store=store, concurrency=5)
    )
    with suppress(asyncio.CancelledError):
        await running
    run = BatchRun("b", store=store)
    status = await run.astatus()
    asked = len(model.calls)
    assert status.calls + status.lost.calls == asked
    assert status.lost.calls > 0
    assert status.lost.cost is not None
    assert status.lost.cost >= status.lost.calls * 110 * 6e-6
    assert f"{status.lost.calls} answers were lost when a process was killed: about" in str(status)
    status = await arun_batch(batch(0.02), name="b", model=first, store=store)
    again = await run.astatus()
    assert again.lost == status.lost
    assert 0.018 < (status.cost or 0) + (status.lost.cost or 0) <= 0.02
    assert status.calls + status.lost.calls == asked + len(first.calls)


@pytest.mark.exhaustive
async def test_without_prices_tokens_are_reserved_and_the_cost_of_lost_calls_is_unknown(
    tmp_path: Path,
) -> None:
    def answer(prompt: Prompt) -> Reply:
        if len(model.calls) == 5:
            running.cancel()
        return Reply(text=ANSWER, delay=3600)

    model, limits = ScriptedChatModel(answer), {"max_tokens": 5_000}
    unpriced = batch(None) | {"limits": limits}
    conversation = unpriced["conversation"]
    assert isinstance(conversation, dict)
    del conversation["prices"]
    running = asyncio.create_task(
        arun_batch(unpriced, name="b", model=model, store=tmp_path / "s.db", concurrency=5)
    )
    with suppress(asyncio.CancelledError):
        await running
    status = await BatchRun("b", store=tmp_path / "s.db").astatus()
    assert (status.lost.calls, status.lost.cost) == (5, None)
    assert status.lost.tokens >= 5 * 110
    free = talker()
    status = await arun_batch(unpriced, name="b", model=free, store=tmp_path / "s.db")
    assert 4_700 < status.tokens + status.lost.tokens <= 5_000


async def test_a_refused_call_is_not_counted_as_lost(tmp_path: Path) -> None:
    """The row of a released call stays in the store until the session ends its run."""
    store = tmp_path / "s.db"

    def refuse(prompt: Prompt) -> Reply:
        return Reply(text="Yes.") if len(prompt) < 3 else Reply(error=400)

    for _ in range(2):
        # Ten cells in a row fail alike.
        with pytest.raises(BatchError):
            await arun_batch(
                batch(1.0),
                name="b",
                model=ScriptedChatModel(refuse),
                store=store,
                retry_failed=True,
            )
        status = await BatchRun("b", store=store).astatus()
        assert (status.failed > 0, status.lost) == (True, LostCalls())
