"""A connection to a SQLite file in a thread of its own."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_WAIT: Final = 30.0  # seconds


class SqliteThread:
    """A connection in a thread of its own."""

    connection: sqlite3.Connection

    def __init__(self, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="duologue-store")

    def connect(self) -> None:
        """Open the connection, in whatever thread this is called."""
        # A file that was deleted meanwhile is not made anew.
        self.connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT,
            isolation_level=None,
            check_same_thread=False,
        )

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Call a function in the thread, after all calls that were made before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *given))

    def end(self, *, wait: bool) -> None:
        """End the thread after all calls that were made before."""
        self._executor.shutdown(wait=wait)

    def disconnect(self) -> None:
        """Close the connection, in whatever thread this is called."""
        # Opening may have failed.
        if hasattr(self, "connection"):
            with suppress(sqlite3.Error):
                self.connection.close()
