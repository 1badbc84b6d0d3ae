"""An event loop with a virtual clock: hours of timers pass in no time, in the correct order."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")

_TICK = 1e-6
"""Duration of each loop iteration. Without it, a wait shorter than a float's precision never ends.
"""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop for timers only; an idle loop's clock advances to the next timer."""

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


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in such a loop."""

    @wraps(test)
    def run() -> None:
        virtually(test())

    return run
