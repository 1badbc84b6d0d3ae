"""Who runs the cells of a batch: coroutines of this process, or workers elsewhere."""

from typing import Protocol

from ..store.batches import CellRow
from .cells import Cell
from .limiter import Figures, Limiter
from .worker import Worker


class Crew(Protocol):
    """Runs cells, as many at once as it is given, under the limits of their batch."""

    async def run(self, cell: Cell) -> CellRow:
        """Run a cell as far as it goes, and give its row.

        Raises:
            StoreError: The store fails.
            ModelUnavailableError: A model can't be had, whatever the cell.
        """
        ...

    async def pause(self, why: str) -> None:
        """Let no more model calls begin; those under way are finished."""

    async def paused(self) -> str | None:
        """Say why no more model calls begin; None: they do."""

    async def pace(self) -> Figures:
        """Say how fast it goes."""
        ...


class LocalCrew:
    """Runs cells on this process's event loop."""

    def __init__(self, worker: Worker, limiter: Limiter) -> None:
        self._limiter = limiter
        self.run = worker.run

    async def pause(self, why: str) -> None:
        """See `Crew.pause`."""
        self._limiter.pause(why)

    async def paused(self) -> str | None:
        """See `Crew.paused`."""
        return self._limiter.paused

    async def pace(self) -> Figures:
        """See `Crew.pace`."""
        return self._limiter.figures()
