"""What a store keeps of batches: a row for each, and one for each of its cells that has begun."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Literal

from pydantic import (
    AwareDatetime,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

from ..common.data import Data
from ..common.errors import SpecError
from .lease import Lease

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")

CellStatus = Literal["running", "paused", "waiting", "failed", "finished"]
"""Whether a cell runs, was paused, waits for a person, has failed, or has ended by its rules."""


class BatchRow(Data):
    """What is known of a batch."""

    batch: str
    """Its name."""
    title: str
    """What its conversations are about."""
    spec: str
    """What makes it this batch, as JSON text: the conversation, and the paths that vary."""
    settings: str
    """What may be other at each run, as JSON text: limits, scores, trials."""
    cells: NonNegativeInt
    """How many cells it has, those that have not begun included."""
    seconds: NonNegativeFloat = 0
    """How long it has run, of all its runs together."""
    stopped: str | None = None
    """Why its latest run stopped before all cells had ended, in a sentence."""
    created_at: AwareDatetime
    """When the row was added, UTC."""
    updated_at: AwareDatetime
    """When the row last changed, UTC."""


class CellRow(Data):
    """What is known of one cell of a batch without reading its session."""

    batch: str
    """The batch's name."""
    number: PositiveInt
    """Its place in the batch, from 1."""
    session: str
    """The session's id."""
    trial: PositiveInt = 1
    """Which of the trials of its values it is, from 1."""
    varied: dict[str, JsonValue] = Field(default_factory=dict)
    """The values of what varies, by path; labels, too."""
    status: CellStatus = "running"
    """Whether it runs, was paused, waits, has failed or ended."""
    reason: str | None = None
    """Why it ended; None where it has not."""
    error: str | None = None
    """Why it failed, or why a finished one has scores missing, in a sentence."""
    complete: bool | None = None
    """Whether its task was judged complete. None: nobody judged it."""
    rounds: NonNegativeInt = 0
    """Complete rounds."""
    messages: NonNegativeInt = 0
    """Messages said by the speakers."""
    calls: NonNegativeInt = 0
    """Answered model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers."""
    cost: NonNegativeFloat = 0
    """What the calls cost, where the prices are known."""
    seconds: NonNegativeFloat = 0
    """Seconds of wall time in which it ran."""
    scores: dict[str, float] = Field(default_factory=dict)
    """Its scores, by name; yes is 1 and no is 0."""
    updated_at: AwareDatetime
    """When the row last changed, UTC."""


class CellsWanted(Data):
    """Which cells of a batch are looked for, in the order of their numbers."""

    batch: str
    """The batch's name."""
    status: CellStatus | None = None
    """Their status."""
    reason: str | None = None
    """Why they ended."""
    after: tuple[int, str] = (0, "")
    """The number and the session of the cell that they come after."""
    limit: PositiveInt = 500
    """How many, at most."""

    def has(self, row: CellRow) -> bool:
        """Return whether a cell is one of them."""
        return (
            self.status in (None, row.status)
            and self.reason in (None, row.reason)
            and (row.number, row.session) > self.after
        )


class CellCount(Data):
    """How many cells of a batch stand alike, and what they have used together."""

    status: CellStatus
    """Their status."""
    reason: str | None
    """Why they ended; None where they have not."""
    cells: NonNegativeInt
    """How many they are."""
    messages: NonNegativeInt
    """Messages said by the speakers."""
    calls: NonNegativeInt
    """Answered model calls."""
    input_tokens: NonNegativeInt
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt
    """Tokens of the answers."""
    cost: NonNegativeFloat
    """What the calls cost."""


SUMMED: Final = ("messages", "calls", "input_tokens", "output_tokens", "cost")
"""The fields of a `CellCount` that are sums."""


class Batches(ABC):
    """The batches of a store, to be read.

    Every method raises `StoreError` when the database fails.
    """

    @abstractmethod
    async def get(self, batch: str) -> BatchRow | None:
        """Return the row of a batch, or None if there is no such batch."""

    @abstractmethod
    async def list(self) -> Sequence[BatchRow]:
        """Return every batch, newest first."""

    @abstractmethod
    async def known(self, batch: str, sessions: Sequence[str]) -> Mapping[str, CellRow]:
        """Return the rows that there are of these cells, by session."""

    @abstractmethod
    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """Return the cells that are wanted, in the order of their numbers."""

    @abstractmethod
    async def count(self, batch: str) -> Sequence[CellCount]:
        """Return how many cells there are of each status and reason."""

    async def each(self, wanted: CellsWanted) -> AsyncIterator[CellRow]:
        """Yield all cells that are wanted, however many, some at a time."""
        while rows := await self.find(wanted):
            for row in rows:
                yield row
            wanted = wanted.model_copy(update={"after": (rows[-1].number, rows[-1].session)})


class BatchLease(ABC):
    """A lease on a batch, under which its rows are written.

    Get one from `Store.lock_batch`. Each method raises `LostBatchError`, without writing, if the
    lease is lost, and `StoreError` when the database fails.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    @property
    def batch(self) -> str:
        """The batch's name."""
        return self.lease.subject.name

    @abstractmethod
    async def put(self, row: BatchRow) -> None:
        """Add the batch's row, or replace it."""

    @abstractmethod
    async def put_cell(self, row: CellRow) -> None:
        """Add the row of a cell, or replace it."""

    @abstractmethod
    async def delete(self) -> None:
        """Delete the rows of the batch and of its cells; their sessions stay."""

    @abstractmethod
    async def check(self) -> None:
        """Make sure that the lease is not lost."""

    async def drain(self) -> None:
        """Await the writes under way."""
        await self.lease.drain()


def check_batch_name(name: str) -> str:
    """Return `name` if a batch can be called so: the ids of its sessions begin with it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"name: {name!r} can't be a batch's name: use 1 to 100 of A-Z a-z 0-9 . _ -"
        )
    return name
