"""The table of sessions, in the SQL that SQLite and PostgreSQL share."""

import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, LiteralString

from ..common.data import Versions
from .base import SessionLease
from .errors import taken_session, unknown_session
from .lease import Lease
from .message_files import FILES_TABLE
from .rows import SessionRow, SessionStatus, Wanted, moment, new_row, read_row, read_version
from .sql_batches import BATCH_TABLES, SqlBatches, SqlBatchLease
from .sql_leases import LeasedStore
from .writer import Statement

if TYPE_CHECKING:
    from .sql_saver import LeasedSaver

STORE_VERSIONS: Final = Versions[Sequence[LiteralString]](oldest=12)
"""The versions of the tables. Each step has the statements that upgrade to the next."""
STORE_VERSION: Final = "SELECT version FROM duologue_schema"
"""A query for the version of the tables. Tables of an older version are upgraded."""
_ROW: Final = """SELECT session, title, spec, digest, status, reason, stop_requested,
    created_at, updated_at, forked_from FROM duologue_sessions"""
_ORDER: Final = " ORDER BY created_at DESC, session"
# In the order of SessionRow's fields. Times are ISO 8601 text of fixed width, in UTC, so that both
# databases sort and return them alike.
_TABLES: Final[Sequence[LiteralString]] = (
    """CREATE TABLE IF NOT EXISTS duologue_sessions (
    session TEXT PRIMARY KEY, title TEXT NOT NULL, spec TEXT NOT NULL, digest TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT, stop_requested INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, forked_from TEXT)""",
    """CREATE TABLE IF NOT EXISTS duologue_verdicts (
    session TEXT NOT NULL, number BIGINT NOT NULL, verdict TEXT NOT NULL,
    PRIMARY KEY (session, number))""",
    FILES_TABLE,
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


class SqlStore(LeasedStore):
    """A store in SQL. A subclass for each database runs the statements."""

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
    def _saver(self, lease: Lease | None = None) -> "LeasedSaver":
        """Return a saver that writes under a lease; without a lease it only reads."""

    @cached_property
    def checkpointer(self) -> "LeasedSaver":
        """See `Store.checkpointer`."""
        return self._saver()

    @cached_property
    def batches(self) -> SqlBatches:
        """See `Store.batches`."""
        return SqlBatches(self, self.each_of)

    def _make_session_lease(self, lease: Lease) -> "SqlSessionLease":
        return SqlSessionLease(self, lease, self._saver(lease))

    def _make_batch_lease(self, lease: Lease) -> SqlBatchLease:
        return SqlBatchLease(self, lease)

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
        """See `Store.get`."""
        found = await self._read(_ROW + " WHERE session = ?", session)
        return read_row(found[0], self.url) if found else None

    async def find(self, wanted: Wanted) -> list[SessionRow]:
        """See `Store.find`."""
        conditions: list[LiteralString] = []
        values: list[object] = []
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
            values += [_pattern(wanted.text)] * 2
        where: LiteralString = " WHERE " + " AND ".join(conditions) if conditions else ""
        found = await self._read(_ROW + where + _ORDER + " LIMIT ?", *values, wanted.limit)
        return [read_row(row, self.url) for row in found]

    async def locked(self, sessions: Sequence[str]) -> frozenset[str]:
        """See `Store.locked`."""
        sql: LiteralString = "SELECT session, owner, number FROM duologue_leases WHERE session IN "
        found = await self._read(sql + f"({self.each_of})", json.dumps([*sessions]))
        leases = [(name, (owner, number)) for name, owner, number in found]
        return frozenset([name for name, lease in leases if await self._is_in_use(lease)])

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        found = await self._read(_ROW + _ORDER)
        return [read_row(values, self.url) for values in found]

    async def verdicts(self, session: str) -> Sequence[str]:
        """See `Store.verdicts`."""
        sql: LiteralString = "SELECT verdict FROM duologue_verdicts WHERE session = ?"
        return [text for (text,) in await self._read(sql + " ORDER BY number", session)]

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await self.update(session, "stop_requested = 1")

    async def update(
        self, session: str, changes: LiteralString, *values: object, lease: Lease | None = None
    ) -> None:
        """Change fields of a session's row."""
        changed = await self.write(
            f"UPDATE duologue_sessions SET {changes}, updated_at = ? WHERE session = ?",  # noqa: S608
            *(*values, _now(), session),
            lease=lease,
        )
        if not changed:
            raise unknown_session(session, self.url)

    async def stop_requested(self, session: str) -> bool:
        """See `Store.stop_requested`."""
        # Read at every turn, so without the whole row, which contains the spec.
        found = await self._read(
            "SELECT stop_requested FROM duologue_sessions WHERE session = ?", session
        )
        if not found:
            raise unknown_session(session, self.url)
        return bool(found[0][0])


class SqlSessionLease(SessionLease):
    """A lease on a session in SQL."""

    checkpointer: "LeasedSaver"

    def __init__(self, store: SqlStore, lease: Lease, checkpointer: "LeasedSaver") -> None:
        self.session = lease.subject.name
        self.url = store.url
        self.lease = lease
        self.checkpointer = checkpointer
        self._store = store

    async def add(self, *, title: str, spec: str, forked_from: str | None = None) -> SessionRow:
        """See `SessionLease.add`."""
        return await self._add(title, spec, forked_from)

    async def begin(self, *, title: str, spec: str) -> SessionRow:
        """See `SessionLease.begin`; one transaction."""
        return await self._add(title, spec, None, *self.checkpointer.deletion(self.session))

    async def _add(
        self, title: str, spec: str, forked_from: str | None, *first: Statement
    ) -> SessionRow:
        row = new_row(self.session, title, spec, forked_from)
        insert = self._store.statement(
            "INSERT INTO duologue_sessions (session, title, spec, digest, status, reason, "
            "stop_requested, created_at, updated_at, forked_from) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session) DO NOTHING",
            *(row.session, row.title, row.spec, row.digest, row.status, row.reason),
            *(int(row.stop_requested), moment(row.created_at), moment(row.updated_at)),
            row.forked_from,
        )
        added = await self._store.writer.write(*first, insert, lease=self.lease)
        # A write that is retried after its connection broke may find its own row.
        if not added and await self._store.get(self.session) != row:
            raise taken_session(self.session, self.url)
        return row

    async def _remove(self) -> bool:
        # Read first, because a retried DELETE, after its connection broke, may change no row.
        row: LiteralString = "FROM duologue_sessions WHERE session = ?"
        found = await self._store._read("SELECT 1 " + row, self.session)
        await self._store.write("DELETE " + row, self.session, lease=self.lease)
        return bool(found)

    async def put_verdict(self, number: int, verdict: str) -> None:
        """See `SessionLease.put_verdict`."""
        # A write that is retried after its connection broke may find its own row.
        await self._store.write(
            "INSERT INTO duologue_verdicts (session, number, verdict) VALUES (?, ?, ?) "
            "ON CONFLICT (session, number) DO NOTHING",
            *(self.session, number, verdict),
            lease=self.lease,
        )

    async def delete_verdicts(self) -> None:
        """See `SessionLease.delete_verdicts`."""
        await self._store.write(
            "DELETE FROM duologue_verdicts WHERE session = ?", self.session, lease=self.lease
        )

    async def drain(self) -> None:
        """See `SessionLease.drain`."""
        await self.checkpointer.flush()
        await self.lease.drain()

    async def _mark(self, status: SessionStatus, reason: str | None = None) -> None:
        changes: LiteralString = "status = ?, reason = ?"
        await self._store.update(self.session, changes, status, reason, lease=self.lease)

    async def clear_stop(self) -> None:
        """See `SessionLease.clear_stop`."""
        await self._store.update(self.session, "stop_requested = 0", lease=self.lease)

    async def touch(self) -> None:
        """See `SessionLease.touch`."""
        await self._store.update(self.session, "status = status", lease=self.lease)


def _pattern(text: str) -> str:
    """Return the pattern of texts that contain this text, with special characters escaped."""
    found = re.sub("[!%_]", r"!\g<0>", text)
    return f"%{found}%"


def _now() -> str:
    return moment(datetime.now(UTC))
