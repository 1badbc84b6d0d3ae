"""Sessions in this process's memory, which are lost when it ends: a SQLite database in no file."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeVar

from langgraph.checkpoint.sqlite import SqliteSaver

from .errors import as_store_error, store_errors
from .lease import Job, Lease, Statement, Writer
from .saver import SqliteSessionSaver
from .sqlite import SqliteTables

T = TypeVar("T")


class _Space:
    """The sessions and batches of one address."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.lock = Lock()
        """The lock on the connection: event loops in several threads may share an address."""
        self.owners = set[str]()
        """The names of the open stores."""
        self.stops = 0
        """The number of requested stops."""


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
        self._space = _SPACES.setdefault(url, _Space())
        self.writer = _Writer(self, self._space)

    def _saver(self, lease: Lease | None = None) -> SqliteSessionSaver:
        return SqliteSessionSaver(self.url, self._space.connection, self._run, self.writer, lease)

    async def open(self) -> None:
        """Create the tables if they are missing."""
        connection = self._space.connection
        with self._space.lock:
            self._space.owners.add(self.owner)
            known = connection.execute(self.known_tables).fetchone()
            if not known:
                SqliteSaver(connection).setup()
                connection.execute("BEGIN")
                self.run_jobs(connection, [Job(self.missing_tables([]), lease=None)])

    async def _run(self, function: Callable[[], T]) -> T:
        # In the event loop, since nothing here waits for a disk.
        with self._space.lock:
            return function()

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Tables.read`."""
        with store_errors(self.url), self._space.lock:
            return self._space.connection.execute(sql, values).fetchall()

    def stop_sign(self) -> object:
        """See `Tables.stop_sign`."""
        return self._space.stops

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await super().request_stop(session)
        self._space.stops += 1

    async def _is_alive(self, owner: str) -> bool:
        return owner in self._space.owners

    async def close(self) -> None:
        """See `Store.close`."""
        await super().close()
        self._space.owners.discard(self.owner)


class _Writer(Writer):
    """A writer that commits each job at once, since no other job can wait for a disk."""

    def __init__(self, store: MemoryStore, space: _Space) -> None:
        self._store = store
        self._space = space

    async def write(self, *statements: Statement, lease: Lease | None = None) -> int:
        """See `Writer.write`."""
        if lease is not None:
            lease.is_tried = True
        try:
            with self._space.lock:
                self._space.connection.execute("BEGIN")
                jobs = [Job(statements, lease)]
                (result,) = self._store.run_jobs(self._space.connection, jobs)
        except Exception as error:
            raise as_store_error(self._store.url, error) from error
        if isinstance(result, Exception):
            raise result
        return result

    async def drain(self) -> None:
        """See `Writer.drain`."""
