"""Sessions in one SQLite file, which several processes may use at once.

Each open store has two connections, one to read and one to write, each in its own thread.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString

from ..common.errors import StoreError
from .base import L
from .errors import as_store_error, store_errors, store_failure
from .lease import Lease, LeaseSubject
from .sql_leases import LEASE
from .sql_tables import STORE_VERSION, SqlStore
from .sqlite_files import Owner, SqliteThread, StoreFile
from .writer import Job, Results, Statement, WriteFailure, Writer

if TYPE_CHECKING:
    from .sqlite_saver import SqliteSessionSaver

_WAIT: Final = 30.0  # seconds to wait for another process's write, or for its set-up of the file
_PAUSE: Final = 0.01  # seconds between two attempts
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FOR_ALL: Final = (
    *_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
)


class SqliteStore(SqlStore):
    """A store in one SQLite file."""

    each_of = "SELECT value FROM json_each(?)"
    # With the title, so that lists do not read the rows, whose specs are long. PostgreSQL limits
    # the size of an index entry.
    by_time = "created_at DESC, session, title"
    known_tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'duologue_schema'"

    def __init__(self, path: Path, url: str) -> None:
        super().__init__()
        self.url = url
        self._file = StoreFile(path, url)
        self._owner = Owner(self._file.locks)
        self._writing = SqliteThread(self._file)
        self._reading = SqliteThread(self._file)
        self.writer = Writer(partial(self._writing.run, self._commit), self._explain)
        self._is_closing = False
        self._has_checkpoints = False

    def _saver(self, lease: Lease | None = None) -> "SqliteSessionSaver":
        from .sqlite_saver import SqliteSessionSaver  # loads LangGraph

        return SqliteSessionSaver(self.url, self._reading, self.writer, lease)

    async def open(self) -> None:
        """Create the file and its tables if they are missing."""
        try:
            with store_errors(self.url):
                # In one call, because each call into a thread takes about as long as opening a
                # connection.
                await self._writing.run(self._prepare)
        except OSError as error:
            raise store_failure(self.url, error.strerror or str(error)) from error

    def _prepare(self) -> None:
        self._file.prepare(partial(self._owner.is_alive, remove=False))
        self._connect()
        if not self._file.is_read_only:
            try:
                self._prepare_writing(self._writing.connection)
            except (OSError, sqlite3.Error):
                # On a full disk, sessions can be read.
                if not self._file.lacks_space():
                    raise
                self._file.is_read_only = True
                self._connect()
        connection = self._writing.connection
        self.owner = self._owner.name
        # From here on `_waited` waits instead: it stops when the store is closed.
        connection.execute("PRAGMA busy_timeout = 0")
        self._reading.connection.execute("PRAGMA query_only = ON")
        # If the tables exist, nothing is written, so that a reader waits for no writer.
        known = connection.execute(self.known_tables).fetchone()
        missing = self.missing_tables(connection.execute(STORE_VERSION).fetchall() if known else [])
        if missing:
            self._commit([Job(missing, lease=None)])

    def _connect(self) -> None:
        for thread in (self._writing, self._reading):
            thread.disconnect()
            thread.connect()

    def _prepare_writing(self, connection: sqlite3.Connection) -> None:
        self._owner.open()
        # In WAL mode, readers don't wait for the writer.
        self._waited("PRAGMA journal_mode = WAL")
        # Commits survive a power failure; fullfsync is for macOS.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        # The first read creates the WAL.
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        self._owner.write(self._file.opened())
        self._owner.tidy()

    async def _take(self, subject: LeaseSubject, make: Callable[[Lease], L]) -> L | None:
        if not self._has_checkpoints:
            with store_errors(self.url):
                await self._writing.run(self._make_checkpoints)
        return await super()._take(subject, make)

    def _make_checkpoints(self) -> None:
        """Create LangGraph's tables if they are missing; listing sessions needs none of them."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = self._writing.connection
        connection.execute(f"PRAGMA busy_timeout = {_WAIT * 1000:.0f}")
        try:
            SqliteSaver(connection).setup()
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
        self._has_checkpoints = True

    def statement(self, sql: LiteralString, *values: object) -> Statement:
        """See `SqlStore.statement`."""
        return Statement(sql, values)

    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        def read() -> list[Any]:
            return self._reading.connection.execute(sql, values).fetchall()

        with store_errors(self.url):
            return await self._reading.read(read)

    async def _is_alive(self, owner: str) -> bool:
        try:
            return await self._reading.run(self._owner.is_alive, owner)
        except OSError as error:
            raise store_failure(self.url, str(error)) from error

    def _commit(self, jobs: Sequence[Job]) -> Results:
        connection = self._writing.connection
        self._waited("BEGIN IMMEDIATE")
        try:
            results = [_run_job(connection, job) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            # Some errors have already rolled the transaction back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._file.check(connection)
        return results

    def _waited(self, sql: LiteralString) -> None:
        """Run a statement that may have to wait for another process.

        SQLite ignores its own timeout when it switches to WAL, and its own wait can't be
        interrupted when the store is closed.
        """
        until = time.monotonic() + _WAIT
        while True:
            try:
                self._writing.connection.execute(sql)
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF in _BUSY
                if not is_busy or self._is_closing or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def _explain(self, error: Exception) -> WriteFailure:
        # A missing file affects all jobs, too.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        is_for_all = isinstance(error, StoreError) or code in _FOR_ALL
        return WriteFailure(as_store_error(self.url, error), is_for_all)

    async def close(self) -> None:
        """See `Store.close`."""
        self._is_closing = True
        await super().close()
        # In the thread that opens everything, because opening may still be in progress.
        await self._writing.run(self._close)
        self._writing.end(wait=False)

    def _close(self) -> None:
        self._owner.close()
        # A cancelled caller may have left a read running.
        self._reading.end(wait=True)
        self._reading.disconnect()
        if self._file.is_replaced():
            # Or the WAL would remain, and become a part of the file that has replaced this one.
            with suppress(sqlite3.Error):
                self._writing.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # The last connection to close moves the WAL into the file and removes the side files.
        self._writing.disconnect()


def _run_job(connection: sqlite3.Connection, job: Job) -> int | Exception:
    lease = job.lease
    if lease is not None and connection.execute(LEASE, lease.terms).fetchone() is None:
        return lease.subject.lost_error()
    changed = 0
    for sql, given, many in job.statements:
        cursor = (connection.executemany if many else connection.execute)(sql, given)
        changed = cursor.rowcount
    return changed
