"""Sessions in one SQLite file, with a lock file for each session that is being run.

Several processes may use the file at once: writes wait for one another.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, LiteralString, TypeVar

import aiosqlite
from filelock import FileLock, Timeout
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from duologue.graphs.store_base import (
    Store,
    busy_session,
    check_session_id,
    store_errors,
    store_failure,
)
from duologue.graphs.store_saver import GuardedSaver, settled
from duologue.graphs.store_sql import SqlStore

T = TypeVar("T")

_WAIT = 30.0  # seconds for another process's write, or for its first set-up of the file
_GLANCE = 0.2  # seconds: `is_locked` elsewhere takes a lock for an instant, which is not "busy"


class _Saver(GuardedSaver, AsyncSqliteSaver):
    """LangGraph's saver, whose failed writes leave no transaction open."""

    def __init__(self, conn: aiosqlite.Connection, url: str) -> None:
        super().__init__(conn)
        self.store_url = url
        self.writing = set()
        self._turn = asyncio.Lock()

    async def _write(self, work: Coroutine[Any, Any, T]) -> T:
        # One write at a time, up to the rollback: else the next would commit what failed.
        async with self._turn:
            try:
                return await super()._write(work)
            except BaseException:
                with store_errors(self.store_url):
                    await self.conn.rollback()
                raise


class SqliteStore(SqlStore):
    """A store in one SQLite file.

    Args:
        path: The file, absolute.
        url: How it is shown.
        connection: An open connection to it, closed by the caller.
    """

    def __init__(self, path: Path, url: str, connection: aiosqlite.Connection) -> None:
        self.url = url
        self._connection = connection
        self._saver = _Saver(connection, url)
        self.checkpointer = self._saver
        self._locks = path.with_name(f"{path.name}.locks")

    async def drain(self) -> None:
        """Await the writes under way."""
        await self._saver.drain()

    async def set_up(self) -> None:
        """Make LangGraph's tables and ours; one process at a time.

        Raises:
            StoreError: The file can't be used, or a newer version of this library wrote it.
        """
        # Two processes can't both turn a new file to WAL: SQLite refuses one without waiting.
        async with self._file_lock("setup", _WAIT):
            with store_errors(self.url):
                # With WAL, what is committed outlives the process's death; a power cut may
                # take the last turns, not the file.
                await self._connection.execute("PRAGMA synchronous = NORMAL")
            await super().set_up()
            await self._saver.whole(self._saver.setup())

    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        with store_errors(self.url):
            return list(await self._connection.execute_fetchall(sql, values))

    async def _write(self, sql: LiteralString, *values: object) -> int:
        return await self._saver.whole(self._commit(sql, values))

    async def _commit(self, sql: LiteralString, values: tuple[object, ...]) -> int:
        async with self._connection.execute(sql, values) as cursor:
            await self._connection.commit()
            return cursor.rowcount

    @asynccontextmanager
    async def lock(self, session: str) -> AsyncIterator[None]:
        """See `Store.lock`."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._file_lock(_lock_name(session), _GLANCE))
            except Timeout:
                raise busy_session(check_session_id(session)) from None
            yield

    async def is_locked(self, session: str) -> bool:
        """See `Store.is_locked`."""
        name = _lock_name(session)
        if not await asyncio.to_thread((self._locks / f"{name}.lock").exists):
            return False
        # A file alone proves nothing: a killed holder leaves one behind.
        try:
            async with self._file_lock(name, 0):
                return False
        except Timeout:
            return True

    @asynccontextmanager
    async def _file_lock(self, name: str, wait: float) -> AsyncIterator[None]:
        path = self._locks / f"{name}.lock"
        lock = FileLock(path, timeout=wait, poll_interval=0.02, mode=0o600, thread_local=False)
        try:
            try:
                await settled(asyncio.to_thread(lock.acquire))
            except Timeout:
                raise
            except OSError as error:
                raise store_failure(self.url, str(error)) from error
            yield
        finally:
            if lock.is_locked:
                await settled(asyncio.to_thread(_free, lock, path))


def _lock_name(session: str) -> str:
    # Hashed: some file systems take "A" for "a", and some refuse "nul" or a dot at the end.
    return sha256(check_session_id(session).encode()).hexdigest()


def _free(lock: FileLock, path: Path) -> None:
    # Removed while held, so nobody else's file is: who waits on the old one sees it has no name
    # any more and starts over. Windows refuses, and filelock removes it there.
    with suppress(OSError):
        path.unlink()
    lock.release()


def _prepare(path: Path) -> None:
    """Make the file and its folders, readable by their owner only; what exists stays as it is."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its two side files the mode of the first.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.with_name(f"{path.name}.locks").mkdir(mode=0o700, exist_ok=True)


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[Store]:
    """Open the store in one SQLite file, made if it is missing.

    Args:
        path: The file; `~` and relative paths are taken from the user and the working folder.

    Yields:
        The store, usable in this event loop until the block ends.

    Raises:
        StoreError: The file or its folder can't be used.
    """
    path = await asyncio.to_thread(lambda: path.expanduser().absolute())
    url = f"sqlite:///{path.as_posix()}"
    try:
        await asyncio.to_thread(_prepare, path)
    except OSError as error:
        raise store_failure(url, error.strerror or str(error)) from error
    connection = aiosqlite.connect(path, timeout=_WAIT)
    try:
        with store_errors(url):
            await settled(_opened(connection))
        store = SqliteStore(path, url, connection)
        try:
            await store.set_up()
            yield store
        finally:
            await settled(store.drain())
    finally:
        await settled(connection.close())


async def _opened(connection: aiosqlite.Connection) -> None:
    await connection
