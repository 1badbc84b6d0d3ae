"""Interruptions of a run within this process: like a kill, they prevent all later writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from unittest.mock import patch

from duologue.graphs import StoreError
from duologue.graphs.store import saver
from duologue.graphs.store.lease import Lease, Statement, Writer


class BrokenOffError(StoreError):
    """The error that ends an interrupted run."""


@dataclass
class Breakage:
    """An interruption of a run at a chosen write.

    The session keeps its lease until its store is closed. Then it counts as a session of a dead
    process.

    Args:
        write: Number of the write that is interrupted, from 0. No write if None.
        done: Whether that write is still made.
    """

    write: int | None = None
    done: bool = False
    writes: int = 0
    """Number of attempted writes."""
    broken: bool = False

    def now(self) -> NoReturn:
        """Interrupt the run here, in a model or in a function of the conversation."""
        self.broken = True
        raise BrokenOffError("It is broken off.")

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count all writes to SQL stores, also of leases and rows; interrupt the chosen one."""
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

        # On a busy machine, delayed writes would change the numbers of the other writes.
        with patch.object(Writer, "write", counted), patch.object(saver, "_SOON", 600.0):
            yield
