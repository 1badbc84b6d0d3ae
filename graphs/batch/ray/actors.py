"""What runs in Ray's processes: the workers of a batch, and the one limiter of them all."""

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import Any

import ray

from ...common.errors import BatchError, PausedError, StoreError
from ...spec.usage import Usage
from ...store.address import open_store
from ...store.batches import BatchLease, CellRow
from ...store.errors import LostBatchError
from ..cells import Cell
from ..driver import BEAT
from ..limiter import Figures, Limiter
from ..record import used_before
from ..worker import COLLECTED, Worker
from .cluster import ray_errors
from .kit import Kit


class LimiterActor:
    """Holds the model calls of all workers to the limits of their batch.

    One that is started anew counts from what the store holds.
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._limiter: Limiter | None = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None

    async def enter(self, model: str, tokens: int) -> str | None:
        """Wait until a model may be called; gives why no more calls are made."""
        limiter = await self._opened()
        try:
            await limiter.enter(model, tokens)
        except PausedError as error:
            return str(error)
        return None

    async def count(self, model: str, used: Usage) -> None:
        """See `Gate.count`."""
        (await self._opened()).count(model, used)

    async def refused(self, model: str, seconds: float | None) -> None:
        """See `Gate.refused`."""
        (await self._opened()).refused(model, seconds)

    async def paused(self, why: str | None) -> str | None:
        """Let no more calls begin, if it is told why, and say why none do."""
        limiter = await self._opened()
        if why is not None:
            limiter.pause(why)
        return limiter.paused

    async def pace(self) -> Figures:
        """See `Crew.pace`."""
        return (await self._opened()).figures()

    async def _opened(self) -> Limiter:
        async with self._opening:
            if self._limiter is None:
                kit = self._kit
                async with AsyncExitStack() as stack:
                    store = await stack.enter_async_context(open_store(kit.store))
                    row = await store.batches.get(kit.batch)
                    if row is None:
                        raise BatchError(f"Batch {kit.batch!r} has been deleted.")
                    used = await used_before(store, kit.batch)
                    self._open = stack.pop_all()
                self._limiter = Limiter(kit.limits, used, row.seconds)
                watch = self._watch(kit.share_lease(store), self._limiter)
                self._watching = asyncio.create_task(watch)
            return self._limiter

    async def _watch(self, lease: BatchLease, limiter: Limiter) -> None:
        """Let no more calls begin once the driver, which may be stopped, has lost the batch."""
        while True:
            await asyncio.sleep(BEAT)
            try:
                await lease.check()
            except StoreError:
                continue  # The next look may succeed.
            except LostBatchError as error:
                return limiter.pause(str(error))

    async def close(self) -> None:
        """Close the store."""
        if self._watching is not None:
            self._watching.cancel()
        await self._open.aclose()


class RemoteGate:
    """The limiter's gate, as it is passed from another process."""

    def __init__(self, kit: Kit, limiter: str) -> None:
        self.needs_prices = kit.limits.max_cost is not None
        self._limiter: Any = ray.get_actor(limiter)

    async def enter(self, model: str, tokens: int) -> None:
        """See `Gate.enter`."""
        with ray_errors("Asking for a model call"):
            why = await self._limiter.enter.remote(model, tokens)
        if why is not None:
            raise PausedError(why)

    def count(self, model: str, used: Usage) -> None:
        """See `Gate.count`."""
        self._limiter.count.remote(model, used)

    def refused(self, model: str, seconds: float | None) -> None:
        """See `Gate.refused`."""
        self._limiter.refused.remote(model, seconds)


class WorkerActor:
    """Runs cells in a process of its own."""

    def __init__(self, kit: Kit, limiter: str) -> None:
        gc.set_threshold(*COLLECTED)
        kit.unpack()
        self._kit = kit
        self._gate = RemoteGate(kit, limiter)
        self._worker: Worker | None = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()

    async def ready(self) -> None:
        """Open the store."""
        await self._opened()

    async def run(self, cell: Cell) -> CellRow:
        """See `Worker.run`."""
        return await (await self._opened()).run(cell)

    async def close(self) -> None:
        """Close the store."""
        await self._open.aclose()

    async def _opened(self) -> Worker:
        async with self._opening:
            if self._worker is None:
                kit = self._kit
                # The driver has made it: a missing file means that this is another machine.
                store = await self._open.enter_async_context(open_store(kit.store, create=False))
                lease = kit.share_lease(store)
                self._worker = Worker(lease, store, self._gate, kit.options, kit.scores)
            return self._worker
