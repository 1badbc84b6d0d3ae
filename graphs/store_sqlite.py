"""Sessions in one SQLite file, which several processes may use at once.

Each open store has two connections, one to read and one to write, each in a thread of its own.
"""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, LiteralString

from langgraph.checkpoint.sqlite import SqliteSaver

from duologue.graphs.store_base import Store, settled
from duologue.graphs.store_errors import lost_session, store_errors, store_failure
from duologue.graphs.store_files import StoreFile
from duologue.graphs.store_owner import Owner
from duologue.graphs.store_sql import LEASE, SqlStore
from duologue.graphs.store_sqlite_saver import WAIT, SqliteSessionSaver, SqliteThread
from duologue.graphs.store_writer import Job, Lease, Results, Statement, Writer


class SqliteStore(SqlStore):
    """A store in one SQLite file.

    Args:
        file: The file, which is there.

    Raises:
        sqlite3.Error: It can't be opened.
        OSError: Its lock can't be made.
    """

    def __init__(self, file: StoreFile) -> None:
        super().__init__()
        self.url = file.url
        self._file = file
        self._owner = Owner(file.locks)
        self.owner = self._owner.name
        self._writing = SqliteThread(file.path)
        self._reading = SqliteThread(file.path)
        self.writer = Writer(partial(self._writing.run, self._commit))
        self.checkpointer = SqliteSessionSaver(self.url, self._reading, self.writer)

    def _saver(self, lease: Lease) -> SqliteSessionSaver:
        return SqliteSessionSaver(self.url, self._reading, self.writer, lease)

    async def set_up(self) -> None:
        """Make LangGraph's tables and ours.

        Raises:
            StoreError: The file can't be used, or a newer version of this library wrote it.
        """
        with store_errors(self.url):
            await self._writing.run(self._prepare)
            await super().set_up()
            await self._writing.run(self._owner.tidy)

    def _prepare(self) -> None:
        connection = self._writing.connection
        _use_wal(connection)
        # What is committed outlives a power cut, too.
        connection.execute("PRAGMA synchronous = FULL")
        SqliteSaver(connection).setup()
        self._reading.connection.execute("PRAGMA query_only = ON")
        self._file.opened()

    def statement(self, sql: LiteralString, *values: object) -> Statement:
        """See `SqlStore.statement`."""
        return Statement(sql, values)

    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        def read() -> list[Any]:
            return self._reading.connection.execute(sql, values).fetchall()

        with store_errors(self.url):
            return await self._reading.run(read)

    async def _is_alive(self, owner: str) -> bool:
        try:
            return await self._reading.run(self._owner.is_alive, owner)
        except OSError as error:
            raise store_failure(self.url, str(error)) from error

    def _commit(self, jobs: Sequence[Job]) -> Results:
        """Commit jobs together; or, where that fails, each alone."""
        try:
            return self._committed(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [_told(self.url, error)]
            return [result for job in jobs for result in self._commit([job])]

    def _committed(self, jobs: Sequence[Job]) -> Results:
        connection = self._writing.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [_done(connection, job) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            # Some errors have rolled it back already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._file.check(connection)
        return results

    async def close(self) -> None:
        """See `Store.close`."""
        await self.writer.drain()
        # The last to close the file writes all to it and removes the files beside it.
        await self._reading.close()
        await self._writing.close()
        await asyncio.to_thread(self._owner.close)


def _done(connection: sqlite3.Connection, job: Job) -> int | Exception:
    lease = job.lease
    if lease is not None and connection.execute(LEASE, lease.terms).fetchone() is None:
        return lost_session(lease.session)
    changed = 0
    for sql, given, many in job.statements:
        cursor = (connection.executemany if many else connection.execute)(sql, given)
        changed = cursor.rowcount
    return changed


def _told(url: str, error: Exception) -> Exception:
    try:
        with store_errors(url):
            raise error
    except Exception as told:
        return told


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let others read while one writes; SQLite does not wait for who does the same just now."""
    until = time.monotonic() + WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > until:
                raise
            time.sleep(0.02)


async def open_sqlite(path: Path, url: str) -> Store:
    """Open the store in one SQLite file, made if it is missing.

    Args:
        path: The file, absolute and without links.
        url: How it is shown.

    Returns:
        The store, usable in this event loop.

    Raises:
        StoreError: The file or its folder can't be used.
    """
    file = StoreFile(path, url)
    store = await asyncio.to_thread(_opened, file)
    try:
        await store.set_up()
    except BaseException:
        await settled(store.close())
        raise
    return store


def _opened(file: StoreFile) -> SqliteStore:
    file.prepare()
    try:
        with store_errors(file.url):
            return SqliteStore(file)
    except OSError as error:
        raise store_failure(file.url, str(error)) from error
