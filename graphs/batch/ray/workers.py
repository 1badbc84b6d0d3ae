"""A batch on Ray: the executor, and its processes in a cluster: workers, and one limiter."""

import asyncio
import gc
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from inspect import isawaitable
from math import ceil
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from ....nodes.models.gate import PlannedCall
from ...common.errors import (
    BatchError,
    DuologueError,
    ModelUnavailableError,
    PausedError,
    SpecError,
    StoreError,
)
from ...common.sanitize import excerpt
from ...common.settings import environment_variables, load_settings
from ...conversation.usage import Usage
from ...session.options import Options
from ...store.batches import CellRow
from ...store.errors import LostBatchError
from ...store.open import Store, open_store
from ...store.session_lease import BatchLease
from ..batch_row import read_usage_before
from ..cells import Cell
from ..driver import BEAT, BatchSettings
from ..limiter import Figures, Limiter
from ..spec import BatchLimits
from ..status import known_batch
from ..worker import COLLECTED, CellRules, Worker

_AUTO: Final = "auto"
"""The address of the cluster on this machine, or of a cluster that is started for this batch."""

_STARTED: Final = Path("/tmp/ray/ray_current_cluster")  # noqa: S108  (it is Ray's)
"""The file in which `ray start` stores the cluster's address."""

_PATIENCE: Final = 10.0
"""Seconds to wait for the answer of a cluster."""

_FOREVER: Final[dict[str, Any]] = {"max_restarts": -1, "max_task_retries": -1}
"""Ray restarts an actor that dies, and repeats its task. A cell then resumes its session."""

_WAITING: Final = 100_000
"""Maximum number of calls that wait at the limiter."""

_CLOSING: Final = 5.0
"""Seconds to wait until actors have closed their stores."""

_lock = threading.Lock()
_users = 0
"""Number of this process's batches that use the cluster that the first of them has joined."""


def _join(address: str) -> None:
    global _users
    with _lock:
        if _users or not ray.is_initialized():
            if not _users:
                _init(address)
            _users += 1


def _leave() -> None:
    global _users
    with _lock:
        if _users:
            _users -= 1
            if not _users:
                ray.shutdown()


def _init(address: str) -> None:
    try:
        ray.init(
            _find_address() if address == _AUTO else _check_address(address),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except Exception as error:
        # Ray raises a plain Exception if its own processes start too slowly.
        token = isinstance(error, ConnectionError) and "RAY_AUTH_MODE" not in os.environ
        also = "; if it requires a token, set RAY_AUTH_MODE=token" if token else ""
        raise SpecError(f"ray: {address!r} can't be joined: {excerpt(str(error))}{also}") from error


def _find_address() -> str | None:
    """Return the address argument with which Ray finds the cluster of this machine.

    Ray's own "auto" would also find a cluster that another program started for itself, which ends
    with that program.
    """
    if os.environ.get("RAY_ADDRESS"):
        return _check_address(os.environ["RAY_ADDRESS"])
    try:
        _check_address(_STARTED.read_text().strip())
    except (OSError, ValueError):
        # No cluster was started, or it was not stopped properly.
        return "local"
    return None


def _check_address(address: str) -> str:
    """Return an address if a server listens there. Ray itself would take minutes to find out."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdigit():
        raise ValueError("pass HOST:PORT or auto")
    socket.create_connection((host, int(port)), _PATIENCE).close()
    return address


@contextmanager
def _ray_errors(what: str) -> Iterator[None]:
    """Raise a worker's error as if it had been raised here.

    Raises:
        BatchError: Ray failed; the message names the operation.
    """
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, DuologueError):
            raise error.cause from None
        raise BatchError(f"{what} failed: {excerpt(repr(error.cause))}") from error
    except RayError as error:
        raise BatchError(f"{what} failed: {excerpt(str(error))}") from error


@dataclass(frozen=True, repr=False)
class WorkerConfig:
    """The configuration of all workers of a batch. It contains secrets, so it has no repr."""

    batch: str
    """The batch's name."""
    lease: tuple[str, int]
    """The owner and the number of the driver's lease on the batch."""
    store: str
    """The address of the store, including its password."""
    limits: BatchLimits
    patience: float
    """The time in seconds for which calls wait for a server that is down."""
    rules: CellRules
    environment: Mapping[str, str | None]
    """The environment variables with settings and keys. The value of an unset variable is None."""


def _pack_config(worker: Worker, limits: BatchLimits, patience: float) -> WorkerConfig:
    """Return the configuration of a worker, for workers in other processes.

    Raises:
        SpecError: An option cannot be sent to another process; the message names it.
    """
    store = worker.store.address
    rules = worker.rules
    options: Options = {**rules.options, "store": store}
    if options.get("runtime_store") is not None:
        # Some stores can be copied to the workers, but each copy would keep its own facts.
        raise SpecError(
            "runtime_store: Ray's workers can't share it; open it within the tools that use it"
        )
    for name, value in options.items():
        _check(name, value)
    for name, function in rules.scores.items():
        _check(f"scores.{name}", function)
    _check("examine", rules.examine)
    # Variables that model clients read. Each provider has its own key variable.
    keys = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("DUOLOGUE_", "OPENAI_")) or name.endswith("_API_KEY")
    }
    environment = {**keys, **environment_variables()}
    batch, (_, owner, number) = worker.lease.batch, worker.lease.lease.terms
    rules = replace(rules, options=options)
    return WorkerConfig(batch, (owner, number), store, limits, patience, rules, environment)


def _check(name: str, value: object) -> None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # a user's object may raise any error
        instead = (
            "pass the model's name instead, such as 'openai:gpt-5'"
            if name.startswith("model")
            else "pass a function that creates its objects when it is called"
        )
        raise SpecError(
            f"{name}: can't be sent to Ray's workers ({excerpt(str(error))}); {instead}"
        ) from error


class _StoreActor:
    """An actor that opens the store when it is used first."""

    def __init__(self, kit: WorkerConfig) -> None:
        self._kit = kit
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()

    async def _open_store(self) -> tuple[Store, BatchLease]:
        # The driver has created the store. If its file is missing, this is another machine.
        opening = open_store(self._kit.store, create=False)
        store = await self._open.enter_async_context(opening)
        # The driver's lease, under which this process writes to the batch.
        return store, store.share_batch_lease(self._kit.batch, *self._kit.lease)

    async def close(self) -> None:
        """Close the store."""
        await self._open.aclose()


class LimiterActor(_StoreActor):
    """An actor that keeps the model calls of all workers within the batch's limits.

    After a restart, it continues from the usage in the store.
    """

    _limiter: Limiter | None = None

    async def ask(self, method: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        """Return the result of a method of the limiter, or the error that it raises."""
        found = getattr(await self._ensure_open(), method)(*given, **named)
        try:
            return await found if isawaitable(found) else found
        except (ModelUnavailableError, PausedError) as error:
            return error

    async def paused(self, why: str | None) -> str | None:
        """Stop new calls if a reason is given. Return the reason why no calls start, or None."""
        limiter = await self._ensure_open()
        if why is not None:
            limiter.pause(why)
        return limiter.paused

    async def _ensure_open(self) -> Limiter:
        async with self._opening:
            if self._limiter is None:
                kit = self._kit
                store, lease = await self._open_store()
                try:
                    row = await known_batch(store, kit.batch)
                    used = await read_usage_before(store, kit.batch)
                except BaseException:
                    # The next call opens it again.
                    await self.close()
                    raise
                self._limiter = Limiter(kit.limits, used, row.seconds, kit.patience)
                watching = asyncio.create_task(self._watch(lease, self._limiter))
                self._open.callback(watching.cancel)
            return self._limiter

    async def _watch(self, lease: BatchLease, limiter: Limiter) -> None:
        """Stop new calls once the driver, which may be suspended, has lost the batch."""
        while True:
            await asyncio.sleep(BEAT)
            try:
                await lease.check()
            except StoreError:
                continue  # The next check may succeed.
            except LostBatchError as error:
                return limiter.pause(str(error))


class RemoteGate:
    """A gate that asks the limiter in another process."""

    def __init__(self, kit: WorkerConfig, limiter: str) -> None:
        self.needs_prices = kit.limits.max_cost is not None
        self._limiter: Any = ray.get_actor(limiter)

    async def _ask(self, what: str, method: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        with _ray_errors(what):
            found = await self._limiter.ask.remote(method, *given, **named)
        if isinstance(found, DuologueError):
            raise found
        return found

    async def enter(self, call: PlannedCall) -> int:
        """See `Gate.enter`."""
        found: int = await self._ask("Asking for a model call", "enter", call)
        return found

    def count(self, model: str, used: Usage) -> None:
        """See `Gate.count`."""
        self._limiter.ask.remote("count", model, used)

    def refused(self, model: str, seconds: float | None) -> None:
        """See `Gate.refused`."""
        self._limiter.ask.remote("refused", model, seconds)

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        """See `Gate.report_outage`."""
        given = (model, why, seconds)
        found: int | None = await self._ask(
            "Reporting a server that is down", "report_outage", *given, is_reached=is_reached
        )
        return found

    def end_outage(self, model: str, number: int) -> None:
        """See `Gate.end_outage`."""
        self._limiter.ask.remote("end_outage", model, number)


class WorkerActor(_StoreActor):
    """An actor that runs cells in a separate process."""

    _worker: Worker | None = None

    def __init__(self, kit: WorkerConfig, limiter: str) -> None:
        super().__init__(kit)
        gc.set_threshold(*COLLECTED)
        for name, value in kit.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._gate = RemoteGate(kit, limiter)

    async def ready(self) -> None:
        """Open the store."""
        await self._ensure_open()

    async def run(self, cell: Cell) -> CellRow:
        """See `Worker.run`."""
        return await (await self._ensure_open()).run(cell)

    async def _ensure_open(self) -> Worker:
        async with self._opening:
            if self._worker is None:
                store, lease = await self._open_store()
                settings = await asyncio.to_thread(load_settings)
                self._worker = Worker(lease, store, self._gate, settings, self._kit.rules)
            return self._worker


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
            with _ray_errors("Starting a Ray worker"):
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
            with _ray_errors(f"Running {cell.session} on Ray"):
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
            with _ray_errors("Asking Ray's limiter"):
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
        with _ray_errors("Asking Ray's limiter"):
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
    kit = _pack_config(worker, limits, settings.patience)
    # Joining takes seconds, and must not block the event loop.
    await asyncio.to_thread(_join, address)
    try:
        machines = len([node for node in ray.nodes() if node["Alive"]])
        if url.startswith("sqlite:") and machines > 1:
            raise SpecError(
                f"ray: the {machines} machines of the cluster can't share {url}; store the "
                "sessions in PostgreSQL (--store postgresql://…)"
            )
        cores = int(ray.cluster_resources().get("CPU", 1))
        crew = RayExecutor(kit, max(1, min(cores, concurrency)), concurrency)
        try:
            yield crew
        finally:
            await crew.close()
    finally:
        await asyncio.to_thread(_leave)
