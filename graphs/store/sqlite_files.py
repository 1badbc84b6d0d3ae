"""The files of a SQLite store: their creation, the owner's lock, a connection in a thread.

No function here opens a database file that is in use: closing any descriptor of it drops all locks
of this process on it, and another process may then delete recent writes. The owner's lock ends with
the process. It needs Linux or macOS and a file system with `flock` locks, which network file
systems often lack.
"""

import asyncio
import os
import re
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeVar
from weakref import WeakSet

from .errors import store_failure

_GONE: Final = "it was deleted or replaced while it was in use, and newer messages are not in it"
_CUT: Final = "it was truncated while it was in use; restore it from a copy"


class StoreFile:
    """The file of a SQLite store."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self.locks = path.with_name(f"{path.name}.locks")
        self._files: list[tuple[Path, os.stat_result]] = []
        self._largest = 0

    def prepare(self) -> None:
        """Create the file and its folders if they are missing, readable by their owner only."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.exists():
            self._check_old()
        self.locks.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            # SQLite gives its two side files the mode of the first.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _check_old(self) -> None:
        found = self.path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a file" if not stat.S_ISDIR(found.st_mode) else "Is a directory")
        effective = os.access in os.supports_effective_ids
        if not os.access(self.path, os.R_OK | os.W_OK, effective_ids=effective):
            raise PermissionError("Permission denied")
        if found.st_nlink > 1:
            # SQLite names its side files after the file: with two names there are two stores that
            # overwrite each other.
            raise OSError(
                f"the file has {found.st_nlink} names (hard links), which SQLite can't handle; "
                "copy it instead"
            )

    def opened(self) -> None:
        """Record the identities of the opened files, after the connection has read from them."""
        paths = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        self._files = [(path, path.stat()) for path in paths]
        self._largest = self._files[0][1].st_size

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise an error if the committed data is not in the file that other processes see."""
        try:
            now = [(path.stat(), before) for path, before in self._files]
        except OSError:
            raise store_failure(self.url, _GONE) from None
        if not all(os.path.samestat(found, before) for found, before in now):
            raise store_failure(self.url, _GONE)
        size = now[0][0].st_size
        if size < self._largest and connection.execute("PRAGMA quick_check(1)").fetchone() != (
            "ok",
        ):
            raise store_failure(self.url, _CUT)
        self._largest = size


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NAME: Final = re.compile(r"[0-9a-f]{32}")


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
        self._descriptor = self._create_lock_file()
        _OWNERS.add(self)

    def _create_lock_file(self) -> int:
        while True:
            path = self._folder / self.name
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Another store's `tidy` may have removed it before it was locked.
                with suppress(FileNotFoundError):
                    if os.path.samestat(path.stat(), os.fstat(descriptor)):
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            self.name = token_hex(16)

    def is_alive(self, name: str) -> bool:
        """Return whether another open store is alive; remove the file of a dead one."""
        # The name comes from the database.
        if not _NAME.fullmatch(name):
            return False
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            # Shared, because two simultaneous checks must not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def tidy(self) -> None:
        """Remove the files of stores whose processes have ended."""
        for path in self._folder.iterdir():
            with suppress(OSError):
                self.is_alive(path.name)

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

_CLOSE_SECONDS: Final = 30.0  # seconds


class SqliteThread:
    """A connection in its own thread."""

    connection: sqlite3.Connection

    def __init__(self, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="duologue-store")

    def connect(self) -> None:
        """Open the connection, in the calling thread."""
        # A file that was deleted meanwhile is not created again.
        self.connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=_CLOSE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Call a function in the thread, after all earlier calls."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *given))

    def end(self, *, wait: bool) -> None:
        """End the thread after all earlier calls."""
        self._executor.shutdown(wait=wait)

    def disconnect(self) -> None:
        """Close the connection, in the calling thread."""
        # Opening may have failed.
        if hasattr(self, "connection"):
            with suppress(sqlite3.Error):
                self.connection.close()
