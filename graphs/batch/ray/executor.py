"""The executor of a batch on Ray: one worker for each core, and one limiter."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import ceil
from typing import Any, Final
from uuid import uuid4

import ray

from ...common.errors import DuologueError, SpecError
from ...store.batches import CellRow
from ..cells import Cell
from ..driver import BatchSettings
from ..limiter import Figures
from ..spec import BatchLimits
from ..worker import Worker
from .workers import (
    LimiterActor,
    WorkerActor,
    WorkerConfig,
    count_cores,
    count_machines,
    join_cluster,
    pack_config,
    ray_errors,
)

_FOREVER: Final[dict[str, Any]] = {"max_restarts": -1, "max_task_retries": -1}
"""Ray restarts an actor that dies, and repeats its task. A cell then resumes its session."""

_WAITING: Final = 100_000
"""Maximum number of calls that wait at the limiter."""

_CLOSING: Final = 5.0
"""Seconds to wait until actors have closed their stores."""


class RayExecutor:
    """An executor that runs cells on Ray's actors.

    Args:
        kit: The configuration of all workers.
        workers: Number of workers.
        concurrency: Maximum number of cells that run at once, on all workers together.
    """

    def __init__(self, kit: WorkerConfig, workers: int, concurrency: int) -> None:
        self._share = ceil(concurrency / workers)
        self._why: str | None = None
        name = f"duologue-{kit.batch}-{uuid4().hex}"
        # The actors are not detached: they end with the process that created them, so a driver that
        # is killed leaves no actors running.
        limiter: Any = ray.remote(LimiterActor)
        self._limiter = limiter.options(
            name=name, num_cpus=0, max_concurrency=_WAITING, **_FOREVER
        ).remote(kit)
        worker: Any = ray.remote(WorkerActor)
        options = worker.options(
            num_cpus=1,
            scheduling_strategy="SPREAD",
            max_concurrency=concurrency + 10,
            **_FOREVER,
        )
        self._workers = [options.remote(kit, name) for _ in range(workers)]
        self._free = asyncio.Queue[Any]()
        """The free places of the workers: each worker, once for every further cell that it can run.
        Or the error of a worker that could not start.
        """
        self._starting = [asyncio.create_task(self._start(worker)) for worker in self._workers]

    async def _start(self, worker: Any) -> None:  # noqa: ANN401  (Ray's handles have no types)
        try:
            with ray_errors("Starting a Ray worker"):
                await worker.ready.remote()
        except DuologueError as error:
            self._free.put_nowait(error)
        else:
            for _ in range(self._share):
                self._free.put_nowait(worker)

    async def run(self, cell: Cell) -> CellRow:
        """See `CellExecutor.run`."""
        worker = await self._free.get()
        try:
            if isinstance(worker, DuologueError):
                raise worker
            with ray_errors(f"Running {cell.session} on Ray"):
                row: CellRow = await worker.run.remote(cell)
            return row
        finally:
            self._free.put_nowait(worker)

    async def pause(self, why: str) -> None:
        """See `CellExecutor.pause`."""
        self._why = self._why or why
        await self.paused()

    async def paused(self) -> str | None:
        """See `CellExecutor.paused`."""
        try:
            with ray_errors("Asking Ray's limiter"):
                # The reason is sent each time, because the limiter may have been restarted.
                why: str | None = await self._limiter.paused.remote(self._why)
        except DuologueError:
            if self._why is None:
                raise
            # The batch is stopping, maybe because the store failed, which the limiter needs.
            return self._why
        return why

    async def pace(self) -> Figures:
        """See `CellExecutor.pace`."""
        with ray_errors("Asking Ray's limiter"):
            found: Figures = await self._limiter.ask.remote("figures")
        return found

    async def close(self) -> None:
        """End the actors."""
        for starting in self._starting:
            starting.cancel()
        closing = asyncio.gather(
            *(actor.close.remote() for actor in (*self._workers, self._limiter)),
            return_exceptions=True,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(closing, _CLOSING)
        for actor in (*self._workers, self._limiter):
            ray.kill(actor)


@asynccontextmanager
async def make_ray_executor(
    address: str, worker: Worker, limits: BatchLimits, settings: BatchSettings
) -> AsyncIterator[RayExecutor]:
    """Yield an executor that runs cells in a Ray cluster.

    Args:
        address: The address of the cluster. ``auto`` is the cluster of this machine, or one that is
            started for the batch.
        worker: The worker that would run the cells in this process.
        limits: The batch's limits.
        settings: The settings of the batch's run.

    Raises:
        SpecError: The cluster does not exist or cannot share the store, or an option cannot be sent
            to it.
    """
    url = worker.store.url
    if url.startswith("memory:"):
        raise SpecError(
            f"ray: other processes can't read {url}; store the sessions in PostgreSQL or, on one "
            "machine, in a file"
        )
    concurrency = settings.concurrency
    kit = pack_config(worker, limits, settings.patience)
    async with join_cluster(address):
        if url.startswith("sqlite:") and (many := count_machines()) > 1:
            raise SpecError(
                f"ray: the {many} machines of the cluster can't share {url}; store the sessions in "
                "PostgreSQL (--store postgresql://…)"
            )
        crew = RayExecutor(kit, max(1, min(count_cores(), concurrency)), concurrency)
        try:
            yield crew
        finally:
            await crew.close()
