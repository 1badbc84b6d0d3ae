"""Sessions in this process's memory, which are lost when it ends: a SQLite database in no file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeVar

from langgraph.checkpoint.sqlite import SqliteSaver

from .errors import as_store_error, store_errors
from .lease import Job, Lease, Results, WriteFailure, Writer
from .saver import SqliteSessionSaver
from .sqlite import SqliteTables

T = TypeVar("T")


class _Space:
    """The sessions and batches of one address."""

    def __init__(self) -> None:
        self.lock = Lock()
        """The lock on the connection: event loops in several threads may share an address."""
        self.owners = set[str]()
        """The names of the open stores."""
        self.stops = 0
        """The number of requested stops."""

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """The connection to the database, which ends with it."""
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


# Kept as long as the process lives, so that a reopened address has the same sessions.
_SPACES: Final[dict[str, _Space]] = {}
_HELD: Final = list[Lock]()


def _hold_all() -> None:
    for space in [*_SPACES.values()]:
        space.lock.acquire()
        _HELD.append(space.lock)


def _release_all() -> None:
    while _HELD:
        _HELD.pop().release()


if hasattr(os, "register_at_fork"):
    # The child's copy of a database that another thread is using could not be used.
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)


class MemoryStore(SqliteTables):
    """A store in memory, shared by all users of the same URL in this process."""

    outlives_process = False

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.owner = token_hex(16)
        self.writer = Writer(self._commit, self._explain)
        self._space = _SPACES.setdefault(url, _Space())
        # LangGraph's dev server refuses calls of SQLite in an event loop, also if they take no
        # time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duologue-store")

    def _saver(self, lease: Lease | None = None) -> SqliteSessionSaver:
        return SqliteSessionSaver(self.url, self._space.connection, self._run, self.writer, lease)

    async def open(self) -> None:
        """Create the tables if they are missing."""
        await self._run(self._prepare)

    def _prepare(self) -> None:
        connection = self._space.connection
        self._space.owners.add(self.owner)
        if not connection.execute(self.known_tables).fetchone():
            SqliteSaver(connection).setup()
            self._write([Job(self.missing_tables([]), lease=None)])

    async def _run(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, while no other thread uses the connection."""

        def call() -> T:
            with self._space.lock:
                return function()

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Tables.read`."""
        with store_errors(self.url):
            return await self._run(lambda: self._space.connection.execute(sql, values).fetchall())

    def stop_sign(self) -> object:
        """See `Tables.stop_sign`."""
        return self._space.stops

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await super().request_stop(session)
        self._space.stops += 1

    async def _is_alive(self, owner: str) -> bool:
        return owner in self._space.owners

    async def _commit(self, jobs: Sequence[Job]) -> Results:
        return await self._run(partial(self._write, jobs))

    def _write(self, jobs: Sequence[Job]) -> Results:
        self._space.connection.execute("BEGIN")
        return self.run_jobs(self._space.connection, jobs)

    def _explain(self, error: Exception) -> WriteFailure:
        return WriteFailure(as_store_error(self.url, error), is_for_all=False)

    async def close(self) -> None:
        """See `Store.close`."""
        await super().close()
        self._space.owners.discard(self.owner)
        self._thread.shutdown(wait=False)
