"""The tables of sessions and leases, in the SQL that SQLite and PostgreSQL share."""

import asyncio
import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, LiteralString

from ..common.data import Versions
from ..common.errors import SessionError, StoreError
from .base import LeaseHolder, SessionLease, Store
from .batches import BatchLease, BatchRow, CellRow
from .errors import taken_session, unknown_session
from .lease import Lease, LeaseSubject, Statement, Writer
from .rows import SessionRow, Wanted, moment, new_row, read_row, read_version
from .sql_batches import (
    BATCH_TABLES,
    PUT_BATCH,
    PUT_CELL,
    SqlBatches,
    columns_of,
    insert_row,
    select_rows,
    to_column,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

    from .saver import SqlSaver


LEASE: Final = (
    "SELECT (SELECT stop_requested FROM duologue_sessions "
    "WHERE duologue_sessions.session = duologue_leases.session) "
    "FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
)
"""Returns a row while a lease is valid: whether the session was asked to stop."""
RELEASE: Final = "DELETE FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
_ACQUIRE_NEW: Final = (
    "INSERT INTO duologue_leases (session, owner, number) SELECT ?, ?, ? "
    "WHERE NOT EXISTS (SELECT 1 FROM duologue_sessions WHERE session = ?) "
    "ON CONFLICT (session) DO NOTHING"
)
"""Acquires a lease on a session that does not exist."""

_RETRY: Final = 1.0  # seconds


STORE_VERSIONS: Final = Versions[Sequence[LiteralString]](oldest=13)
"""The versions of the tables. Each step has the statements that upgrade to the next."""
STORE_VERSION: Final = "SELECT version FROM duologue_schema"
"""A query for the version of the tables. Tables of an older version are upgraded."""
_ROW: Final = select_rows("duologue_sessions", SessionRow)
_ADD_ROW: Final = insert_row("duologue_sessions", SessionRow, "session", replace=False)
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


class SqlStore(Store):
    """A store in SQL. A subclass for each database runs the statements.

    A lease is a row that names its owner, the open store that has acquired it. A lease whose owner
    is dead may be taken over. Every write checks its lease in its own transaction, and reads
    whether a stop of the session was requested.

    A new session takes these steps:

    1. `open_store` opens the store, or shares the open store of its address.
    2. `SqlSessionLease.begin` adds the lease and the session's row, and `SqlSaver.aput` the
       steps before the first call: the first commit.
    3. `SqlSaver.aput` saves each later checkpoint with the writes before it: one commit for each
       step.
    4. `SqlSessionLease.end` saves the last step, changes the row, leaves one checkpoint, and
       deletes the lease: the last commit.

    Each commit passes `Writer.write` and the database's `_commit`, which checks the lease.
    """

    owner: str
    writer: Writer
    second_look: float = 0.0
    """Seconds after which an owner that seemed dead is checked a second time. 0 means no second
    check.
    """
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

    def __init__(self) -> None:
        self._numbers = count(1)
        self._taken = set[int]()
        """The numbers of the leases that are acquired here, or are being acquired."""
        self._beginning = dict[LeaseSubject, Lease]()
        """The leases of sessions that were new here. Their first writes acquire them."""
        self._freeing = set[asyncio.Task[None]]()

    @abstractmethod
    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, whose placeholders are `?`."""

    def statement(self, sql: str, *values: object) -> Statement:
        """Return a statement with the placeholders `?` replaced by this database's own."""
        return Statement(sql.replace("?", self.placeholder), values)

    def stop_sign(self) -> object:
        """Return a value that changes when a stop of a session may have been requested."""
        return object()

    @abstractmethod
    async def _is_alive(self, owner: str) -> bool:
        """Return whether another open store is alive."""

    async def write(self, sql: str, *values: object, lease: Lease | None = None) -> int:
        """Run and commit one statement; return the number of rows it changed."""
        return await self.writer.write(self.statement(sql, *values), lease=lease)

    async def _is_leased(self, subject: LeaseSubject) -> bool:
        lease = await self._lease(subject)
        return lease is not None and await self._is_in_use(lease)

    async def is_valid(self, lease: Lease) -> bool:
        """Return whether the database still contains this lease."""
        return bool(await self.read(LEASE, *lease.terms))

    async def _lease(self, subject: LeaseSubject) -> tuple[str, int] | None:
        """Return the owner and the number of the lease on a subject, or None if there is none."""
        found = await self.read(
            "SELECT owner, number FROM duologue_leases WHERE session = ?", subject.key
        )
        # Not validated, because a takeover compares the exact stored values.
        return (found[0][0], found[0][1]) if found else None

    async def _is_in_use(self, lease: tuple[str, int]) -> bool:
        """Return whether the owner of a lease still uses it."""
        owner, number = lease
        # A lease of this store that exists only in the table could not be deleted when it was
        # released.
        return number in self._taken if owner == self.owner else await self._is_alive(str(owner))

    async def _take(self, subject: LeaseSubject, *, is_new: bool, is_random: bool) -> Lease | None:
        if subject in self._beginning:
            return None
        lease = Lease(subject, self.owner, next(self._numbers))
        self._taken.add(lease.number)
        try:
            if is_new:
                self._beginning[subject] = lease
                # A fork has a lease before its row, and a killed process may have left one.
                if is_random or await self._lease(subject) is None:
                    values = *lease.terms, subject.key
                    lease.acquisition = self.statement(_ACQUIRE_NEW, *values)
                    return lease
                del self._beginning[subject]
            if await self._acquire(lease):
                return lease
        except BaseException:
            # The writer continues for a cancelled caller, so the lease may be acquired anyway.
            self._forget(lease)
            self._free_later(lease)
            raise
        self._forget(lease)
        return None

    async def _acquire(self, lease: Lease) -> bool:
        """Acquire a lease; return whether that was possible."""
        # Twice, because the lease may be released between the check and the write.
        for _ in range(2):
            # Written first, because most sessions have no lease.
            added = await self.write(
                "INSERT INTO duologue_leases (session, owner, number) VALUES (?, ?, ?) "
                "ON CONFLICT (session) DO NOTHING",
                *lease.terms,
            )
            if added:
                return True
            held = await self._lease(lease.subject)
            if held is None:
                continue
            if await self._is_in_use(held):
                return False
            if self.second_look and held[0] != self.owner:
                await asyncio.sleep(self.second_look)
                if await self._is_in_use(held):
                    return False
            taken_over = await self.write(
                "UPDATE duologue_leases SET owner = ?, number = ? "
                "WHERE session = ? AND owner = ? AND number = ?",
                *(lease.owner, lease.number, lease.subject.key, *held),
            )
            if taken_over:
                return True
        return False

    async def _free(self, lease: Lease, holder: LeaseHolder | None) -> None:
        try:
            if holder is not None:
                with suppress(Exception):
                    # The writes of a cancelled step come first; their errors have no receiver any
                    # more.
                    await holder.drain()
            if not lease.is_released and (lease.is_tried or lease.acquisition is None):
                await self._delete(lease)
        except StoreError:
            self._free_later(lease)
        finally:
            self._forget(lease)

    def _forget(self, lease: Lease) -> None:
        self._taken.remove(lease.number)
        if self._beginning.get(lease.subject) is lease:
            del self._beginning[lease.subject]

    def _free_later(self, lease: Lease) -> None:
        """Delete a lease in the background; for other processes it is valid until then."""

        async def delete_with_retries() -> None:
            while True:
                try:
                    return await self._delete(lease)
                except StoreError:
                    await asyncio.sleep(_RETRY)

        task = asyncio.create_task(delete_with_retries())
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _delete(self, lease: Lease) -> None:
        await self.write(RELEASE, *lease.terms)

    async def close(self) -> None:
        """See `Store.close`."""
        if self._freeing:
            for task in self._freeing:
                task.cancel()
            await asyncio.wait(self._freeing)
        await self.writer.drain()

    @abstractmethod
    def _saver(self, lease: Lease | None = None) -> "SqlSaver":
        """Return a saver that writes under a lease; without a lease it only reads."""

    @cached_property
    def checkpointer(self) -> "SqlSaver":
        """See `Store.checkpointer`."""
        return self._saver()

    @cached_property
    def batches(self) -> SqlBatches:
        """See `Store.batches`."""
        return SqlBatches(self.url, self.each_of, self.read)

    def _make_session_lease(self, lease: Lease) -> "SqlSessionLease":
        return SqlSessionLease(self, lease, self._saver(lease))

    def _make_batch_lease(self, lease: Lease) -> "SqlBatchLease":
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
        found = await self.read(_ROW + " WHERE session = ?", session)
        return read_row(found[0], self.url) if found else None

    async def find(self, wanted: Wanted) -> list[SessionRow]:
        """See `Store.find`."""
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

    async def locked(self, sessions: Sequence[str]) -> frozenset[str]:
        """See `Store.locked`."""
        sql = "SELECT session, owner, number FROM duologue_leases WHERE session IN "
        found = await self.read(sql + f"({self.each_of})", json.dumps([*sessions]))
        leases = [(name, (owner, number)) for name, owner, number in found]
        return frozenset([name for name, lease in leases if await self._is_in_use(lease)])

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        found = await self.read(_ROW + _ORDER)
        return [read_row(values, self.url) for values in found]

    async def verdicts(self, session: str) -> Sequence[str]:
        """See `Store.verdicts`."""
        sql = "SELECT verdict FROM duologue_verdicts WHERE session = ?"
        return [text for (text,) in await self.read(sql + " ORDER BY number", session)]

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
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
        """See `Store.stop_requested`."""
        # Without the whole row, which contains the spec.
        found = await self.read(
            "SELECT stop_requested FROM duologue_sessions WHERE session = ?", session
        )
        if not found:
            raise unknown_session(session, self.url)
        return bool(found[0][0])


class SqlSessionLease(SessionLease):
    """A lease on a session in SQL."""

    checkpointer: "SqlSaver"

    def __init__(self, store: SqlStore, lease: Lease, checkpointer: "SqlSaver") -> None:
        super().__init__(store.url, lease)
        self.checkpointer = checkpointer
        self._store = store

    async def add(
        self, *, title: str, spec: str, forked_from: str | None = None, tools: str = "{}"
    ) -> SessionRow:
        """See `SessionLease.add`."""
        row, insert = self._make_row(title, spec, forked_from, tools)
        added = await self._store.writer.write(insert, lease=self.lease)
        # A write that is retried after its connection broke may find its own row.
        if not added and await self._store.get(self.session) != row:
            raise taken_session(self.session, self.url)
        return row

    async def begin(self, *, title: str, spec: str, tools: str = "{}") -> None:
        """See `SessionLease.begin`; one transaction with the first checkpoints, which may raise."""
        _, insert = self._make_row(title, spec, None, tools)
        self.checkpointer.hold(*self.checkpointer.deletion(self.session), insert)
        self.checkpointer.record_steps()

    async def end(
        self, reason: str, whole: "tuple[Checkpoint, CheckpointMetadata] | None" = None
    ) -> None:
        """See `SessionLease.end`; one transaction, which releases the lease."""
        release = self._store.statement(RELEASE, *self.lease.terms)
        change = self._store.row_change(self.session, status="finished", reason=reason)
        saver = self.checkpointer
        replaced = () if whole is None else saver.replacement(self.session, *whole)
        try:
            # The change of the row is the last, so that its number of rows is returned.
            changed = await saver.flush(*replaced, release, change)
        except SessionError:
            # A write that is retried after its connection broke may find its own end, which has
            # released the lease.
            row = await self._store.get(self.session)
            if row is None or moment(row.updated_at) not in change.values:
                raise
            changed = 1
        self.lease.is_released = True
        if not changed:
            raise unknown_session(self.session, self.url)

    async def stop_requested(self, session: str) -> bool:
        """See `SessionLease.stop_requested`."""
        lease = self.lease
        if lease.stop_sign != (sign := self._store.stop_sign()):
            lease.stop_requested = await self._store.stop_requested(session)
            lease.stop_sign = sign
        return lease.stop_requested

    def _make_row(
        self, title: str, spec: str, forked_from: str | None, tools: str
    ) -> tuple[SessionRow, Statement]:
        row = new_row(self.session, title, spec, forked_from, tools)
        return row, self._store.statement(_ADD_ROW, *columns_of(row))

    async def _remove(self) -> bool:
        # Read first, because a retried DELETE, after its connection broke, may change no row.
        row = "FROM duologue_sessions WHERE session = ?"
        found = await self._store.read("SELECT 1 " + row, self.session)
        await self._store.write("DELETE " + row, self.session, lease=self.lease)
        return bool(found)

    async def clear_stop(self) -> None:
        """See `SessionLease.clear_stop`."""
        await super().clear_stop()
        # The lease was checked before the change.
        self.lease.stop_requested = False

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
        await super().drain()

    async def _change(self, **values: str | bool | None) -> None:
        await self._store.update(self.session, self.lease, **values)


class SqlBatchLease(BatchLease):
    """A lease on a batch of a store in SQL; each write checks it in the same transaction."""

    def __init__(self, store: SqlStore, lease: Lease) -> None:
        super().__init__(lease)
        self._store = store

    async def put(self, row: BatchRow) -> None:
        """See `BatchLease.put`."""
        await self._store.write(PUT_BATCH, *columns_of(row), lease=self.lease)

    async def put_cell(self, row: CellRow) -> None:
        """See `BatchLease.put_cell`."""
        await self._store.write(PUT_CELL, *columns_of(row), lease=self.lease)

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
