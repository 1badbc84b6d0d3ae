"""The cells that a batch runs: all of them or a sample, and up to a limit."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from ..common.errors import BatchError, SpecError
from .cells import Cell, Cells
from .order import RunOrder, Selection
from .values import canonical_json


@dataclass(frozen=True)
class RunCells:
    """The cells of one run, in the order in which they run. Each cell is made on demand."""

    cells: Cells
    """All cells of the grid."""
    selection: Selection
    """The cells of the batch."""
    limit: int | None = None
    """Maximum number of cells that the batch has run at the end of this run. No limit if None."""

    def __len__(self) -> int:
        """Return the number of cells, including those that have ended in earlier runs."""
        return min(self.limit or self.selection.cells, self.selection.cells)

    def __iter__(self) -> Iterator[Cell]:
        """Yield the cells."""
        return map(self.cells.cell, self.numbers())

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the cells."""
        return self.selection.order.numbers(len(self))

    @property
    def is_whole(self) -> bool:
        """True if the run has all cells of the grid."""
        return len(self) == self.cells.count

    def reached_limit(self) -> str | None:
        """Return the reason why the run ends before all cells of the batch have run, or None."""
        if len(self) == self.selection.cells:
            return None
        return f"limit of {len(self):,} {'cell' if len(self) == 1 else 'cells'} is reached"


def select_cells(
    cells: Cells,
    known: Selection | None = None,
    *,
    limit: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    shuffle: bool | None = None,
) -> RunCells:
    """Return the cells of a run. `run_batch` describes the options.

    Args:
        cells: All cells of the grid.
        known: The stored selection of a batch that is resumed, or None.
        limit: Maximum number of cells that have run at the end.
        sample: Size of the sample.
        seed: The seed of the order.
        shuffle: Whether the order is shuffled.

    Raises:
        SpecError: Two options exclude each other; the message names them.
        BatchError: The batch was begun with another order, or cannot be sampled.
    """
    if shuffle is False and seed is not None:
        raise SpecError(
            "seed: needs the shuffled order; leave out seed, or shuffle=False (--no-shuffle)"
        )
    if shuffle is False and sample is not None:
        raise SpecError(
            "sample: needs the shuffled order; leave out sample, or shuffle=False (--no-shuffle)"
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
    return RunCells(cells, Selection(order=order, sample=sample, values=values), limit)


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
            f"Batch {name!r} runs its cells {order}; leave out seed and shuffle, or choose "
            "another name."
        )


def _check_sample(cells: Cells, known: Selection, sample: int | None) -> None:
    if known.sample is None:
        if sample is not None:
            raise BatchError(
                f"Batch {cells.name!r} was begun with all cells, not with a sample; use limit, or "
                "choose another name."
            )
        return
    told = f"Batch {cells.name!r} was begun with a sample of {known.sample:,} cells"
    if known.values != _digest_values(cells):
        raise BatchError(
            f"{told}, so its values can't change; restore them, or choose another name."
        )
    if sample is not None and sample < known.sample:
        raise BatchError(
            f"{told}, which can only grow; pass a larger sample, or choose another name."
        )
