"""The cells of a batch, its sessions with their values filled in, and the cells of one run."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from pydantic import JsonValue

from ..common.errors import SpecError
from ..conversation.conversation import Conversation
from ..conversation.conversation_options import FilledIn
from ..conversation.fields import SPEC_VERSION
from ..store.batches import check_batch_name
from .grid import Grid, conversation_of, set_values
from .order import Selection
from .spec import Batch
from .values import canonical_json

MOST_CELLS: Final = 1_000_000_000
"""Maximum number of cells. A larger number is a mistake, and not all stores can keep it."""


@dataclass(frozen=True)
class Cell:
    """One session of a batch."""

    number: int
    """The cell's place in the batch, from 1."""
    session: str
    """The session's id, made from the batch's name and the values."""
    trial: int
    """The number of the trial of these values, from 1."""
    varied: Mapping[str, JsonValue]
    """The values of the fields that vary, by path. Labels are included. Values that a row leaves
    out are not.
    """
    data: Mapping[str, Any]
    """The conversation as data, with the values filled in."""
    is_made: bool = False
    """Whether the batch's conversation is a `Conversation` object. If so, `data` marks the values
    that are defaults.
    """

    def conversation(self) -> Conversation:
        """Build the conversation.

        Raises:
            SpecError: The values do not fit together; the message names the field.
        """
        return conversation_of(self.data, is_made=self.is_made)


@dataclass(frozen=True)
class Cells:
    """All cells of a batch. Each cell is made on demand.

    The first field that varies changes slowest, the trials change fastest.
    """

    name: str
    """The batch's name."""
    grid: Grid
    """The combinations of values."""
    trials: int
    """Number of sessions for each combination."""
    seed: int | None
    """The seed of the first trial. None if the batch does not set it."""

    @classmethod
    def of(cls, batch: Batch, name: str) -> "Cells":
        """Read the values of a batch.

        In ``.txt`` and ``.csv`` files, numbers and booleans are read for fields of these types. A
        column of a ``.csv`` file whose name ends with ``:json`` contains JSON. All other values,
        and labels, are texts. An empty cell of a ``.csv`` file leaves the field unchanged.

        Args:
            batch: The batch. Paths of files are relative to the working folder.
            name: The batch's name.

        Raises:
            SpecError: The name is not valid, a file cannot be read, a row does not fit, a field is
                given twice, or two rows are the same; the message names the field and the row.
        """
        check_batch_name(name)
        cells = cls(name, Grid.of(batch), batch.trials, batch.seed)
        if cells.count > MOST_CELLS:
            raise SpecError(
                f"vary: makes {cells.count:,} sessions, more than {MOST_CELLS:,}; vary fewer values"
            )
        if batch.seed is not None and ("seed",) in cells.grid.places.values():
            raise SpecError("vary.seed: the batch's seed is set as well; set only one of them")
        return cells

    @property
    def count(self) -> int:
        """Number of cells. `len` fails for a number that is far too large."""
        return self.grid.combinations * self.trials

    @property
    def spec(self) -> str:
        """The batch's identity as canonical JSON: everything except the values and trials."""
        known = {"conversation": set_values(self.grid.base.data), "vary": sorted(self.grid.paths)}
        return canonical_json({**known, "seed": self.seed, "version": SPEC_VERSION})

    def __len__(self) -> int:
        """Return the number of cells."""
        return self.count

    def __iter__(self) -> Iterator[Cell]:
        """Yield all cells."""
        return map(self.cell, range(1, self.count + 1))

    def cell(self, number: int) -> Cell:
        """Return the cell with this number, from 1."""
        if not 1 <= number <= self.count:
            raise IndexError(
                f"there is no session {number}; the batch has the sessions 1 to {self.count}"
            )
        combination, place = divmod(number - 1, self.trials)
        trial = place + 1
        varied = self.grid.varied(self.grid.rows(combination))
        data = self.grid.fill(varied)
        seed = self._seed(data, trial)
        if seed is not None:
            data = {**data, "seed": seed}
        digest = sha256(canonical_json({"varied": varied, "trial": trial}).encode()).hexdigest()
        session = f"{self.name}-{digest[:16]}"
        return Cell(number, session, trial, varied, data, self.grid.base.is_made)

    def _seed(self, data: Mapping[str, Any], trial: int) -> int | None:
        """Return the seed of a trial, or None to keep the conversation's seed."""
        if self.seed is not None:
            return self.seed + trial - 1
        own = data.get("seed")
        own = own.value if isinstance(own, FilledIn) else own
        if trial == 1 or not isinstance(own, int | None):
            return None
        return (own or 0) + trial - 1


_LOOKED_AT: Final = 1000


def iter_first(cells: Cells) -> Iterator[Conversation]:
    """Yield the conversations of the first cells, without those whose values do not fit."""
    for cell in islice(cells, 0, _LOOKED_AT * cells.trials, cells.trials):
        with suppress(SpecError):
            yield cell.conversation()


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
        return map(self.cells.cell, self.selection.order.numbers(len(self)))

    @property
    def is_whole(self) -> bool:
        """True if the run has all cells of the grid."""
        return len(self) == self.cells.count

    @property
    def reached_limit(self) -> str | None:
        """The reason why the run ends before all cells of the batch have run, or None."""
        if len(self) == self.selection.cells:
            return None
        return f"limit of {len(self):,} {'session' if len(self) == 1 else 'sessions'} is reached"
