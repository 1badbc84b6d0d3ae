"""The gate of a batch in one process. It limits the rate and the total of the model calls."""

import asyncio
from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from aiolimiter import AsyncLimiter

from ...nodes.models.gate import PlannedCall
from ..common.errors import ModelUnavailableError, PausedError
from ..conversation.usage import Usage, add_usage
from .spec import BatchLimits, RateLimit
from .status import format_duration

_OTHERS: Final = "*"
"""The key of the rate for all models that have no entry."""

_LONGEST: Final = 3600
"""Maximum wait in seconds that a server may ask for. The batch is paused if it asks for more."""

_MOST_BACK_OFF: Final = 60
"""Maximum time in seconds for which calls are held back after a rejection that states no time."""

_LATEST: Final = 10
"""The period in seconds over which the call rate is measured."""


PATIENCE: Final = 3600.0
"""The default time in seconds for which calls wait for a server that is down."""

CONNECTING: Final = 60.0
"""The maximum time in seconds for which calls wait for a server that never replied in this batch.

Its address may be wrong: the connection is refused, the host is unknown, or TLS fails.
"""


class Figures(NamedTuple):
    """The current figures of a batch."""

    used: Usage
    """Usage of answered calls, including earlier runs."""
    refusals: int
    """Number of calls in this run that servers rejected temporarily."""
    waiting: int
    """Number of calls that wait at the gate."""
    calls_per_second: float
    """Answered calls per second, measured over the last seconds."""
    paused: str | None
    """The reason why no more calls start, as a sentence, or None."""
    outages: tuple[str, ...] = ()
    """The servers that are down now, each with its failure, as sentences."""


class Limiter:
    """A gate that keeps the model calls of a batch within its limits, in one event loop.

    No call begins once a budget is used up. The calls that are then in flight can exceed it.

    Args:
        limits: The limits.
        used: The usage of earlier runs of the batch.
        seconds: The running time of earlier runs, in seconds.
        patience: The time in seconds for which calls wait for a server that is down.
    """

    def __init__(
        self,
        limits: BatchLimits,
        used: Usage | None = None,
        seconds: float = 0,
        patience: float = PATIENCE,
    ) -> None:
        self.needs_prices = limits.max_cost is not None
        self._limits = limits
        self._used = used or Usage()
        self._goes_on = self._used.calls > 0
        self._seconds = seconds
        self._patience = patience
        self._paused: str | None = None
        self._lines: dict[str, _Line] = {}
        self._waits = set[asyncio.Timeout]()
        self._refusals = 0
        self._latest = deque[float]()
        self._clock: asyncio.TimerHandle | None = None
        self._check_budgets()

    @property
    def paused(self) -> str | None:
        """The reason why no more calls start, as a sentence. None if calls may start."""
        return self._paused

    def figures(self) -> Figures:
        """Return the current figures."""
        speed = 0.0
        if self._latest:
            self._forget_older(now := asyncio.get_running_loop().time())
            speed = len(self._latest) / max(1.0, now - self._latest[0]) if self._latest else 0.0
        waiting = len(self._waits)
        outages = tuple(self._describe_outages())
        return Figures(self._used, self._refusals, waiting, speed, self._paused, outages)

    async def enter(self, call: PlannedCall) -> int:
        """See `Gate.enter`. Calls of the same model are let through in their order."""
        self._begin()
        line = self._line(call.model)
        if self._paused is None:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits.add(wait)
                    await line.pass_through(call.tokens)
            except TimeoutError:
                # Only `pause` sets a timeout.
                pass
            finally:
                self._waits.discard(wait)
        if self._paused is not None and (not call.is_begun or self._find_used_budget()):
            raise PausedError(self._paused)
        return 0 if line.outage is None else line.outage.number

    def count(self, model: str, used: Usage) -> None:
        """Add the usage of an answered call."""
        self._used = add_usage((self._used, used))
        self._check_budgets()
        line = self._line(model)
        line.is_reached = True
        line.settle(used.tokens)
        now = asyncio.get_running_loop().time()
        self._latest.append(now)
        self._forget_older(now)

    def _check_budgets(self) -> None:
        """Pause the batch if a budget is used up."""
        if (budget := self._find_used_budget()) is not None:
            self.pause(f"{budget} is used up")

    def _find_used_budget(self) -> str | None:
        """Return the name and the amount of a budget that is used up, or None."""
        cost, tokens = self._limits.max_cost, self._limits.max_tokens
        if cost is not None and (self._used.cost or 0) >= cost:
            return f"limits.max_cost of {cost:g}"
        if tokens is not None and self._used.tokens >= tokens:
            return f"limits.max_tokens of {tokens}"
        return None

    def refused(self, model: str, seconds: float | None) -> None:
        """Hold back all calls of a model whose server rejects calls temporarily.

        Args:
            model: The model's label.
            seconds: The wait that the server asks for, in seconds. None if it states no time.
        """
        self._refusals += 1
        line = self._line(model)
        line.is_reached = True
        if seconds is not None and seconds > _LONGEST:
            self.pause(
                f"the server of the model {model} refuses calls for the next {round(seconds / 60)} "
                "minutes; run the batch again after that time"
            )
        else:
            line.hold(seconds)

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        """See `Gate.report_outage`.

        Calls wait at most `CONNECTING` for a server that has never replied in this batch, since its
        address may be wrong, and not at all before the first answer in the batch.
        """
        line = self._line(model)
        line.is_reached = line.is_reached or is_reached
        if self._paused is not None:
            raise PausedError(self._paused)
        patience = self._patience if line.is_reached else min(self._patience, CONNECTING)
        is_waited_for = (self._used.calls or line.is_reached) and patience
        if not is_waited_for or (seconds is not None and seconds > _LONGEST):
            return None
        number = line.hold_during_outage(why, seconds, patience)
        if number is None:
            waited = f"even after a wait of {format_duration(patience)}"
            remedy = "run the batch again when the server answers"
            if not line.is_reached:
                waited += ", and has not replied"
                remedy = f"check its address, or {remedy}"
            raise ModelUnavailableError(f"{why}, {waited}; {remedy}")
        return number

    def end_outage(self, model: str, number: int) -> None:
        """See `Gate.end_outage`."""
        line = self._line(model)
        # Calls that were sent before an outage may be answered during it.
        if line.outage is not None and line.outage.number == number:
            line.end_outage()

    def pause(self, why: str) -> None:
        """Stop new calls. Waiting calls raise `PausedError` at once; calls in flight continue.

        Args:
            why: The reason, as a sentence. The first reason is kept.
        """
        if self._paused is not None:
            return
        self._paused = why
        if self._clock is not None:
            self._clock.cancel()
        for wait in self._waits:
            wait.reschedule(0)

    def _begin(self) -> None:
        """Start measuring the time, at the first call."""
        most = self._limits.max_seconds
        if self._clock is None and self._paused is None and most is not None:
            left, why = most - self._seconds, f"limits.max_seconds of {most:g} is used up"
            self._clock = asyncio.get_running_loop().call_later(left, self.pause, why)
            if left <= 0:
                self.pause(why)

    def _describe_outages(self) -> Iterator[str]:
        """Yield a sentence for each server that is down."""
        now = asyncio.get_running_loop().time()
        ends = dict[str, float]()
        for line in self._lines.values():
            # Several models may have one server.
            if line.outage is not None:
                why, until = line.outage.why, line.outage.until
                ends[why] = min(until, ends.get(why, until))
        for why, until in ends.items():
            left = format_duration(max(0, round(until - now)))
            yield f"{why}; its calls wait, for up to {left}"

    def _line(self, model: str) -> "_Line":
        found = self._lines.get(model)
        if found is None:
            rates = self._limits.rates
            rate = rates.get(model) or rates.get(_OTHERS) or RateLimit()
            # The addresses of a batch that goes on were right before.
            found = self._lines[model] = _Line(rate, is_reached=self._goes_on)
        return found

    def _forget_older(self, now: float) -> None:
        while self._latest and self._latest[0] <= now - _LATEST:
            self._latest.popleft()


class _Outage(NamedTuple):
    """The current outage of a server."""

    number: int
    """The number of the outage, from 1, among the outages of the model in this run."""
    why: str
    """The server and its failure, as a sentence without a period."""
    began: float
    """The time of the first failure, by the loop's clock."""
    until: float = 0
    """The time until which calls wait for the server, by the loop's clock."""


class _Line:
    """The queue of the calls of one model.

    Only the first call in the queue asks for capacity. So short prompts cannot overtake a long one
    forever, and only one waiter wakes at a time.
    """

    def __init__(self, rate: RateLimit, *, is_reached: bool) -> None:
        self._turn = asyncio.Lock()
        self._requests = _bucket(rate.requests_per_minute)
        self._tokens = _bucket(rate.tokens_per_minute)
        self._owed = 0.0
        """Tokens that must still be taken from the bucket before the next call."""
        self._guessed = 0
        """The estimated tokens of all prompts."""
        self._passed = 0
        self._opens = 0.0
        """The time at which the server accepts calls again, by the loop's clock."""
        self._back_off = 0.0
        self.is_reached = is_reached
        """Whether the server has replied in this batch. If a batch goes on, this is assumed."""
        self.outage: _Outage | None = None
        """The current outage, or None."""
        self._outages = 0
        """Number of outages in this run."""

    async def pass_through(self, tokens: int) -> None:
        """Wait for the call's turn and for capacity."""
        async with self._turn:
            if self._requests is not None:
                await self._requests.acquire()
            if self._tokens is not None:
                self._owed += tokens
                # In parts, because the bucket may be smaller than a prompt.
                while self._owed > 0:
                    part = min(self._owed, self._tokens.max_rate)
                    await self._tokens.acquire(part)
                    self._owed -= part
            await self._open()
            self._guessed += tokens
            self._passed += 1

    async def _open(self) -> None:
        """Wait until the server accepts calls again. That time may be postponed during the wait."""
        if (left := self._opens - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
            await self._open()

    def settle(self, tokens: int) -> None:
        """Charge the actual tokens of an answered call instead of an estimate."""
        # The call is not matched with its own estimate. The average estimate is subtracted, which
        # makes the sum right on average.
        self._owed += tokens - (self._guessed / self._passed if self._passed else 0)
        if self.outage is None:
            self._back_off = 0

    def hold_during_outage(self, why: str, seconds: float | None, patience: float) -> int | None:
        """Hold calls back while the server is down. Return the number of the outage.

        Return None if the outage has taken longer than the patience, in seconds.
        """
        now = asyncio.get_running_loop().time()
        if self.outage is None:
            self._outages += 1
            self.outage = _Outage(self._outages, why, now)
        left = self.outage.began + patience - now
        if left <= 0:
            return None
        self.outage = self.outage._replace(why=why, until=now + left)
        # Some servers that are down ask for no delay at all.
        self.hold(seconds if seconds is not None and seconds >= 1 else None, left)
        return self.outage.number

    def end_outage(self) -> None:
        """End the outage: the server has answered."""
        self.is_reached = True
        self.outage = None
        self._back_off = 0

    def hold(self, seconds: float | None, most: float = inf) -> None:
        """Hold calls back for a time, in seconds.

        Without a stated time, wait longer after each rejection, but not longer than `most`.
        """
        now = asyncio.get_running_loop().time()
        if seconds is None:
            if now < self._opens:
                # This call was sent before the other calls were held back.
                return
            self._back_off = seconds = min(max(1, 2 * self._back_off), _MOST_BACK_OFF)
        self._opens = max(self._opens, now + min(seconds, most))


def _bucket(per_minute: int | None) -> AsyncLimiter | None:
    """Return a bucket for calls or tokens per minute. A burst may use the share of one second."""
    if per_minute is None:
        return None
    burst = max(1, per_minute // 60)
    return AsyncLimiter(burst, 60 * burst / (per_minute + 1 - burst))
