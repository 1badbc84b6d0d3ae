"""How an open SQLite store shows that it lives: a file of its own that it keeps locked.

The lock goes with the process, however it ends. Linux and macOS only; the file system must keep
`flock` locks, which network file systems often don't.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final
from weakref import WeakSet

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
        """Make the file and lock it."""
        if fcntl is None:
            raise OSError("SQLite stores need Linux or macOS: use memory: or postgresql://…")
        self._descriptor = self._locked()
        _OWNERS.add(self)

    def _locked(self) -> int:
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
        """Return whether another open store lives; the file of a dead one is removed."""
        # The name comes from the database.
        if not _NAME.fullmatch(name):
            return False
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            # Shared: two that look at once must not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def tidy(self) -> None:
        """Remove the files of dead stores."""
        for path in self._folder.iterdir():
            with suppress(OSError):
                self.is_alive(path.name)

    def close(self) -> None:
        """Remove the file, which frees the lock."""
        _OWNERS.discard(self)
        with suppress(OSError):
            (self._folder / self.name).unlink()
        self.leave()

    def leave(self) -> None:
        """Close the descriptor alone, as a forked child must: else the lock outlives the parent."""
        if self._descriptor is not None:
            os.close(self._descriptor)


_OWNERS: Final = WeakSet[Owner]()


def _leave_all() -> None:
    for owner in list(_OWNERS):
        owner.leave()
    _OWNERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
