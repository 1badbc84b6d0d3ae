"""The driver of a batch: it chooses the cells to run, runs several at once, and stops on errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Protocol

from langchain_core.utils.iter import batch_iterate
from pydantic import JsonValue

from ..common.errors import BatchError, SpecError, StoreError
from ..store.batches import BatchRow, CellRow
from ..store.errors import LostBatchError
from ..store.open import Store
from ..store.session_lease import BatchLease
from .cells import Cell, Cells, RunCells
from .limiter import PATIENCE, Figures, Limiter
from .order import RunOrder, Selection
from .scores import ScoreFunction
from .values import canonical_json
from .worker import EncloseFunction, ExamineFunction, Worker


class CellExecutor(Protocol):
    """An executor of cells, under the batch's limits. It can run several cells at once."""

    async def run(self, cell: Cell) -> CellRow:
        """Run a cell as far as possible, and return its row.

        Raises:
            StoreError: The store fails.
            ModelUnavailableError: A model is not available, which stops the whole batch.
        """
        ...

    async def pause(self, why: str) -> None:
        """Stop new model calls. Calls that have started are finished."""

    async def paused(self) -> str | None:
        """Return the reason why no new model calls start, or None if calls may start."""

    async def pace(self) -> Figures:
        """Return the current figures of the batch."""
        ...


class LocalExecutor:
    """An executor that runs cells on this process's event loop."""

    def __init__(self, worker: Worker, limiter: Limiter) -> None:
        self._limiter = limiter
        self.run = worker.run

    async def pause(self, why: str) -> None:
        """See `CellExecutor.pause`."""
        self._limiter.pause(why)

    async def paused(self) -> str | None:
        """See `CellExecutor.paused`."""
        return self._limiter.paused

    async def pace(self) -> Figures:
        """See `CellExecutor.pace`."""
        return self._limiter.figures()


_WINDOW: Final = 500
"""Number of cells that are looked up in the store at a time."""

_ALIKE: Final = 10
"""Minimum number of consecutive cells that must fail with the same error to stop the batch."""

BEAT: Final = 5.0
"""Interval in seconds at which a run records its running time and checks its lease."""


CONCURRENCY: Final = 20
"""The default number of sessions of a batch that run at once."""


@dataclass(frozen=True)
class BatchSettings:
    """The settings of a batch's run. `run_batch` describes them."""

    name: str | None = None
    concurrency: int = CONCURRENCY
    retry_failed: bool = False
    ray: str | None = None
    patience: float = PATIENCE
    scores: Mapping[str, ScoreFunction] | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None
    shuffle: bool | None = None
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    """Facts that are stored with the batch. A later run can add facts, but not change them."""
    examine: ExamineFunction | None = None
    """The function that judges each session that has ended, or None."""
    enclose: EncloseFunction | None = None
    """The function within which each session is run and judged, or None."""
    second_judge: str | None = None
    """The name of a second model that judges each session that has ended, or None."""
    title: str | None = None
    """The title of the batch. An empty text is no title. If None, the title of its conversations,
    if all have the same."""


def select_cells(cells: Cells, settings: BatchSettings, known: Selection | None = None) -> RunCells:
    """Return the cells of a run.

    Args:
        cells: All cells of the grid.
        settings: The settings of the run.
        known: The stored selection of a batch that is resumed, or None.

    Raises:
        SpecError: Two options exclude each other; the message names them.
        BatchError: The batch was begun with another order, or cannot be sampled.
    """
    sample, seed, shuffle = settings.sample, settings.seed, settings.shuffle
    for name, value in (("seed", seed), ("sample", sample)):
        if shuffle is False and value is not None:
            raise SpecError(
                f"{name}: needs the shuffled order; leave out {name}, or shuffle=False "
                "(--no-shuffle)"
            )
    sizes = tuple(len(axis.rows) for axis in cells.grid.axes)
    if known is None:
        seed = None if shuffle is False else seed or 0
    else:
        _check_order(cells.name, known, seed, shuffle)
        _check_sample(cells, known, sample)
        seed, sample = known.order.seed, sample or known.sample
    order = RunOrder(sizes=sizes, trials=cells.trials, seed=seed)
    values = None if sample is None else _digest_values(cells)
    return RunCells(cells, Selection(order=order, sample=sample, values=values), settings.limit)


def _digest_values(cells: Cells) -> str:
    """Return a digest of all values, in their order."""
    digest = sha256()
    for axis in cells.grid.axes:
        for row in range(len(axis.rows)):
            digest.update(canonical_json(axis.varied(row)).encode())
    return digest.hexdigest()


def _check_order(name: str, known: Selection, seed: int | None, shuffle: bool | None) -> None:
    was = known.order.seed
    if seed not in (None, was) or shuffle not in (None, was is not None):
        order = "in the order of their numbers" if was is None else f"in the order of seed {was}"
        raise BatchError(
            f"Batch {name!r} runs its sessions {order}; leave out seed and shuffle, or choose "
            "another name."
        )


def _check_sample(cells: Cells, known: Selection, sample: int | None) -> None:
    if known.sample is None:
        if sample is not None:
            raise BatchError(
                f"Batch {cells.name!r} was begun with all sessions, not with a sample; use limit, "
                "or choose another name."
            )
        return
    told = f"Batch {cells.name!r} was begun with a sample of {known.sample:,} sessions"
    if known.values != _digest_values(cells):
        raise BatchError(
            f"{told}, so its values can't change; restore them, or choose another name."
        )
    if sample is not None and sample < known.sample:
        raise BatchError(
            f"{told}, which can only grow; pass a larger sample, or choose another name."
        )


@dataclass
class Driver:
    """A run of a batch: it runs the cells that have not ended, several at once."""

    store: Store
    lease: BatchLease
    row: BatchRow
    cells: RunCells
    """The cells of the run, in the order in which they run."""
    crew: CellExecutor
    settings: BatchSettings
    scores: tuple[str, ...]
    """The names of the batch's scores. A cell that has ended but lacks a score is scored in
    this run.
    """
    told: Callable[[CellRow], None] | None = None
    """A function that receives the row of each cell after its run, or None."""
    _error: Exception | None = None
    _alike: tuple[str | None, int] = (None, 0)
    """The error of the cell that failed last, and the number of cells in a row that failed with it.
    """
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> BatchRow:
        """Run all cells that have not ended, or as many as limits and errors allow.

        Raises:
            BatchError: Many cells in a row failed with the same error, or another run took the
                batch over.
            ModelUnavailableError: A model is not available, which stops the whole batch.
            StoreError: The store fails.
        """
        todo = self._to_run()
        async with self._clock():
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.settings.concurrency):
                    workers.create_task(self._work(todo))
            paused = await self.crew.paused()
        self.row = self.row.model_copy(update={"stopped": paused or self.cells.reached_limit})
        try:
            await self.lease.put(self.row)
        except (StoreError, LostBatchError) as error:
            self._error = self._error or error
        if self._error is not None:
            raise self._error
        return self.row

    async def _work(self, todo: AsyncIterator[Cell]) -> None:
        try:
            while await self.crew.paused() is None:
                async with self._taking:
                    cell = await anext(todo, None)
                if cell is None:
                    return
                await self._note(await self.crew.run(cell))
        except Exception as error:
            # The other workers finish their calls, even if the rows are no longer received.
            await self._stop(error)

    async def _note(self, row: CellRow) -> None:
        if self.told is not None:
            self.told(row)
        told, many = self._alike
        failed = row.error if row.status == "failed" else None
        many = many + 1 if failed is not None and failed == told else 1
        self._alike = failed, many
        if failed is not None and many >= max(_ALIKE, self.settings.concurrency):
            await self._stop(
                BatchError(
                    f"Batch {self.row.batch!r} stopped: {many} sessions in a row failed with the "
                    f"same error: {failed}"
                )
            )

    async def _stop(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            await self.crew.pause(str(error) or type(error).__name__)

    async def _to_run(self) -> AsyncIterator[Cell]:
        """Yield the cells to run. The rows of other cells do not change."""
        for window in batch_iterate(_WINDOW, self.cells):
            sessions = [cell.session for cell in window]
            known = await self.store.batches.known(self.row.batch, sessions)
            for cell in window:
                row = known.get(cell.session)
                if row is None or self._is_open(row):
                    yield cell
                elif row.number != cell.number:
                    # The batch has grown, which changes the cells' numbers.
                    moved = row.model_copy(update={"number": cell.number})
                    await self.lease.put_cell(moved)

    def _is_open(self, row: CellRow) -> bool:
        if row.status == "finished":
            return not all(row.has_score(name) for name in self.scores)
        return self.settings.retry_failed or row.status != "failed"

    @asynccontextmanager
    async def _clock(self) -> AsyncIterator[None]:
        """Record the batch's running time at intervals and at the end."""
        before, began = self.row.seconds, time.monotonic()

        def tell() -> None:
            ran = {"seconds": before + time.monotonic() - began, "updated_at": datetime.now(UTC)}
            self.row = self.row.model_copy(update=ran)

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT)
                tell()
                try:
                    await self.lease.put(self.row)
                except StoreError:
                    continue  # The next beat tries again.
                except LostBatchError as error:
                    return await self._stop(error)

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            tell()
