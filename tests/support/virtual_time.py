"""An event loop whose clock goes on by itself: hours pass in no time, in their order."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_TICK = 1e-6
"""What each round of the loop takes: else what waits for less than a float can say never ends."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for timers alone: where nothing is ready, its clock goes on to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.rounds = 0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        own: Any = self
        self.rounds += 1
        self._now += _TICK
        if not own._ready and own._scheduled:
            self._now = max(self._now, min(one.when() for one in own._scheduled))
        own = super()
        own._run_once()


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in such a loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
