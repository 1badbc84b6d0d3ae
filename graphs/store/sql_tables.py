"""The tables of a store, in the SQL that SQLite and PostgreSQL share, and the rows of sessions."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, LiteralString

from pydantic import BaseModel

from ..common.data import Versions
from .errors import unknown_session
from .lease import Lease, Statement, Writer
from .rows import SessionRow, Wanted, moment, read_row, read_version


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


LEASE: Final = (
    "SELECT (SELECT stop_requested FROM duologue_sessions "
    "WHERE duologue_sessions.session = duologue_leases.session) "
    "FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
)
"""Returns a row while a lease is valid: whether the session was asked to stop."""
RELEASE: Final = "DELETE FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
ACQUIRE_NEW: Final = (
    "INSERT INTO duologue_leases (session, owner, number) SELECT ?, ?, ? "
    "WHERE NOT EXISTS (SELECT 1 FROM duologue_sessions WHERE session = ?) "
    "ON CONFLICT (session) DO NOTHING"
)
"""Acquires a lease on a session that does not exist."""

STORE_VERSIONS: Final = Versions[Sequence[LiteralString]](oldest=13)
"""The versions of the tables. Each step has the statements that upgrade to the next."""
STORE_VERSION: Final = "SELECT version FROM duologue_schema"
"""A query for the version of the tables. Tables of an older version are upgraded."""
_ROW: Final = select_rows("duologue_sessions", SessionRow)
ADD_ROW: Final = insert_row("duologue_sessions", SessionRow, "session", replace=False)
_ORDER: Final = " ORDER BY created_at DESC, session"
# In the order of SessionRow's fields. Times are ISO 8601 text of fixed width, in UTC, so that both
# databases sort and return them alike.
_TABLES: Final[Sequence[LiteralString]] = (
    """CREATE TABLE IF NOT EXISTS duologue_sessions (
    session TEXT PRIMARY KEY, title TEXT NOT NULL, spec TEXT NOT NULL, digest TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT, stop_requested INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, forked_from TEXT,
    tools TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS duologue_verdicts (
    session TEXT NOT NULL, number BIGINT NOT NULL, verdict TEXT NOT NULL,
    PRIMARY KEY (session, number))""",
    """CREATE TABLE IF NOT EXISTS duologue_files (
    digest TEXT NOT NULL, session TEXT NOT NULL, data {bytes} NOT NULL,
    PRIMARY KEY (digest, session))""",
    """CREATE TABLE IF NOT EXISTS duologue_leases (
    session TEXT PRIMARY KEY, owner TEXT NOT NULL, number INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS duologue_schema (version INTEGER NOT NULL)",
    "INSERT INTO duologue_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM duologue_schema)",
    """CREATE INDEX IF NOT EXISTS duologue_sessions_by_time
    ON duologue_sessions ({by_time})""",
    """CREATE INDEX IF NOT EXISTS duologue_sessions_by_status
    ON duologue_sessions (status, created_at DESC, session)""",
    """CREATE INDEX IF NOT EXISTS duologue_sessions_by_reason
    ON duologue_sessions (reason, created_at DESC, session)""",
    *BATCH_TABLES,
)


class Tables(ABC):
    """The tables of a store, without its leases. A subclass for each database runs the statements.

    Every method raises `StoreError` if the database fails.
    """

    url: str
    """The address for display, without a password."""
    writer: Writer
    placeholder: LiteralString = "?"
    """The database's placeholder of a value in a statement."""
    like: LiteralString = "LIKE"
    """The operator that searches a text and ignores case."""
    each_of: LiteralString
    """A query that returns each text of a JSON list."""
    by_time: LiteralString = "created_at DESC, session"
    """The columns of the index by which sessions are listed."""
    bytes_type: LiteralString = "BLOB"
    """The type of a column of bytes."""
    known_tables: LiteralString
    """A query that returns a row if duologue's tables exist."""

    @abstractmethod
    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, whose placeholders are `?`."""

    def statement(self, sql: str, *values: object) -> Statement:
        """Return a statement with the placeholders `?` replaced by this database's own."""
        return Statement(sql.replace("?", self.placeholder), values)

    @abstractmethod
    def stop_sign(self) -> object:
        """Return a value that changes when a stop of a session may have been requested."""

    async def write(self, sql: str, *values: object, lease: Lease | None = None) -> int:
        """Run and commit one statement; return the number of rows it changed."""
        return await self.writer.write(self.statement(sql, *values), lease=lease)

    async def is_valid(self, lease: Lease) -> bool:
        """Return whether the database still contains this lease."""
        return bool(await self.read(LEASE, *lease.terms))

    def missing_tables(self, versions: Sequence[Sequence[object]]) -> Sequence[Statement]:
        """Return the statements that create or upgrade duologue's tables, if any are needed.

        Args:
            versions: The rows of `STORE_VERSION`. Empty if the table is missing.
        """
        version = read_version(versions, STORE_VERSIONS, self.url)
        if version == STORE_VERSIONS.newest:
            return ()
        steps = [_TABLES] if version is None else STORE_VERSIONS.steps_from(version)
        texts = [
            sql.replace("{by_time}", self.by_time).replace("{bytes}", self.bytes_type)
            for step in steps
            for sql in step
        ]
        newest = self.statement("UPDATE duologue_schema SET version = ?", STORE_VERSIONS.newest)
        return *(self.statement(sql) for sql in texts), newest

    async def get(self, session: str) -> SessionRow | None:
        """Return the row of `session`, or None if there is no such session."""
        found = await self.read(_ROW + " WHERE session = ?", session)
        return read_row(found[0], self.url) if found else None

    async def find(self, wanted: Wanted) -> list[SessionRow]:
        """Return the rows that match the filter, newest first, without reading checkpoints."""
        conditions = list[str]()
        values = list[object]()
        if wanted.status is not None:
            conditions.append("status = ?")
            values.append(wanted.status)
        if wanted.reason is not None:
            conditions.append("reason = ?")
            values.append(wanted.reason)
        if wanted.batch is not None:
            conditions.append("session IN (SELECT session FROM duologue_cells WHERE batch = ?)")
            values.append(wanted.batch)
        if wanted.is_leased:
            conditions.append("session IN (SELECT session FROM duologue_leases)")
        if wanted.changed_before is not None:
            conditions.append("updated_at < ?")
            values.append(moment(wanted.changed_before))
        if wanted.after is not None:
            created_at, session = wanted.after
            # The first condition can use a range of the index; the second alone could not.
            conditions.append("created_at <= ? AND (created_at < ? OR session > ?)")
            values += [created_at, created_at, session]
        if wanted.text:
            like = self.like + " ? ESCAPE '!'"
            conditions.append("(title " + like + " OR session " + like + ")")
            escaped = re.sub("[!%_]", r"!\g<0>", wanted.text)
            values += [f"%{escaped}%"] * 2
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        found = await self.read(_ROW + where + _ORDER + " LIMIT ?", *values, wanted.limit)
        return [read_row(row, self.url) for row in found]

    async def verdicts(self, session: str) -> Sequence[str]:
        """Return the verdicts stored beside a session's log, as JSON texts, oldest first."""
        sql = "SELECT verdict FROM duologue_verdicts WHERE session = ?"
        return [text for (text,) in await self.read(sql + " ORDER BY number", session)]

    async def request_stop(self, session: str) -> None:
        """Request that the run of `session`, here or in another process, stops at its next turn."""
        await self.update(session, stop_requested=True)

    async def update(
        self, session: str, lease: Lease | None = None, **values: str | bool | None
    ) -> None:
        """Change fields of a session's row, and the time of the last change."""
        if not await self.writer.write(self.row_change(session, **values), lease=lease):
            raise unknown_session(session, self.url)

    def row_change(self, session: str, **values: str | bool | None) -> Statement:
        """Return the statement that changes a session's row, and the time of the last change."""
        changes = ", ".join(f"{name} = ?" for name in (*values, "updated_at"))
        return self.statement(
            f"UPDATE duologue_sessions SET {changes} WHERE session = ?",  # noqa: S608
            *(*map(to_column, values.values()), moment(datetime.now(UTC)), session),
        )

    async def stop_requested(self, session: str) -> bool:
        """Return whether a stop of `session` was requested."""
        # Without the whole row, which contains the spec.
        found = await self.read(
            "SELECT stop_requested FROM duologue_sessions WHERE session = ?", session
        )
        if not found:
            raise unknown_session(session, self.url)
        return bool(found[0][0])
