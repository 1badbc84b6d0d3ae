"""The tables of batches and their cells, in the SQL that SQLite and PostgreSQL share."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

from pydantic import BaseModel

from .batches import (
    SUMMED,
    Batches,
    BatchLease,
    BatchRow,
    CellCount,
    CellRow,
    CellsWanted,
)
from .lease import Lease
from .rows import moment, reading_store

if TYPE_CHECKING:
    from .sql_leases import LeasedStore


R = TypeVar("R", bound=BaseModel)

# In the order of the fields of BatchRow and CellRow. The types mean the same in both databases:
# PostgreSQL's INTEGER and REAL have only four bytes.
BATCH_TABLES: Final[Sequence[LiteralString]] = (
    """CREATE TABLE IF NOT EXISTS duologue_batches (
    batch TEXT PRIMARY KEY, title TEXT NOT NULL, spec TEXT NOT NULL, settings TEXT NOT NULL,
    cells BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL, stopped TEXT,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS duologue_cells (
    batch TEXT NOT NULL, number BIGINT NOT NULL, session TEXT NOT NULL, trial BIGINT NOT NULL,
    varied TEXT NOT NULL, status TEXT NOT NULL, reason TEXT, error TEXT, complete BIGINT,
    rounds BIGINT NOT NULL, messages BIGINT NOT NULL, calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost DOUBLE PRECISION,
    seconds DOUBLE PRECISION NOT NULL, scores TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (batch, session))""",
    """CREATE INDEX IF NOT EXISTS duologue_cells_by_number
    ON duologue_cells (batch, number, session)""",
    """CREATE INDEX IF NOT EXISTS duologue_cells_by_status
    ON duologue_cells (batch, status, reason)""",
)
_BATCH: Final = """SELECT batch, title, spec, settings, cells, seconds, stopped, created_at,
    updated_at FROM duologue_batches"""
_CELL: Final = """SELECT batch, number, session, trial, varied, status, reason, error, complete,
    rounds, messages, calls, input_tokens, output_tokens, cost, seconds, scores, updated_at
    FROM duologue_cells"""
_PUT: Final[LiteralString] = """INSERT INTO duologue_batches (batch, title, spec, settings, cells,
    seconds, stopped, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (batch) DO UPDATE SET title = excluded.title, spec = excluded.spec,
    settings = excluded.settings, cells = excluded.cells, seconds = excluded.seconds,
    stopped = excluded.stopped, created_at = excluded.created_at,
    updated_at = excluded.updated_at"""
_PUT_CELL: Final[LiteralString] = """INSERT INTO duologue_cells (batch, number, session, trial,
    varied, status, reason, error, complete, rounds, messages, calls, input_tokens, output_tokens,
    cost, seconds, scores, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (batch, session) DO UPDATE SET number = excluded.number, trial = excluded.trial,
    varied = excluded.varied, status = excluded.status, reason = excluded.reason,
    error = excluded.error, complete = excluded.complete, rounds = excluded.rounds,
    messages = excluded.messages, calls = excluded.calls, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cost = excluded.cost, seconds = excluded.seconds,
    scores = excluded.scores, updated_at = excluded.updated_at"""
_COUNT: Final[LiteralString] = """SELECT status, reason, COUNT(*), CAST(SUM(messages) AS BIGINT),
    CAST(SUM(calls) AS BIGINT), CAST(SUM(input_tokens) AS BIGINT),
    CAST(SUM(output_tokens) AS BIGINT), SUM(cost)
    FROM duologue_cells WHERE batch = ? GROUP BY status, reason"""
_IN_JSON: Final = ("varied", "scores")


class SqlBatches(Batches):
    """The batches of a store in SQL."""

    def __init__(self, store: "LeasedStore", each_of: LiteralString) -> None:
        self._store = store
        self._each_of = each_of

    async def get(self, batch: str) -> BatchRow | None:
        """See `Batches.get`."""
        found = await self._read(BatchRow, _BATCH + " WHERE batch = ?", batch)
        return found[0] if found else None

    async def list(self) -> Sequence[BatchRow]:
        """See `Batches.list`."""
        return await self._read(BatchRow, _BATCH + " ORDER BY created_at DESC, batch")

    async def known(self, batch: str, sessions: Sequence[str]) -> dict[str, CellRow]:
        """See `Batches.known`."""
        # Both databases read one JSON text faster than hundreds of values.
        one_of: LiteralString = f" WHERE batch = ? AND session IN ({self._each_of})"
        rows = await self._read(CellRow, _CELL + one_of, batch, json.dumps(list(sessions)))
        return {row.session: row for row in rows}

    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """See `Batches.find`."""
        number, session = wanted.after
        # The first condition can use a range of the index; the second alone could not.
        where: LiteralString = " WHERE batch = ? AND number >= ? AND (number > ? OR session > ?)"
        values: list[object] = [wanted.batch, number, number, session]
        if wanted.status is not None:
            where += " AND status = ?"
            values.append(wanted.status)
        if wanted.reason is not None:
            where += " AND reason = ?"
            values.append(wanted.reason)
        order: LiteralString = " ORDER BY number, session LIMIT ?"
        return await self._read(CellRow, _CELL + where + order, *values, wanted.limit)

    async def count(self, batch: str) -> Sequence[CellCount]:
        """See `Batches.count`."""
        found = await self._store._read(_COUNT, batch)
        names = ("status", "reason", "cells", *SUMMED)
        with reading_store(self._store.url):
            return [CellCount.model_validate(dict(zip(names, row, strict=True))) for row in found]

    async def _read(self, kind: type[R], sql: LiteralString, *values: object) -> Sequence[R]:
        found = await self._store._read(sql, *values)
        with reading_store(self._store.url):
            return [_row(kind, row) for row in found]


class SqlBatchLease(BatchLease):
    """A lease on a batch of a store in SQL; each write checks it in the same transaction."""

    def __init__(self, store: "LeasedStore", lease: Lease) -> None:
        super().__init__(lease)
        self._store = store

    async def put(self, row: BatchRow) -> None:
        """See `BatchLease.put`."""
        await self._store.write(_PUT, *_values(row), lease=self.lease)

    async def put_cell(self, row: CellRow) -> None:
        """See `BatchLease.put_cell`."""
        await self._store.write(_PUT_CELL, *_values(row), lease=self.lease)

    async def delete(self) -> None:
        """See `BatchLease.delete`."""
        statement = self._store.statement
        await self._store.writer.write(
            statement("DELETE FROM duologue_cells WHERE batch = ?", self.batch),
            statement("DELETE FROM duologue_batches WHERE batch = ?", self.batch),
            lease=self.lease,
        )

    async def check(self) -> None:
        """See `BatchLease.check`."""
        if not await self._store.is_valid(self.lease):
            raise self.lease.subject.lost_error()


def _values(row: BaseModel) -> Sequence[object]:
    """Return a row's values in the form that a database stores."""
    return [_value(value) for _, value in row]


def _value(value: object) -> object:
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, bool):
        return int(value)
    return moment(value) if isinstance(value, datetime) else value


def _row(kind: type[R], values: Sequence[Any]) -> R:
    data = dict(zip(kind.model_fields, values, strict=True))
    for name in _IN_JSON:
        if name in data:
            data[name] = json.loads(data[name])
    return kind.model_validate(data)
