"""A table in SQL of leases on sessions and batches.

A lease is a row that names its owner, the open store that has acquired it. A lease whose owner is
dead may be taken over. Every write checks its lease in its own transaction.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, LiteralString

from ..common.errors import StoreError
from .base import L, LeaseHolder, Store
from .lease import Lease, LeaseSubject
from .writer import Statement, Writer

LEASE: Final = "SELECT 1 FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
"""Returns a row while a lease is valid."""

_RETRY: Final = 1.0  # seconds


class LeasedStore(Store):
    """A store with a table of leases."""

    owner: str
    writer: Writer
    second_look: float = 0.0
    """Seconds after which an owner that seemed dead is checked a second time. 0 means no second
    check.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._taken = set[int]()
        """The numbers of the leases that are acquired here, or are being acquired."""
        self._freeing = set[asyncio.Task[None]]()

    @abstractmethod
    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, whose placeholders are `?`."""

    @abstractmethod
    def statement(self, sql: LiteralString, *values: object) -> Statement:
        """Return a statement with the placeholders `?` replaced by this database's own."""

    @abstractmethod
    async def _is_alive(self, owner: str) -> bool:
        """Return whether another open store is alive."""

    async def write(self, sql: LiteralString, *values: object, lease: Lease | None = None) -> int:
        """Run and commit one statement; return the number of rows it changed."""
        return await self.writer.write(self.statement(sql, *values), lease=lease)

    async def _is_leased(self, subject: LeaseSubject) -> bool:
        lease = await self._lease(subject)
        return lease is not None and await self._is_in_use(lease)

    async def is_valid(self, lease: Lease) -> bool:
        """Return whether the database still contains this lease."""
        return bool(await self._read(LEASE, *lease.terms))

    async def _lease(self, subject: LeaseSubject) -> tuple[str, int] | None:
        """Return the owner and the number of the lease on a subject, or None if there is none."""
        found = await self._read(
            "SELECT owner, number FROM duologue_leases WHERE session = ?", subject.key
        )
        # Not validated, because a takeover compares the exact stored values.
        return (found[0][0], found[0][1]) if found else None

    async def _is_in_use(self, lease: tuple[str, int]) -> bool:
        """Return whether the owner of a lease still uses it."""
        owner, number = lease
        # A lease of this store that exists only in the table could not be deleted when it was
        # released.
        return number in self._taken if owner == self.owner else await self._is_alive(str(owner))

    async def _take(self, subject: LeaseSubject, make: Callable[[Lease], L]) -> L | None:
        lease = Lease(subject, self.owner, next(self._numbers))
        self._taken.add(lease.number)
        try:
            if await self._acquire(lease):
                return make(lease)
        except BaseException:
            # The writer continues for a cancelled caller, so the lease may be acquired anyway.
            self._taken.remove(lease.number)
            self._free_later(lease)
            raise
        self._taken.remove(lease.number)
        return None

    async def _acquire(self, lease: Lease) -> bool:
        """Acquire a lease; return whether that was possible."""
        # Twice, because the lease may be released between the check and the write.
        for _ in range(2):
            # Written first, because most sessions have no lease.
            added = await self.write(
                "INSERT INTO duologue_leases (session, owner, number) VALUES (?, ?, ?) "
                "ON CONFLICT (session) DO NOTHING",
                *lease.terms,
            )
            if added:
                return True
            held = await self._lease(lease.subject)
            if held is None:
                continue
            if await self._is_in_use(held) or await self._is_alive_after_all(held):
                return False
            taken_over = await self.write(
                "UPDATE duologue_leases SET owner = ?, number = ? "
                "WHERE session = ? AND owner = ? AND number = ?",
                *(lease.owner, lease.number, lease.subject.key, *held),
            )
            if taken_over:
                return True
        return False

    async def _is_alive_after_all(self, lease: tuple[str, int]) -> bool:
        """Pause, then return whether an owner that seemed dead is alive."""
        if not self.second_look or lease[0] == self.owner:
            return False
        await asyncio.sleep(self.second_look)
        return await self._is_in_use(lease)

    async def _free(self, holder: LeaseHolder) -> None:
        lease = holder.lease
        try:
            with suppress(Exception):
                # The writes of a cancelled step come first; their errors have no receiver any more.
                await holder.drain()
            await self._delete(lease)
        except StoreError:
            self._free_later(lease)
        finally:
            self._taken.remove(lease.number)

    def _free_later(self, lease: Lease) -> None:
        """Delete a lease in the background; for other processes it is valid until then."""
        task = asyncio.create_task(self._delete_with_retries(lease))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _delete_with_retries(self, lease: Lease) -> None:
        while True:
            try:
                return await self._delete(lease)
            except StoreError:
                await asyncio.sleep(_RETRY)

    async def _delete(self, lease: Lease) -> None:
        await self.write(
            "DELETE FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?",
            *lease.terms,
        )

    async def close(self) -> None:
        """See `Store.close`."""
        if self._freeing:
            for task in self._freeing:
                task.cancel()
            await asyncio.wait(self._freeing)
        await self.writer.drain()
