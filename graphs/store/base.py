"""The interface of every store: rows of sessions to read, and leases to write sessions."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from .batches import Batches, BatchLease
from .errors import unknown_session
from .lease import Lease, LeaseSubject
from .rows import SessionRow, Wanted, check_session_id

if TYPE_CHECKING:
    # Code that only lists sessions does not load LangGraph.
    from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata

    from .saver import GuardedSaver

T = TypeVar("T")
L = TypeVar("L", bound="LeaseHolder")

_PATIENCE: Final = 1.0  # seconds to wait for a session before it counts as busy
_PAUSE: Final = 0.02  # seconds between two attempts, at first


# Inside the class, `list` is its method.
_Rows: TypeAlias = list[SessionRow]


class LeaseHolder(Protocol):
    """A writer that works under a lease."""

    lease: Lease

    async def drain(self) -> None:
        """Await the writes in progress."""


class SessionLease(ABC):
    """A lease on a session, which permits only this run to write it.

    Get one from `Store.lock`. Every method that writes, and the checkpointer, raises `SessionError`
    without writing if the run has lost the lease, and `StoreError` if the database fails.
    """

    checkpointer: "GuardedSaver"

    def __init__(self, url: str, lease: Lease) -> None:
        self.session = lease.subject.name
        self.url = url
        self.lease = lease

    @property
    def is_acquired(self) -> bool:
        """Return whether this run has the lease. If not, `begin` acquires it."""
        return self.lease.acquisition is None

    @abstractmethod
    async def stop_requested(self, session: str) -> bool:
        """Return whether a stop of the session was requested. `session` is its id."""

    @abstractmethod
    async def add(
        self, *, title: str, spec: str, forked_from: str | None = None, tools: str = "{}"
    ) -> SessionRow:
        """Add the session's row, unfinished."""

    async def begin(self, *, title: str, spec: str, tools: str = "{}") -> None:
        """Add the session's row, and delete the state that a killed fork has left under its id.

        Raises:
            SessionError: Another run has begun the session meanwhile.
        """
        await self.checkpointer.adelete_thread(self.session)
        await self.add(title=title, spec=spec, tools=tools)
        self.checkpointer.record_steps()

    async def finish(self, reason: str) -> None:
        """Mark the session as finished because of `reason`; a second call replaces the reason."""
        await self._change(status="finished", reason=reason)

    async def end(
        self, reason: str, whole: "tuple[Checkpoint, CheckpointMetadata] | None" = None
    ) -> None:
        """Mark the session as finished because of `reason`. Nothing may be written afterwards.

        Args:
            reason: The reason of the end.
            whole: A checkpoint with the whole state, and its metadata, that replace all
                checkpoints. If None, the checkpoints remain.
        """
        await self.finish(reason)
        if whole is not None:
            await self.checkpointer.replace_all(self.session, *whole)

    async def wait(self) -> None:
        """Mark the session as waiting for a person."""
        await self._change(status="waiting", reason=None)

    async def reopen(self) -> None:
        """Mark the session as unfinished, from any status."""
        await self._change(status="unfinished", reason=None)

    async def clear_stop(self) -> None:
        """Clear a stop request for the session, as a starting run does."""
        await self._change(stop_requested=False)

    async def touch(self) -> None:
        """Note in the session's row that it was used now."""
        await self._change()

    @abstractmethod
    async def _change(self, **values: str | bool | None) -> None:
        """Change fields of the session's row, and the time of its last change."""

    @abstractmethod
    async def put_verdict(self, number: int, verdict: str) -> None:
        """Store a verdict about the session beside its log.

        Args:
            number: The number of the verdict among the session's verdicts, from 1.
            verdict: The verdict, as JSON text.
        """

    @abstractmethod
    async def delete_verdicts(self) -> None:
        """Delete the verdicts that are stored beside the session's log."""

    async def erase(self) -> bool:
        """Delete the session's row and all its checkpoints; return whether there was a row."""
        # The row is deleted last, so that after a kill in between the session can be deleted again.
        await self.checkpointer.adelete_thread(self.session)
        await self.delete_verdicts()
        return await self._remove()

    @abstractmethod
    async def _remove(self) -> bool:
        """Delete only the session's row; return whether there was one."""

    async def drain(self) -> None:
        """Await the writes in progress."""
        await self.lease.drain()


class Store(ABC):
    """A store of sessions: a checkpointer, and a row for each session.

    Get one from `open_store`. Every method, and the checkpointer itself, raises `StoreError` if the
    database fails.
    """

    url: str
    """The address for display, without a password."""
    outlives_process: ClassVar[bool] = True
    """Whether another process can find the sessions of this store."""

    @property
    def address(self) -> str:
        """Return the address that opens the store again. It may contain a password."""
        return self.url

    @property
    @abstractmethod
    def checkpointer(self) -> "BaseCheckpointSaver[str]":
        """Return LangGraph's saver, for reading only."""

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """Return the batches of this store."""

    @abstractmethod
    async def get(self, session: str) -> SessionRow | None:
        """Return the row of `session`, or None if there is no such session."""

    @abstractmethod
    async def list(self) -> _Rows:
        """Return every row, newest first by `created_at`, without reading checkpoints."""

    @abstractmethod
    async def find(self, wanted: Wanted) -> _Rows:
        """Return the rows that match the filter, in the order of `list`."""

    @abstractmethod
    async def verdicts(self, session: str) -> Sequence[str]:
        """Return the verdicts stored beside a session's log, as JSON texts, oldest first."""

    @abstractmethod
    async def request_stop(self, session: str) -> None:
        """Request that the run of `session`, here or in another process, stops at its next turn."""

    async def stop_requested(self, session: str) -> bool:
        """Return whether a stop of `session` was requested."""
        row = await self.get(session)
        if row is None:
            raise unknown_session(session, self.url)
        return row.stop_requested

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
        subject = LeaseSubject("session", session)
        async with self._hold(
            subject, self._make_session_lease, is_new=is_new, is_random=is_random
        ) as held:
            yield held

    async def is_locked(self, session: str) -> bool:
        """Return whether a run has a lease on `session` now."""
        return await self._is_leased(LeaseSubject("session", session))

    @abstractmethod
    async def locked(self, sessions: Sequence[str]) -> Collection[str]:
        """Return those of the sessions on which a run has a lease now."""

    @asynccontextmanager
    async def lock_batch(self, batch: str) -> AsyncIterator[BatchLease]:
        """Lease `batch` to one run, until the block ends or this process dies."""
        async with self._hold(LeaseSubject("batch", batch), self._make_batch_lease) as lease:
            yield lease

    def share_batch_lease(self, batch: str, owner: str, number: int) -> BatchLease:
        """Return a lease that another process has acquired, for writes on its behalf.

        If the lease is lost, these writes fail like those of the other process.
        """
        return self._make_batch_lease(Lease(LeaseSubject("batch", batch), owner, number))

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

    @abstractmethod
    async def _take(self, subject: LeaseSubject, *, is_new: bool, is_random: bool) -> Lease | None:
        """Acquire a lease; return None if another run has it."""

    @abstractmethod
    async def _free(self, lease: Lease, holder: LeaseHolder | None) -> None:
        """Release a lease, after the holder's writes."""

    @abstractmethod
    async def _is_leased(self, subject: LeaseSubject) -> bool:
        """Return whether a run has a lease on the subject now."""

    @abstractmethod
    def _make_session_lease(self, lease: Lease) -> SessionLease:
        """Return a writer of a session under its lease."""

    @abstractmethod
    def _make_batch_lease(self, lease: Lease) -> BatchLease:
        """Return a writer of a batch under its lease."""

    async def open(self) -> None:
        """Prepare the store for use."""
        return

    async def close(self) -> None:
        """Release all open resources, even after `open` has failed."""
        return


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
