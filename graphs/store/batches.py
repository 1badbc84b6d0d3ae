"""Batches in a store: one row for each batch, and one for each cell that has begun.

A cell is one conversation of a batch.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, LiteralString, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

from ..common.data import Data, WithTokens, sum_known
from ..common.errors import SpecError
from .rows import reading_store
from .sql_tables import insert_row, select_rows

R = TypeVar("R", bound=BaseModel)

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


_BATCH: Final = select_rows("duologue_batches", BatchRow)
_CELL: Final = select_rows("duologue_cells", CellRow)
PUT_BATCH: Final = insert_row("duologue_batches", BatchRow, "batch", replace=True)
PUT_CELL: Final = insert_row("duologue_cells", CellRow, "batch", "session", replace=True)
_COUNT: Final[LiteralString] = """SELECT status, reason, COUNT(*), CAST(SUM(messages) AS BIGINT),
    CAST(SUM(calls) AS BIGINT), CAST(SUM(input_tokens) AS BIGINT),
    CAST(SUM(output_tokens) AS BIGINT), SUM(cost)
    FROM duologue_cells WHERE batch = ? GROUP BY status, reason"""
_IN_JSON: Final = ("varied", "scores")


class Batches:
    """The batches of a store, for reading.

    Every method raises `StoreError` if the database fails.
    """

    def __init__(
        self,
        url: str,
        each_of: LiteralString,
        fetch: Callable[..., Awaitable[Sequence[Sequence[Any]]]],
    ) -> None:
        self._url = url
        self._each_of = each_of
        self._fetch = fetch

    async def get(self, batch: str) -> BatchRow | None:
        """Return the row of a batch, or None if there is no such batch."""
        found = await self._read(BatchRow, _BATCH + " WHERE batch = ?", batch)
        return found[0] if found else None

    async def list(self) -> Sequence[BatchRow]:
        """Return every batch, newest first."""
        return await self._read(BatchRow, _BATCH + " ORDER BY created_at DESC, batch")

    async def known(self, batch: str, sessions: Sequence[str]) -> dict[str, CellRow]:
        """Return the rows of the cells with these sessions, by session; some may have no row."""
        # Both databases read one JSON text faster than hundreds of values.
        one_of = f" WHERE batch = ? AND session IN ({self._each_of})"
        rows = await self._read(CellRow, _CELL + one_of, batch, json.dumps(list(sessions)))
        return {row.session: row for row in rows}

    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """Return the cells that match the filter, by ascending number."""
        number, session = wanted.after
        # The first condition can use a range of the index; the second alone could not.
        where = " WHERE batch = ? AND number >= ? AND (number > ? OR session > ?)"
        values: list[object] = [wanted.batch, number, number, session]
        if wanted.status is not None:
            where += " AND status = ?"
            values.append(wanted.status)
        if wanted.reason is not None:
            where += " AND reason = ?"
            values.append(wanted.reason)
        order = " ORDER BY number, session LIMIT ?"
        return await self._read(CellRow, _CELL + where + order, *values, wanted.limit)

    async def count(self, batch: str) -> Sequence[CellCount]:
        """Return the number of cells for each status and reason."""
        found = await self._fetch(_COUNT, batch)
        names = ("status", "reason", "cells", *SUMMED)
        with reading_store(self._url):
            return [CellCount.model_validate(dict(zip(names, row, strict=True))) for row in found]

    async def each(self, wanted: CellsWanted) -> AsyncIterator[CellRow]:
        """Yield all cells that match the filter; they are read in several portions."""
        while rows := await self.find(wanted):
            for row in rows:
                yield row
            wanted = wanted.model_copy(update={"after": (rows[-1].number, rows[-1].session)})

    async def _read(self, kind: type[R], sql: str, *values: object) -> Sequence[R]:
        found = await self._fetch(sql, *values)
        with reading_store(self._url):
            return [_row(kind, row) for row in found]


def _row(kind: type[R], values: Sequence[Any]) -> R:
    data = dict(zip(kind.model_fields, values, strict=True))
    for name in _IN_JSON:
        if name in data:
            data[name] = json.loads(data[name])
    return kind.model_validate(data)


def check_batch_name(name: str) -> str:
    """Return `name` if it is a valid name of a batch; the session ids begin with it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"name: {name!r} is not a valid name of a batch; use 1 to 100 of A-Z a-z 0-9 . _ -"
        )
    return name
