"""The tables of batches and their cells, in the SQL that SQLite and PostgreSQL share."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString, TypeVar

from pydantic import BaseModel

from .batches import (
    SUMMED,
    Batches,
    BatchRow,
    CellCount,
    CellRow,
    CellsWanted,
)
from .rows import moment, reading_store

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


def select_rows(table: LiteralString, kind: type[BaseModel]) -> str:
    """Return a query for rows of a table, whose columns are the fields of a model."""
    return f"SELECT {', '.join(kind.model_fields)} FROM {table}"  # noqa: S608


def insert_row(table: LiteralString, kind: type[BaseModel], *key: str, replace: bool) -> str:
    """Return a statement that adds a row.

    Args:
        table: The table. Its columns are the fields of the model, in their order.
        kind: The model.
        *key: The columns of the table's key.
        replace: Whether a row with the same key is replaced. Otherwise it stays.
    """
    names = [*kind.model_fields]
    values = ", ".join("?" * len(names))
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    conflict = f"UPDATE SET {changes}" if replace else "NOTHING"
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608
        f"ON CONFLICT ({', '.join(key)}) DO {conflict}"
    )


_BATCH: Final = select_rows("duologue_batches", BatchRow)
_CELL: Final = select_rows("duologue_cells", CellRow)
PUT_BATCH: Final = insert_row("duologue_batches", BatchRow, "batch", replace=True)
PUT_CELL: Final = insert_row("duologue_cells", CellRow, "batch", "session", replace=True)
_COUNT: Final[LiteralString] = """SELECT status, reason, COUNT(*), CAST(SUM(messages) AS BIGINT),
    CAST(SUM(calls) AS BIGINT), CAST(SUM(input_tokens) AS BIGINT),
    CAST(SUM(output_tokens) AS BIGINT), SUM(cost)
    FROM duologue_cells WHERE batch = ? GROUP BY status, reason"""
_IN_JSON: Final = ("varied", "scores")


class SqlBatches(Batches):
    """The batches of a store in SQL."""

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
        """See `Batches.get`."""
        found = await self._read(BatchRow, _BATCH + " WHERE batch = ?", batch)
        return found[0] if found else None

    async def list(self) -> Sequence[BatchRow]:
        """See `Batches.list`."""
        return await self._read(BatchRow, _BATCH + " ORDER BY created_at DESC, batch")

    async def known(self, batch: str, sessions: Sequence[str]) -> dict[str, CellRow]:
        """See `Batches.known`."""
        # Both databases read one JSON text faster than hundreds of values.
        one_of = f" WHERE batch = ? AND session IN ({self._each_of})"
        rows = await self._read(CellRow, _CELL + one_of, batch, json.dumps(list(sessions)))
        return {row.session: row for row in rows}

    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """See `Batches.find`."""
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
        """See `Batches.count`."""
        found = await self._fetch(_COUNT, batch)
        names = ("status", "reason", "cells", *SUMMED)
        with reading_store(self._url):
            return [CellCount.model_validate(dict(zip(names, row, strict=True))) for row in found]

    async def _read(self, kind: type[R], sql: str, *values: object) -> Sequence[R]:
        found = await self._fetch(sql, *values)
        with reading_store(self._url):
            return [_row(kind, row) for row in found]


def columns_of(row: BaseModel) -> Sequence[object]:
    """Return a row's values in the form that a database stores."""
    return [to_column(value) for _, value in row]


def to_column(value: object) -> object:
    """Return a value in the form that a database stores."""
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
