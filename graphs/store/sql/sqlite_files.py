"""The files of a SQLite store: how they are made, and whether they are still the same ones.

Nothing here opens a database file that is in use: closing any descriptor of it drops all the locks
that this process holds on it, and another process may then delete what was just written.
"""

import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import store_failure

_GONE: Final = (
    "it was deleted or replaced while it was in use, and what was said since then is not in it"
)
_CUT: Final = "it was cut short while it was in use: restore it from a copy"


class StoreFile:
    """The file of a SQLite store."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self.locks = path.with_name(f"{path.name}.locks")
        self._files: list[tuple[Path, os.stat_result]] = []
        self._largest = 0

    def prepare(self) -> None:
        """Make the file and its folders where they are missing, readable by their owner only."""
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
            # SQLite names its side files by the file: two names are two stores that overwrite
            # each other.
            raise OSError(
                f"the file has {found.st_nlink} names (hard links), which SQLite can't keep apart: "
                "copy it instead"
            )

    def opened(self) -> None:
        """Note which files were opened; the connection has read from them."""
        paths = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        self._files = [(path, path.stat()) for path in paths]
        self._largest = self._files[0][1].st_size

    def check(self, connection: sqlite3.Connection) -> None:
        """Make sure that what was committed is where others look for it."""
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
