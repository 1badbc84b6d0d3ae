"""The gate of a batch in one process: how fast and how long its sessions call models."""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from aiolimiter import AsyncLimiter

from ..common.errors import PausedError
from ..conversation.usage import Usage, add_usage
from .spec import BatchLimits, RateLimit

_OTHERS: Final = "*"
"""Stands for the models that have no rate of their own."""

_LONGEST: Final = 3600
"""How long a server may ask to wait, in seconds, before the batch is paused instead."""

_MOST_BACK_OFF: Final = 60
"""How long calls are held back, at most, where a server refuses them and does not say for how long;
in seconds."""

_LATEST: Final = 10
"""The seconds over which calls are counted for a speed."""


class Figures(NamedTuple):
    """How a batch goes at the gate."""

    used: Usage
    """What its answered calls used, those of earlier runs included."""
    refusals: int
    """Calls that servers refused for now in this run."""
    waiting: int
    """Calls that wait at the gate."""
    calls_per_second: float
    """Answered calls, over the last seconds."""
    paused: str | None
    """Why no more calls are made, in a sentence."""


class Limiter:
    """Holds the model calls of a batch's sessions to its limits, in one event loop.

    Args:
        limits: The limits.
        used: What earlier runs of the batch have used.
        seconds: How long they took.
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
        """Why no more calls are made, in a sentence; None while they are."""
        return self._paused

    def figures(self) -> Figures:
        """Tell how it goes."""
        speed = 0.0
        if self._latest:
            self._forget_older(now := asyncio.get_running_loop().time())
            speed = len(self._latest) / max(1.0, now - self._latest[0]) if self._latest else 0.0
        return Figures(self._used, self._refusals, len(self._waits), speed, self._paused)

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called, after those who came before.

        Args:
            model: The model's label.
            tokens: About how many tokens the prompt has.

        Raises:
            PausedError: No more calls are made for now.
        """
        self._begin()
        if self._paused is None:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits.add(wait)
                    await self._line(model).pass_through(tokens)
            except TimeoutError:
                # By `pause` alone.
                pass
            finally:
                self._waits.discard(wait)
        if self._paused is not None:
            raise PausedError(self._paused)

    def count(self, model: str, used: Usage) -> None:
        """Count what one answered call has used."""
        self._used = add_usage((self._used, used))
        self._line(model).settle(used.input_tokens + used.output_tokens)
        now = asyncio.get_running_loop().time()
        self._latest.append(now)
        self._forget_older(now)
        self._check()

    def refused(self, model: str, seconds: float | None) -> None:
        """Hold back all calls of a model, whose server refuses them for now.

        Args:
            model: The model's label.
            seconds: For how long the server asks. None: it does not say.
        """
        self._refusals += 1
        if seconds is not None and seconds > _LONGEST:
            self.pause(
                f"the server of the model {model} takes no calls for {round(seconds / 60)} "
                "minutes: run the batch again then"
            )
        else:
            self._line(model).hold(seconds)

    def pause(self, why: str) -> None:
        """Make no more calls: whoever waits is told at once, calls in flight go on.

        Args:
            why: Why, in a sentence. The first one stays.
        """
        if self._paused is not None:
            return
        self._paused = why
        if self._clock is not None:
            self._clock.cancel()
        for wait in self._waits:
            wait.reschedule(0)

    def _begin(self) -> None:
        """Begin to measure the time, with the first call."""
        most = self._limits.max_seconds
        if self._clock is None and self._paused is None and most is not None:
            left, why = most - self._seconds, f"limits.max_seconds of {most:g} are over"
            self._clock = asyncio.get_running_loop().call_later(left, self.pause, why)
            if left <= 0:
                self.pause(why)

    def _check(self) -> None:
        """Pause where a budget is used up."""
        limits, used = self._limits, self._used
        tokens = used.input_tokens + used.output_tokens
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            self.pause(f"limits.max_cost of {limits.max_cost:g} is used up")
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            self.pause(f"limits.max_tokens of {limits.max_tokens} are used up")

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
    """Where the calls of one model wait, one behind another.

    Only the first asks for room, so that short prompts do not overtake a long one for ever, and
    one waiter wakes at a time, however many there are.
    """

    def __init__(self, rate: RateLimit) -> None:
        self._turn = asyncio.Lock()
        self._requests = _bucket(rate.requests_per_minute)
        self._tokens = _bucket(rate.tokens_per_minute)
        self._owed = 0.0
        """Tokens that are still to be taken from the bucket, before the next call."""
        self._guessed = 0
        """The tokens of all prompts, as they were estimated."""
        self._passed = 0
        self._opens = 0.0
        """When the server takes calls again, by the loop's clock."""
        self._back_off = 0.0

    async def pass_through(self, tokens: int) -> None:
        """Wait for a call's turn, and for room."""
        async with self._turn:
            if self._requests is not None:
                await self._requests.acquire()
            if self._tokens is not None:
                self._owed += tokens
                # In parts: the bucket may be smaller than a prompt.
                while self._owed > 0:
                    part = min(self._owed, self._tokens.max_rate)
                    await self._tokens.acquire(part)
                    self._owed -= part
            await self._open()
            self._guessed += tokens
            self._passed += 1

    async def _open(self) -> None:
        """Wait until the server takes calls again, which may be put off meanwhile."""
        if (left := self._opens - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
            await self._open()

    def settle(self, tokens: int) -> None:
        """Take what an answered call has really used, less what was taken for it."""
        # Which prompt it answers is not known here: on average the sum is right.
        self._owed += tokens - (self._guessed / self._passed if self._passed else 0)
        self._back_off = 0

    def hold(self, seconds: float | None) -> None:
        """Let no call through for so long; for longer each time where nobody says how long."""
        now = asyncio.get_running_loop().time()
        if seconds is None:
            if now < self._opens:
                # It was sent before the others were held back.
                return
            self._back_off = seconds = min(max(1, 2 * self._back_off), _MOST_BACK_OFF)
        self._opens = max(self._opens, now + seconds)


def _bucket(per_minute: int | None) -> AsyncLimiter | None:
    """Make what lets so many through in any minute, at most, and those of a second at once."""
    if per_minute is None:
        return None
    burst = max(1, per_minute // 60)
    return AsyncLimiter(burst, 60 * burst / (per_minute + 1 - burst))
