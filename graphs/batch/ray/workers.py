"""A Ray cluster, and its processes that run a batch: workers, and one limiter."""

import asyncio
import gc
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

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
from ...store.batches import BatchLease, CellRow
from ...store.errors import LostBatchError
from ...store.open import Store, open_store
from ..batch_row import read_usage_before
from ..cells import Cell
from ..driver import BEAT
from ..limiter import Limiter
from ..spec import BatchLimits
from ..status import known_batch
from ..worker import COLLECTED, CellRules, Worker

_AUTO: Final = "auto"
"""The address of the cluster on this machine, or of a cluster that is started for this batch."""

_STARTED: Final = Path("/tmp/ray/ray_current_cluster")  # noqa: S108  (it is Ray's)
"""The file in which `ray start` stores the cluster's address."""

_PATIENCE: Final = 10.0
"""Seconds to wait for the answer of a cluster."""

_lock = threading.Lock()
_users = 0
"""Number of this process's batches that use the cluster that the first of them has joined."""


@asynccontextmanager
async def join_cluster(address: str) -> AsyncIterator[None]:
    """Join a cluster within the block.

    If this process has already joined a cluster, that cluster is used.

    Raises:
        SpecError: The cluster does not exist.
    """
    # Joining takes seconds, and must not block the event loop.
    await asyncio.to_thread(_join, address)
    try:
        yield
    finally:
        await asyncio.to_thread(_leave)


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


def count_machines() -> int:
    """Return the number of machines in the cluster."""
    return len([node for node in ray.nodes() if node["Alive"]])


def count_cores() -> int:
    """Return the number of cores in the cluster."""
    return int(ray.cluster_resources().get("CPU", 1))


@contextmanager
def ray_errors(what: str) -> Iterator[None]:
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


def pack_config(worker: Worker, limits: BatchLimits, patience: float) -> WorkerConfig:
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
                row = await known_batch(store, kit.batch)
                used = await read_usage_before(store, kit.batch)
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
        with ray_errors(what):
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
