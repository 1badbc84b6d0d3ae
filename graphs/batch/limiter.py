"""The gate of a batch in one process. It limits the rate and the total of the model calls."""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from aiolimiter import AsyncLimiter

from ..common.errors import PausedError
from ..conversation.usage import Usage, add_usage
from .spec import BatchLimits, RateLimit

_OTHERS: Final = "*"
"""The key of the rate for all models that have no entry."""

_LONGEST: Final = 3600
"""Maximum wait in seconds that a server may ask for. The batch is paused if it asks for more."""

_MOST_BACK_OFF: Final = 60
"""Maximum time in seconds for which calls are held back if a server rejects them without stating a
time.
"""

_LATEST: Final = 10
"""The period in seconds over which the call rate is measured."""


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


class Limiter:
    """A gate that keeps the model calls of a batch within its limits, in one event loop.

    Args:
        limits: The limits.
        used: The usage of earlier runs of the batch.
        seconds: The running time of earlier runs, in seconds.
    """

    def __init__(self, limits: BatchLimits, used: Usage | None = None, seconds: float = 0) -> None:
        self.needs_prices = limits.max_cost is not None
        self._limits = limits
        self._used = used or Usage()
        self._seconds = seconds
        self._paused: str | None = None
        self._lines: dict[str, _Line] = {}
        self._waits = set[asyncio.Timeout]()
        self._refusals = 0
        self._latest = deque[float]()
        self._clock: asyncio.TimerHandle | None = None
        self._check()

    @property
    def paused(self) -> str | None:
        """The reason why no more calls start, as a sentence, or None if they do."""
        return self._paused

    def figures(self) -> Figures:
        """Return the current figures."""
        speed = 0.0
        if self._latest:
            self._forget_older(now := asyncio.get_running_loop().time())
            speed = len(self._latest) / max(1.0, now - self._latest[0]) if self._latest else 0.0
        return Figures(self._used, self._refusals, len(self._waits), speed, self._paused)

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called, after the calls that came earlier.

        Args:
            model: The model's label.
            tokens: The estimated number of tokens in the prompt.

        Raises:
            PausedError: No more calls start for now.
        """
        self._begin()
        if self._paused is None:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits.add(wait)
                    await self._line(model).pass_through(tokens)
            except TimeoutError:
                # Only `pause` sets a timeout.
                pass
            finally:
                self._waits.discard(wait)
        if self._paused is not None:
            raise PausedError(self._paused)

    def count(self, model: str, used: Usage) -> None:
        """Add the usage of an answered call."""
        self._used = add_usage((self._used, used))
        self._line(model).settle(used.input_tokens + used.output_tokens)
        now = asyncio.get_running_loop().time()
        self._latest.append(now)
        self._forget_older(now)
        self._check()

    def refused(self, model: str, seconds: float | None) -> None:
        """Hold back all calls of a model whose server rejects calls temporarily.

        Args:
            model: The model's label.
            seconds: The wait that the server asks for, in seconds. None if it states no time.
        """
        self._refusals += 1
        if seconds is not None and seconds > _LONGEST:
            self.pause(
                f"the server of the model {model} accepts no calls for {round(seconds / 60)} "
                "minutes; run the batch again after that time"
            )
        else:
            self._line(model).hold(seconds)

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

    def _check(self) -> None:
        """Pause if a budget is used up."""
        limits, used = self._limits, self._used
        tokens = used.input_tokens + used.output_tokens
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            self.pause(f"limits.max_cost of {limits.max_cost:g} is used up")
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            self.pause(f"limits.max_tokens of {limits.max_tokens} is used up")

    def _line(self, model: str) -> "_Line":
        found = self._lines.get(model)
        if found is None:
            rates = self._limits.rates
            rate = rates.get(model) or rates.get(_OTHERS) or RateLimit()
            found = self._lines[model] = _Line(rate)
        return found

    def _forget_older(self, now: float) -> None:
        while self._latest and self._latest[0] <= now - _LATEST:
            self._latest.popleft()


class _Line:
    """The queue of the calls of one model.

    Only the first call in the queue asks for capacity. So short prompts cannot overtake a long one
    forever, and only one waiter wakes at a time.
    """

    def __init__(self, rate: RateLimit) -> None:
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
        """Charge the actual tokens of an answered call instead of the reserved estimate."""
        # The call is not matched with its own estimate: on average the sum is right.
        self._owed += tokens - (self._guessed / self._passed if self._passed else 0)
        self._back_off = 0

    def hold(self, seconds: float | None) -> None:
        """Hold calls back for a time. Without a stated time, wait longer after each rejection."""
        now = asyncio.get_running_loop().time()
        if seconds is None:
            if now < self._opens:
                # This call was sent before the other calls were held back.
                return
            self._back_off = seconds = min(max(1, 2 * self._back_off), _MOST_BACK_OFF)
        self._opens = max(self._opens, now + seconds)


def _bucket(per_minute: int | None) -> AsyncLimiter | None:
    """Return a bucket for calls or tokens per minute, with a burst of one second's share."""
    if per_minute is None:
        return None
    burst = max(1, per_minute // 60)
    return AsyncLimiter(burst, 60 * burst / (per_minute + 1 - burst))
