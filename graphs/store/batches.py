"""Batches in a store: one row for each batch, and one for each cell that has begun.

A cell is one conversation of a batch.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import (
    AwareDatetime,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

from ..common.data import Data, WithTokens, sum_known
from ..common.errors import SpecError
from .lease import Lease

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")

CellStatus = Literal["running", "paused", "waiting", "failed", "finished"]
"""The status of a cell: it runs, is paused, waits for a person, has failed, or has ended."""


class BatchRow(Data):
    """The row of a batch."""

    batch: str
    """The batch's name."""
    title: str
    """The title of the batch's conversations."""
    spec: str
    """The fixed part of the batch, as JSON text: the conversation, and the paths that vary."""
    settings: str
    """The settings that may change at each run, as JSON text: limits, scores, trials."""
    cells: NonNegativeInt
    """Number of cells in the batch, including cells that have not begun."""
    seconds: NonNegativeFloat = 0
    """Running time of all runs of the batch together, in seconds."""
    stopped: str | None = None
    """The reason, in a sentence, why the latest run stopped before all cells had ended. None if it
    did not."""
    created_at: AwareDatetime
    """The time when the row was added, in UTC."""
    updated_at: AwareDatetime
    """The time when the row last changed, in UTC."""


class CellRow(WithTokens, Data):
    """The row of one cell of a batch, which can be read without its session."""

    batch: str
    """The batch's name."""
    number: PositiveInt
    """The position of the cell in the batch, from 1."""
    session: str
    """The id of the cell's session."""
    trial: PositiveInt = 1
    """The number of the trial, from 1. A batch may try the same values several times."""
    varied: dict[str, JsonValue] = Field(default_factory=dict)
    """The values of the varied paths and of the labels, by path."""
    status: CellStatus = "running"
    """The status of the cell."""
    reason: str | None = None
    """The reason for the end of the conversation. None if it has not ended."""
    error: str | None = None
    """The reason in a sentence why the cell failed, or why a finished cell lacks scores. None if
    neither is the case."""
    complete: bool | None = None
    """Whether the task was judged complete. None if no judge was asked."""
    rounds: NonNegativeInt = 0
    """Number of complete rounds."""
    messages: NonNegativeInt = 0
    """Number of messages of the speakers."""
    calls: NonNegativeInt = 0
    """Number of answered model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers."""
    cost: NonNegativeFloat | None = None
    """Total cost of the calls whose prices are known. None if no price is known."""
    seconds: NonNegativeFloat = 0
    """Running time of the cell, in seconds of wall time."""
    scores: dict[str, float] = Field(default_factory=dict)
    """The scores of the cell, by name; yes is 1 and no is 0."""
    updated_at: AwareDatetime
    """The time when the row last changed, in UTC."""

    def has_score(self, name: str) -> bool:
        """Return whether the cell has a score of this name, or scores from a dict of this name."""
        return name in self.scores or any(one.startswith(f"{name}.") for one in self.scores)


class CellsWanted(Data):
    """A filter for cells of a batch, which are returned by ascending number."""

    batch: str
    """The batch's name."""
    status: CellStatus | None = None
    """The status of the cells. Any if None."""
    reason: str | None = None
    """The reason for the end of the cells. Any if None."""
    after: tuple[int, str] = (0, "")
    """The number and the session of a cell: only cells after this one are returned."""
    limit: PositiveInt = 500
    """Maximum number of cells."""

    def has(self, row: CellRow) -> bool:
        """Return whether a cell matches."""
        return (
            self.status in (None, row.status)
            and self.reason in (None, row.reason)
            and (row.number, row.session) > self.after
        )


class CellCount(WithTokens, Data):
    """Number and total usage of the cells of a batch with the same status and reason."""

    status: CellStatus
    """The status of these cells."""
    reason: str | None
    """The reason for the end of these cells. None if they have not ended."""
    cells: NonNegativeInt
    """Number of cells."""
    messages: NonNegativeInt
    """Number of messages of the speakers."""
    calls: NonNegativeInt
    """Number of answered model calls."""
    input_tokens: NonNegativeInt
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt
    """Tokens of the answers."""
    cost: NonNegativeFloat | None
    """Total cost of the calls whose prices are known. None if no price is known."""


def add_counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the fields in `SUMMED`."""
    found = list(rows)
    counts = {name: sum(row[name] for row in found) for name in SUMMED if name != "cost"}
    return {**counts, "cost": sum_known(row["cost"] for row in found)}


SUMMED: Final = ("messages", "calls", "input_tokens", "output_tokens", "cost")
"""The fields of a `CellCount` that are sums."""


class Batches(ABC):
    """The batches of a store, for reading.

    Every method raises `StoreError` if the database fails.
    """

    @abstractmethod
    async def get(self, batch: str) -> BatchRow | None:
        """Return the row of a batch, or None if there is no such batch."""

    @abstractmethod
    async def list(self) -> Sequence[BatchRow]:
        """Return every batch, newest first."""

    @abstractmethod
    async def known(self, batch: str, sessions: Sequence[str]) -> Mapping[str, CellRow]:
        """Return the rows of the cells with these sessions, by session; some may have no row."""

    @abstractmethod
    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """Return the cells that match the filter, by ascending number."""

    @abstractmethod
    async def count(self, batch: str) -> Sequence[CellCount]:
        """Return the number of cells for each status and reason."""

    async def each(self, wanted: CellsWanted) -> AsyncIterator[CellRow]:
        """Yield all cells that match the filter; they are read in several portions."""
        while rows := await self.find(wanted):
            for row in rows:
                yield row
            wanted = wanted.model_copy(update={"after": (rows[-1].number, rows[-1].session)})


class BatchLease(ABC):
    """A lease on a batch, under which its rows are written.

    Get one from `Store.lock_batch`. Each method raises `LostBatchError`, without writing, if the
    lease is lost, and `StoreError` if the database fails.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    @property
    def batch(self) -> str:
        """Return the batch's name."""
        return self.lease.subject.name

    @abstractmethod
    async def put(self, row: BatchRow) -> None:
        """Add the batch's row, or replace it."""

    @abstractmethod
    async def put_cell(self, row: CellRow) -> None:
        """Add the row of a cell, or replace it."""

    @abstractmethod
    async def delete(self) -> None:
        """Delete the batch with its cells; the sessions stay."""

    @abstractmethod
    async def check(self) -> None:
        """Raise an error if the lease is lost."""

    async def drain(self) -> None:
        """Await the writes in progress."""
        await self.lease.drain()


def check_batch_name(name: str) -> str:
    """Return `name` if it is a valid name of a batch; the session ids begin with it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"name: {name!r} is not a valid name of a batch; use 1 to 100 of A-Z a-z 0-9 . _ -"
        )
    return name
