"""A pool of interpreters: one for each session, up to a limit; the longest idle is ended first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from .launch import Launch
from .workers import Worker

MOST_KEPT: Final = 8
"""How many interpreters there are at once; a call waits while all of them are busy."""

_PATIENCE = 0.2
"""Seconds between two looks at those that are idle."""


def _are_idle(workers: list[Worker]) -> list[bool]:
    return [worker.is_idle() for worker in workers]


class Workers:
    """The interpreters of this process. To be used on one event loop alone."""

    def __init__(self) -> None:
        self._idle: OrderedDict[str, Worker] = OrderedDict()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._room = asyncio.Semaphore(MOST_KEPT)
        self._busy = 0
        self._number = 0
        self._guard: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def kept(
        self, key: str, runs: int, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[tuple[Worker, bool]]:
        """Check out the interpreter of a key; also tell whether it is new."""
        async with self.lock(key), self._room:
            known = self._idle.get(key)
            if known is not None and (known.runs != runs or known.has_ended):
                await self._idle.pop(key).close()
            is_new = key not in self._idle
            async with self._taken(key, launch) as worker:
                worker.runs = runs + 1
                yield worker, is_new

    @asynccontextmanager
    async def any(
        self, kind: str, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[Worker]:
        """Check out any interpreter of a kind that keeps no state."""
        async with self._room:
            key = next((key for key in self._idle if key.startswith(f"any {kind} ")), None)
            if key is None:
                self._number += 1
                key = f"any {kind} {self._number}"
            async with self._taken(key, launch) as worker:
                yield worker

    @asynccontextmanager
    async def _taken(
        self, key: str, launch: Callable[[], Awaitable[Launch]]
    ) -> AsyncIterator[Worker]:
        worker = self._idle.pop(key, None)
        self._busy += 1
        try:
            if worker is not None and worker.has_ended:
                await worker.close()
                worker = None
            if worker is None:
                while self._idle and len(self._idle) + self._busy > MOST_KEPT:
                    _, oldest = self._idle.popitem(last=False)
                    await oldest.close()
                worker = await Worker.start(await launch())
            yield worker
        finally:
            self._busy -= 1
            if worker is not None and worker.alive:
                self._idle[key] = worker
                if self._guard is None or self._guard.done():
                    self._guard = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """End interpreters that run on between calls, as long as any is idle."""
        while self._idle:
            await asyncio.sleep(_PATIENCE)
            idle = [(key, worker, worker.asked) for key, worker in self._idle.items()]
            found = await asyncio.to_thread(_are_idle, [worker for _, worker, _ in idle])
            for (key, worker, asked), is_idle in zip(idle, found, strict=True):
                # One that was asked meanwhile has been looked at while it was at work.
                if not is_idle and self._idle.get(key) is worker and worker.asked == asked:
                    await self._idle.pop(key).close()

    @asynccontextmanager
    async def once(self, launch: Launch) -> AsyncIterator[Worker]:
        """Start an interpreter that is ended afterwards."""
        worker = await Worker.start(launch)
        try:
            yield worker
        finally:
            await worker.close()

    async def close(self, key: str) -> None:
        """End the interpreter of a key, after the call that it may be at."""
        async with self.lock(key):
            worker = self._idle.pop(key, None)
            if worker is not None:
                await worker.close()

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of a name."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)
