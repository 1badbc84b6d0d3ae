"""The cells of a batch: which sessions it has, each with its values filled in. Pure functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pydantic import JsonValue

from ..common.errors import SpecError
from ..conversation.conversation import Conversation
from ..conversation.defaults import Default
from ..conversation.fields import SPEC_VERSION
from ..store.batches import check_batch_name
from .grid import Grid, conversation_of, set_values
from .spec import Batch
from .values import canonical_json

MOST_CELLS: Final = 1_000_000_000
"""The most cells: more would be a mistake, and a number that not all stores can keep."""


@dataclass(frozen=True)
class Cell:
    """One session of a batch."""

    number: int
    """Its place in the batch, from 1."""
    session: str
    """The session's id, made of the batch's name and of what varies."""
    trial: int
    """Which of the trials of its values it is, from 1."""
    varied: Mapping[str, JsonValue]
    """The values of what varies, by path; labels, too. What its row leaves empty is not there."""
    data: Mapping[str, Any]
    """The conversation as data, with the values filled in."""
    is_made: bool = False
    """Whether the batch was given a `Conversation`: what nobody set is marked in its data."""

    def conversation(self) -> Conversation:
        """Make the conversation.

        Raises:
            SpecError: The values do not fit together; names the field.
        """
        return conversation_of(self.data, is_made=self.is_made)


@dataclass(frozen=True)
class Cells:
    """All cells of a batch, each made as it is asked for.

    The first of the fields that vary changes slowest, and the trials fastest.
    """

    name: str
    """The batch's name."""
    grid: Grid
    """The combinations of values."""
    trials: int
    """How many sessions each combination has."""
    seed: int | None
    """The seed of the first trial, if the batch gives one."""

    @classmethod
    def of(cls, batch: Batch, name: str) -> "Cells":
        """Read the values of a batch.

        A ``.txt`` or ``.csv`` file knows nothing but text. The texts of a column are read as JSON,
        where they are such, if the conversation takes them only so, or in the same meaning both
        ways; the first of them that is JSON decides for all. A label stays text. An empty cell of
        a ``.csv`` file leaves the field as the conversation has it.

        Args:
            batch: The batch. Files that it names are looked for in the working folder.
            name: What it is called.

        Raises:
            SpecError: The name can't be a batch's, a file can't be read, a row does not fit, a
                field is given twice, or two rows are the same; names the field and the row.
        """
        check_batch_name(name)
        cells = cls(name, Grid.of(batch), batch.trials, batch.seed)
        if cells.count > MOST_CELLS:
            raise SpecError(f"vary: makes {cells.count:,} sessions; the most are {MOST_CELLS:,}")
        if batch.seed is not None and ("seed",) in cells.grid.places.values():
            raise SpecError("vary.seed: the batch's seed sets the same: give only one of them")
        return cells

    @property
    def count(self) -> int:
        """How many they are."""
        return self.grid.combinations * self.trials

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of what varies, labels included."""
        return self.grid.paths

    @property
    def spec(self) -> str:
        """What makes the batch this batch, as canonical JSON: all but the values and trials."""
        known = {"conversation": set_values(self.grid.base.data), "vary": sorted(self.paths)}
        return canonical_json({**known, "seed": self.seed, "version": SPEC_VERSION})

    def __len__(self) -> int:
        """Say how many they are."""
        return self.count

    def __iter__(self) -> Iterator[Cell]:
        """Give all, one by one."""
        return self.each()

    def each(self, first: int = 1) -> Iterator[Cell]:
        """Return all from a number on, one by one."""
        return map(self.cell, range(first, self.count + 1))

    def cell(self, number: int) -> Cell:
        """Make the cell of this number, from 1."""
        if not 1 <= number <= self.count:
            raise IndexError(f"there is no cell {number}: they are {self.count}")
        combination, place = divmod(number - 1, self.trials)
        trial = place + 1
        varied = self.grid.varied(self.grid.rows(combination))
        data = self.grid.filled(varied)
        seed = self._seed(data, trial)
        if seed is not None:
            data = {**data, "seed": seed}
        digest = sha256(canonical_json({"varied": varied, "trial": trial}).encode()).hexdigest()
        session = f"{self.name}-{digest[:16]}"
        return Cell(number, session, trial, varied, data, self.grid.base.is_made)

    def _seed(self, data: Mapping[str, Any], trial: int) -> int | None:
        """Return the seed of a trial. None: what the conversation has holds."""
        if self.seed is not None:
            return self.seed + trial - 1
        own = data.get("seed")
        own = own.value if isinstance(own, Default) else own
        if trial == 1 or not isinstance(own, int | None):
            return None
        return (own or 0) + trial - 1
