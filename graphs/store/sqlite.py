"""Sessions in one SQLite file, which several processes may use at once.

Each open store has two connections, one to read and one to write, each in its own thread. Nothing
here opens a database file that is in use: closing any descriptor of it drops all locks of this
process on it, and another process may then delete recent writes. The owner's lock ends with the
process. It needs Linux or macOS and a file system with `flock` locks, which network file systems
often lack.
"""

import asyncio
import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar
from weakref import WeakSet

from ..common.errors import StoreError
from ..common.files import create_locked_file
from .base import Store
from .errors import as_store_error, store_errors, store_failure
from .lease import Job, Lease, LeaseSubject, Results, WriteFailure, Writer
from .sql_tables import LEASE, STORE_VERSION

if TYPE_CHECKING:
    from .saver import SqliteSessionSaver


_GONE: Final = "it was deleted or replaced while it was in use, and newer messages are not in it"
_REPLACED: Final = (
    "{name}, {name}-wal or {name}-shm was deleted or replaced while a run used it; wait until that "
    "run has ended, or delete {name}-wal and {name}-shm if it was killed"
)
_CUT: Final = "it was truncated while it was in use; restore it from a copy"
_CLOSE_SECONDS: Final = 30.0  # seconds
_SIDE_FILES: Final = 64 * 1024  # bytes
_INDEX: Final = 32 * 1024  # bytes of the index of a WAL, at least


class StoreFile:
    """The file of a SQLite store."""

    is_read_only = False
    """Whether the file can be read only, because of its disk or its mode. See `prepare`."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self.locks = path.with_name(f"{path.name}.locks")
        self._wal, self._index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
        self._files: list[tuple[Path, os.stat_result]] = []
        self._largest = 0
        self._unchanged: tuple[object, ...] = ()

    def prepare(self, is_alive: Callable[[str], bool]) -> None:
        """Create the file and its folders if they are missing, readable by their owner only.

        Args:
            is_alive: A function that returns whether the owner of a lock file is alive.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.exists():
            self._check_old()
        if self.is_read_only:
            return
        self.locks.mkdir(mode=0o700, exist_ok=True)
        self._check_owners(is_alive)
        with suppress(FileExistsError):
            # SQLite gives its two side files the mode of the first.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _check_old(self) -> None:
        found = self.path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a file" if not stat.S_ISDIR(found.st_mode) else "Is a directory")
        if not _is_allowed(self.path, os.R_OK):
            raise PermissionError("Permission denied")
        if found.st_nlink > 1:
            # SQLite names its side files after the file: with two names there are two stores that
            # overwrite each other.
            raise OSError(
                f"the file has {found.st_nlink} names (hard links), which SQLite can't handle; "
                "copy it instead"
            )
        written = [self.path, self.path.parent, *([self.locks] if self.locks.exists() else [])]
        self.is_read_only = not all(_is_allowed(one, os.W_OK) for one in written)

    def _check_owners(self, is_alive: Callable[[str], bool]) -> None:
        """Raise an error if the files do not belong together, which SQLite would not notice."""
        for lock in self.locks.iterdir():
            try:
                before = lock.read_text("ascii", errors="replace").split(",")
            except OSError:
                continue
            # Read after the lock file: another process may have opened the store just now.
            here = self._identities()
            # A copy of a killed run's files is accepted: all of its files have other numbers.
            is_left = before[0] != here[0] and before[1:2] == here[1:2] != [""]
            if is_left or (len(before) == len(here) and before != here and is_alive(lock.name)):
                raise store_failure(self.url, _REPLACED.format(name=self.path.name))

    def _identities(self) -> list[str]:
        return [_inode(path) for path in (self.path, self._wal, self._index)]

    def connect(self) -> sqlite3.Connection:
        """Return a connection to the file. A file that was deleted meanwhile is not created."""
        options = "mode=rw"
        if self.is_read_only and not _size(self._wal):
            # Otherwise SQLite tries to create the WAL. It must notice no change of the file then.
            options = "mode=ro&immutable=1"
            self._unchanged = self._state()
        elif self.is_read_only:
            # Without the WAL's index, SQLite reads the WAL only under an exclusive lock, which a
            # file that can't be written does not permit, and which nobody needs here.
            has_index = _size(self._index) >= _INDEX
            options = "mode=ro" if has_index else "mode=ro&vfs=unix-none"
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?{options}",
            uri=True,
            timeout=_CLOSE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        if options.endswith("none"):
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        return connection

    def lacks_space(self) -> bool:
        """Return whether the disk has no room for the side files."""
        return shutil.disk_usage(self.path.parent).free < _SIDE_FILES

    def _state(self) -> tuple[object, ...]:
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size, _size(self._wal)

    def check_unchanged(self) -> None:
        """Raise an error if a file that SQLite reads as immutable has changed meanwhile."""
        if self._unchanged and self._unchanged != self._state():
            raise store_failure(self.url, "it was changed while it was read", "open it again")

    def record_files(self) -> str:
        """Record the identities of the opened files, after the connection has read from them.

        Returns:
            The identities, for the lock file of the owner.
        """
        self._files = [(path, path.stat()) for path in (self.path, self._wal, self._index)]
        self._largest = self._files[0][1].st_size
        return ",".join(self._identities())

    def is_replaced(self) -> bool:
        """Return whether one of the files was deleted or replaced since it was opened."""
        try:
            return not all(os.path.samestat(path.stat(), before) for path, before in self._files)
        except OSError:
            return True

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise an error if the committed data is not in the file that other processes see."""
        if self.is_replaced():
            raise store_failure(self.url, _GONE)
        size = self.path.stat().st_size
        if size < self._largest and connection.execute("PRAGMA quick_check(1)").fetchone() != (
            "ok",
        ):
            raise store_failure(self.url, _CUT)
        self._largest = size


def _is_allowed(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _inode(path: Path) -> str:
    """Return the number of a file, or an empty text if there is no such file."""
    try:
        return str(path.stat().st_ino)
    except OSError:
        return ""


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Owner:
    """An open store, known to other processes by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = token_hex(16)
        self._descriptor: int | None = None

    def open(self) -> None:
        """Create the lock file and lock it."""
        if fcntl is None:
            raise OSError("SQLite stores need Linux or macOS; use memory: or postgresql://…")
        lock, self._descriptor = create_locked_file(lambda: self._folder / token_hex(16), 0o600)
        self.name = lock.name
        # Fails if the file system has no locks.
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        _OWNERS.add(self)

    def write(self, text: str) -> None:
        """Write a text into the lock file."""
        if self._descriptor is not None:
            os.pwrite(self._descriptor, text.encode(), 0)

    def stop_sign(self) -> object:
        """Return a value that changes at each call of `sign_stop` with this owner's name."""
        return None if self._descriptor is None else os.fstat(self._descriptor).st_mtime_ns

    def sign_stop(self, name: str) -> None:
        """Inform another open store that a stop of one of its sessions was requested."""
        now = time.time_ns()
        # Without the sign, the store reads the request at its next write.
        with suppress(OSError):
            os.utime(self._path(name), ns=(now, now))

    def _path(self, name: str) -> Path:
        # The name comes from the database.
        if not re.fullmatch("[0-9a-f]{32}", name):
            raise FileNotFoundError(name)
        return self._folder / name

    def is_alive(self, name: str, *, remove: bool = True) -> bool:
        """Return whether another open store is alive; remove the file of a dead one."""
        try:
            path = self._path(name)
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except PermissionError:
            # The file of another user, who removes it when the store is closed.
            return True
        try:
            # Shared, because two simultaneous checks must not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # On a read-only disk it stays.
            with suppress(OSError):
                if remove:
                    path.unlink()
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def close(self) -> None:
        """Remove the file, which releases the lock."""
        _OWNERS.discard(self)
        with suppress(OSError):
            (self._folder / self.name).unlink()
        self.leave()

    def leave(self) -> None:
        """Close only the descriptor; a forked child must do so, or its copy keeps the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)


_OWNERS: Final = WeakSet[Owner]()


def _leave_all() -> None:
    for owner in list(_OWNERS):
        owner.leave()
    _OWNERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)


T = TypeVar("T")


class SqliteThread(ThreadPoolExecutor):
    """A connection in its own thread."""

    connection: sqlite3.Connection

    def __init__(self, file: StoreFile) -> None:
        super().__init__(1, thread_name_prefix="duologue-store")
        self._file = file

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Call a function in the thread, after all earlier calls."""
        return await asyncio.get_running_loop().run_in_executor(self, partial(function, *given))

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads, in the thread; raise `StoreError` if the file changed."""

        def read() -> T:
            try:
                return function()
            finally:
                self._file.check_unchanged()

        return await self.run(read)

    def disconnect(self) -> None:
        """Close the connection, in the calling thread."""
        # Opening may have failed.
        if hasattr(self, "connection"):
            with suppress(sqlite3.Error):
                self.connection.close()


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


class SqliteTables(Store):
    """A store in a SQLite database, in a file or in memory."""

    each_of = "SELECT value FROM json_each(?)"
    # With the title, so that lists do not read the rows, whose specs are long. PostgreSQL limits
    # the size of an index entry.
    by_time = "created_at DESC, session, title"
    known_tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'duologue_schema'"

    def run_jobs(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> Results:
        """Run jobs in the transaction of a connection, and commit it."""
        sign, stops = self.stop_sign(), dict[Lease, bool]()
        try:
            results = [_run_job(connection, job, stops) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            # Some errors have already rolled the transaction back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for lease, stop_requested in stops.items():
            lease.note_write(sign, stop_requested=stop_requested)
        return results


class SqliteStore(SqliteTables):
    """A store in one SQLite file."""

    def __init__(self, path: Path, url: str) -> None:
        super().__init__()
        self.url = url
        self._file = StoreFile(path, url)
        self._owner = Owner(self._file.locks)
        self._writing = SqliteThread(self._file)
        self._reading = SqliteThread(self._file)
        self.writer = Writer(partial(self._writing.run, self._commit), self._explain)
        self._is_closing = False
        self._has_lease = False
        self._needs_checkpoints = False
        """Whether the next commit first creates LangGraph's tables, if they are missing."""

    def _saver(self, lease: Lease | None = None) -> "SqliteSessionSaver":
        from .saver import SqliteSessionSaver  # loads LangGraph

        reading = self._reading
        return SqliteSessionSaver(self.url, reading.connection, reading.read, self.writer, lease)

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
        # From here on `_run_when_free` waits instead: it stops when the store is closed.
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
            thread.connection = self._file.connect()

    def _prepare_writing(self, connection: sqlite3.Connection) -> None:
        self._owner.open()
        # In WAL mode, readers don't wait for the writer.
        self._run_when_free("PRAGMA journal_mode = WAL")
        # Commits survive a power failure; fullfsync is for macOS.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        # The first read creates the WAL.
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        self._owner.write(self._file.record_files())
        # The files of stores whose processes have ended are removed.
        for lock in self._file.locks.iterdir():
            with suppress(OSError):
                self._owner.is_alive(lock.name)

    async def _take(self, subject: LeaseSubject, *, is_new: bool, is_random: bool) -> Lease | None:
        self._needs_checkpoints |= not self._has_lease
        self._has_lease = True
        return await super()._take(subject, is_new=is_new, is_random=is_random)

    def _make_checkpoints(self) -> None:
        """Create LangGraph's tables if they are missing; listing sessions needs none of them."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = self._writing.connection
        connection.execute(f"PRAGMA busy_timeout = {_WAIT * 1000:.0f}")
        try:
            SqliteSaver(connection).setup()
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
        self._needs_checkpoints = False

    def stop_sign(self) -> object:
        """See `Tables.stop_sign`."""
        return self._owner.stop_sign()

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await super().request_stop(session)
        if lease := await self._lease(LeaseSubject("session", session)):
            await self._reading.run(self._owner.sign_stop, str(lease[0]))

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Tables.read`."""

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
        if self._needs_checkpoints:
            self._make_checkpoints()
        self._run_when_free("BEGIN IMMEDIATE")
        results = self.run_jobs(connection, jobs)
        self._file.check(connection)
        return results

    def _run_when_free(self, sql: LiteralString) -> None:
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
        self._writing.shutdown(wait=False)

    def _close(self) -> None:
        self._owner.close()
        # A cancelled caller may have left a read running.
        self._reading.shutdown()
        self._reading.disconnect()
        if self._file.is_replaced():
            # Or the WAL would remain, and become a part of the file that has replaced this one.
            with suppress(sqlite3.Error):
                self._writing.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # The last connection to close moves the WAL into the file and removes the side files.
        self._writing.disconnect()


def _run_job(connection: sqlite3.Connection, job: Job, stops: dict[Lease, bool]) -> int | Exception:
    """Run the statements of a job; add to `stops` whether the session was asked to stop."""
    lease = job.lease
    if lease is not None:
        if lease.acquisition is not None:
            connection.execute(lease.acquisition.sql, lease.acquisition.values)
        found = connection.execute(LEASE, lease.terms).fetchone()
        if found is None:
            return lease.refusal()
        stops[lease] = bool(found[0])
    changed = 0
    for sql, given, many in job.statements:
        cursor = (connection.executemany if many else connection.execute)(sql, given)
        changed = cursor.rowcount
    return changed
