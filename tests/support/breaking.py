"""Breaks a run off in this process, as a kill would: from one moment on nothing is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from unittest.mock import patch

from duologue.graphs import StoreError
from duologue.graphs.store import sql_saver as saver
from duologue.graphs.store.lease import Lease
from duologue.graphs.store.writer import Statement, Writer


class BrokenOffError(StoreError):
    """What a run ends with that is broken off."""


@dataclass
class Breakage:
    """When a run is broken off.

    Its session stays taken until its store is closed, and then counts as one of a dead process.

    Args:
        write: The number of the write to break off at, from 0. None: none.
        done: Whether that one is still made.
    """

    write: int | None = None
    done: bool = False
    writes: int = 0
    """How many were tried."""
    broken: bool = False

    def now(self) -> NoReturn:
        """Break off here, in a model or a function of the conversation."""
        self.broken = True
        raise BrokenOffError("It is broken off.")

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count every write to a SQL store, those of leases and rows too, and break off."""
        write = Writer.write

        async def counted(
            writer: Writer, *statements: Statement, lease: Lease | None = None
        ) -> int:
            is_last = self.writes == self.write
            self.writes += 1
            if is_last and self.done and not self.broken:
                self.broken = True
                await write(writer, *statements, lease=lease)
            if is_last or self.broken:
                self.now()
            return await write(writer, *statements, lease=lease)

        # What is written late, on a busy machine, would be a write more at some moment.
        with patch.object(Writer, "write", counted), patch.object(saver, "_SOON", 600.0):
            yield
