"""The interface of every store: rows of sessions to read, and leases to write sessions."""

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ..common.errors import StoreError
from .batches import Batches
from .errors import unknown_session
from .lease import Lease, LeaseSubject
from .rows import check_session_id
from .session_lease import BatchLease, SessionLease
from .sql_tables import ACQUIRE_NEW, RELEASE, Tables

if TYPE_CHECKING:
    # Code that only lists sessions does not load LangGraph.
    from .saver import SqlSaver

T = TypeVar("T")
L = TypeVar("L", SessionLease, BatchLease)

_PATIENCE: Final = 1.0  # seconds to wait for a session before it counts as busy
_PAUSE: Final = 0.02  # seconds between two attempts, at first
_RETRY: Final = 1.0  # seconds
_IS_KNOWN: Final = (
    "SELECT 1 FROM duologue_leases WHERE session = ? "
    "UNION SELECT 1 FROM duologue_sessions WHERE session = ?"
)


class Store(Tables):
    """A store of sessions: a checkpointer, and a row for each session.

    Get one from `open_store`. Every method, and the checkpointer itself, raises `StoreError` if the
    database fails.

    A lease is a row that names its owner, the open store that has acquired it. A lease whose owner
    is dead may be taken over. Every write checks its lease in its own transaction, and reads
    whether a stop of the session was requested.

    A new session takes these steps:

    1. `open_store` opens the store, or shares the open store of its address.
    2. `SessionLease.begin` adds the lease and the session's row, and `SqlSaver.aput` the
       steps before the first call: the first commit.
    3. `SqlSaver.aput` saves each later checkpoint with the writes before it: one commit for each
       step.
    4. `SessionLease.end` saves the last step, changes the row, leaves one checkpoint, and
       deletes the lease: the last commit.

    Each commit passes `Writer.write` and the database's `_commit`, which checks the lease.
    """

    outlives_process: ClassVar[bool] = True
    """Whether another process can find the sessions of this store."""
    owner: str
    second_look: float = 0.0
    """Seconds after which an owner that seemed dead is checked a second time. 0 means no second
    check.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._taken = set[int]()
        """The numbers of the leases that are acquired here, or are being acquired."""
        self._beginning = dict[LeaseSubject, Lease]()
        """The leases of sessions that were new here. Their first writes acquire them."""
        self._freeing = set[asyncio.Task[None]]()

    @property
    def address(self) -> str:
        """Return the address that opens the store again. It may contain a password."""
        return self.url

    @abstractmethod
    def _saver(self, lease: Lease | None = None) -> "SqlSaver":
        """Return a saver that writes under a lease; without a lease it only reads."""

    @cached_property
    def checkpointer(self) -> "SqlSaver":
        """Return LangGraph's saver, for reading only."""
        return self._saver()

    @cached_property
    def batches(self) -> Batches:
        """Return the batches of this store."""
        return Batches(self.url, self.each_of, self.read)

    async def delete(self, session: str) -> None:
        """Delete the row of `session` and all its checkpoints."""
        async with self.lock(session) as held:
            # The row may be damaged, so it is not read.
            if not await held.erase():
                raise unknown_session(session, self.url)

    @asynccontextmanager
    async def lock(
        self, session: str, *, is_new: bool = False, is_random: bool = False
    ) -> AsyncIterator[SessionLease]:
        """Lease `session` to one run, until the block ends or this process dies.

        Args:
            session: The session's id.
            is_new: Whether the session was not found. Then `SessionLease.begin` may acquire the
                lease: see `SessionLease.is_acquired`.
            is_random: Whether the id of the new session was just made at random, so that no other
                run can have a lease on it.
        """
        check_session_id(session)

        def make(lease: Lease) -> SessionLease:
            return SessionLease(self, lease, self._saver(lease))

        subject = LeaseSubject("session", session)
        async with self._hold(subject, make, is_new=is_new, is_random=is_random) as held:
            yield held

    async def is_locked(self, session: str) -> bool:
        """Return whether a run has a lease on `session` now."""
        return await self._is_leased(LeaseSubject("session", session))

    async def locked(self, sessions: Sequence[str]) -> frozenset[str]:
        """Return those of the sessions on which a run has a lease now."""
        sql = "SELECT session, owner, number FROM duologue_leases WHERE session IN "
        found = await self.read(sql + f"({self.each_of})", json.dumps([*sessions]))
        leases = [(name, (owner, number)) for name, owner, number in found]
        return frozenset([name for name, lease in leases if await self._is_in_use(lease)])

    @asynccontextmanager
    async def lock_batch(self, batch: str) -> AsyncIterator[BatchLease]:
        """Lease `batch` to one run, until the block ends or this process dies."""
        async with self._hold(LeaseSubject("batch", batch), partial(BatchLease, self)) as lease:
            yield lease

    def share_batch_lease(self, batch: str, owner: str, number: int) -> BatchLease:
        """Return a lease that another process has acquired, for writes on its behalf.

        If the lease is lost, these writes fail like those of the other process.
        """
        return BatchLease(self, Lease(LeaseSubject("batch", batch), owner, number))

    async def is_batch_locked(self, batch: str) -> bool:
        """Return whether a run has a lease on `batch` now."""
        return await self._is_leased(LeaseSubject("batch", batch))

    @asynccontextmanager
    async def _hold(
        self,
        subject: LeaseSubject,
        make: Callable[[Lease], L],
        *,
        is_new: bool = False,
        is_random: bool = False,
    ) -> AsyncIterator[L]:
        until, pause = time.monotonic() + _PATIENCE, _PAUSE
        while (lease := await self._take(subject, is_new=is_new, is_random=is_random)) is None:
            if time.monotonic() > until:
                raise subject.busy_error()
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.2)
        holder: L | None = None
        try:
            holder = make(lease)
            yield holder
        finally:
            await settled(self._free(lease, holder))

    async def _is_leased(self, subject: LeaseSubject) -> bool:
        lease = await self._lease(subject)
        return lease is not None and await self._is_in_use(lease)

    async def _lease(self, subject: LeaseSubject) -> tuple[str, int] | None:
        """Return the owner and the number of the lease on a subject, or None if there is none."""
        found = await self.read(
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

    @abstractmethod
    async def _is_alive(self, owner: str) -> bool:
        """Return whether another open store is alive."""

    async def _take(self, subject: LeaseSubject, *, is_new: bool, is_random: bool) -> Lease | None:
        if subject in self._beginning:
            return None
        lease = Lease(subject, self.owner, next(self._numbers))
        self._taken.add(lease.number)
        try:
            if is_new:
                self._beginning[subject] = lease
                # A fork has a lease before its row, and a killed process may have left one. Another
                # run may have begun the session since it was not found.
                if is_random or not await self.read(_IS_KNOWN, subject.key, subject.key):
                    values = *lease.terms, subject.key
                    lease.acquisition = self.statement(ACQUIRE_NEW, *values)
                    return lease
                del self._beginning[subject]
            if await self._acquire(lease):
                return lease
        except BaseException:
            # The writer continues for a cancelled caller, so the lease may be acquired anyway.
            self._forget(lease)
            self._free_later(lease)
            raise
        self._forget(lease)
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
            if await self._is_in_use(held):
                return False
            if self.second_look and held[0] != self.owner:
                await asyncio.sleep(self.second_look)
                if await self._is_in_use(held):
                    return False
            taken_over = await self.write(
                "UPDATE duologue_leases SET owner = ?, number = ? "
                "WHERE session = ? AND owner = ? AND number = ?",
                *(lease.owner, lease.number, lease.subject.key, *held),
            )
            if taken_over:
                return True
        return False

    async def _free(self, lease: Lease, holder: SessionLease | BatchLease | None) -> None:
        try:
            if holder is not None:
                with suppress(Exception):
                    # The writes of a cancelled step come first; their errors have no receiver any
                    # more.
                    await holder.drain()
            is_released, lease.is_released = lease.is_released, True
            if not is_released and (lease.is_tried or lease.acquisition is None):
                await self._delete(lease)
        except StoreError:
            self._free_later(lease)
        finally:
            self._forget(lease)

    def _forget(self, lease: Lease) -> None:
        self._taken.remove(lease.number)
        if self._beginning.get(lease.subject) is lease:
            del self._beginning[lease.subject]

    def _free_later(self, lease: Lease) -> None:
        """Delete a lease in the background; for other processes it is valid until then."""

        async def delete_with_retries() -> None:
            while True:
                try:
                    return await self._delete(lease)
                except StoreError:
                    await asyncio.sleep(_RETRY)

        task = asyncio.create_task(delete_with_retries())
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _delete(self, lease: Lease) -> None:
        await self.write(RELEASE, *lease.terms)

    async def open(self) -> None:
        """Prepare the store for use."""
        return

    async def close(self) -> None:
        """Release all open resources, even after `open` has failed."""
        if self._freeing:
            for task in self._freeing:
                task.cancel()
            await asyncio.wait(self._freeing)
        await self.writer.drain()


async def settled(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even if the caller is cancelled meanwhile."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Read here, so that asyncio does not report an exception that no caller retrieves.
        _ = task.cancelled() or task.exception()
        raise cancelled
    return task.result()
