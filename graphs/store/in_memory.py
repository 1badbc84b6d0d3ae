"""Sessions in this process's memory, which are lost when it ends."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import count
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver

from .base import L, LeaseHolder, SessionLease, Store
from .batches import (
    SUMMED,
    Batches,
    BatchLease,
    BatchRow,
    CellCount,
    CellRow,
    CellsWanted,
    add_counts,
)
from .errors import lost_session, taken_session, unknown_session
from .lease import Lease, LeaseSubject
from .message_files import MemoryFiles
from .rows import SessionRow, SessionStatus, Wanted, new_row, place
from .saver import GuardedSaver, ReplacedReader
from .serializer import PlainSerializer

_OWNER: Final = "memory"
_NUMBERS: Final = count(1)


class _Reader(ReplacedReader, InMemorySaver):
    """A checkpointer that can only be read."""


@dataclass
class _Space:
    """The sessions and batches of one address."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    batches: dict[str, BatchRow] = field(default_factory=dict)
    cells: dict[str, dict[str, CellRow]] = field(default_factory=dict)
    verdicts: dict[str, dict[int, str]] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    saver: _Reader = field(init=False)

    def __post_init__(self) -> None:
        # Serialized, so that reading returns the same values as from a database.
        self.saver = _Reader(serde=PlainSerializer(MemoryFiles(self.files, None)))

    def check(self, lease: Lease) -> None:
        """Raise an error if a lease is lost."""
        key, _, _ = lease.terms
        found = self.leases.get(key)
        if found is None or found.terms != lease.terms:
            raise lease.subject.lost_error()

    def change(self, session: str, url: str, **values: str | bool | None) -> None:
        row = self.rows.get(session)
        if row is None:
            raise unknown_session(session, url)
        self.rows[session] = row.model_copy(update=values | {"updated_at": datetime.now(UTC)})


# Kept as long as the process lives, so that a reopened address has the same sessions.
_SPACES: dict[str, _Space] = {}


class _Saver(GuardedSaver, InMemorySaver):
    """A checkpointer on the sessions of one address, for the run that has leased one of them."""

    def __init__(self, space: _Space, held: "MemorySessionLease") -> None:
        self._files = MemoryFiles(space.files, held.session)
        super().__init__(serde=PlainSerializer(self._files))
        self.storage, self.writes, self.blobs = (
            space.saver.storage,
            space.saver.writes,
            space.saver.blobs,
        )
        self.store_url = held.url
        self._run = held

    def _check_writable(self, session: str) -> None:
        self._run.check(session)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session, and its files."""
        await super().adelete_thread(thread_id)
        self._files.delete(thread_id)

    async def replace_all(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        """See `GuardedSaver.replace_all`."""
        config: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        with self._writing(session):
            self.put(config, checkpoint, metadata, checkpoint["channel_versions"])
            # Deleted afterwards, so that a reader in another thread always finds the session.
            kept, versions = checkpoint["id"], checkpoint["channel_versions"]
            for one in self.storage[session][""].keys() - {kept}:
                del self.storage[session][""][one]
                self.writes.pop((session, "", one), None)
            for key in [*self.blobs]:
                if key[:2] == (session, "") and versions.get(key[2]) != key[3]:
                    del self.blobs[key]


class MemorySessionLease(SessionLease):
    """A lease on a session in memory."""

    def __init__(self, space: _Space, url: str, lease: Lease) -> None:
        self.url = url
        self.session = lease.subject.name
        self.lease = lease
        self._space = space
        self.checkpointer = _Saver(space, self)

    def check(self, session: str) -> None:
        """Raise an error if this is another session, or if the lease is lost."""
        if session != self.session:
            raise lost_session(session)
        self._space.check(self.lease)

    async def add(self, *, title: str, spec: str, forked_from: str | None = None) -> SessionRow:
        """See `SessionLease.add`."""
        self.check(self.session)
        row = new_row(self.session, title, spec, forked_from)
        if self._space.rows.setdefault(self.session, row) is not row:
            raise taken_session(self.session, self.url)
        return row

    async def _remove(self) -> bool:
        self.check(self.session)
        return self._space.rows.pop(self.session, None) is not None

    async def put_verdict(self, number: int, verdict: str) -> None:
        """See `SessionLease.put_verdict`."""
        self.check(self.session)
        self._space.verdicts.setdefault(self.session, {})[number] = verdict

    async def delete_verdicts(self) -> None:
        """See `SessionLease.delete_verdicts`."""
        self.check(self.session)
        self._space.verdicts.pop(self.session, None)

    async def _mark(self, status: SessionStatus, reason: str | None = None) -> None:
        self.check(self.session)
        self._space.change(self.session, self.url, status=status, reason=reason)

    async def clear_stop(self) -> None:
        """See `SessionLease.clear_stop`."""
        self.check(self.session)
        self._space.change(self.session, self.url, stop_requested=False)

    async def touch(self) -> None:
        """See `SessionLease.touch`."""
        self.check(self.session)
        self._space.change(self.session, self.url)


class MemoryStore(Store):
    """A store in memory, shared by all users of the same URL in this process."""

    outlives_process = False

    def __init__(self, url: str) -> None:
        self.url = url
        self._space = _SPACES.setdefault(url, _Space())

    @property
    def checkpointer(self) -> InMemorySaver:
        """See `Store.checkpointer`."""
        return self._space.saver

    @property
    def batches(self) -> "MemoryBatches":
        """See `Store.batches`."""
        return MemoryBatches(self._space)

    async def get(self, session: str) -> SessionRow | None:
        """See `Store.get`."""
        return self._space.rows.get(session)

    async def verdicts(self, session: str) -> Sequence[str]:
        """See `Store.verdicts`."""
        return [one for _, one in sorted(self._space.verdicts.get(session, {}).items())]

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        self._space.change(session, self.url, stop_requested=True)

    async def _take(self, subject: LeaseSubject, make: Callable[[Lease], L]) -> L | None:
        lease = Lease(subject, _OWNER, next(_NUMBERS))
        made = make(lease)
        # `setdefault` is atomic, so two event loops in two threads can't both acquire it.
        return made if self._space.leases.setdefault(subject.key, lease) is lease else None

    async def _free(self, holder: LeaseHolder) -> None:
        del self._space.leases[holder.lease.subject.key]

    async def _is_leased(self, subject: LeaseSubject) -> bool:
        return subject.key in self._space.leases

    def _make_session_lease(self, lease: Lease) -> MemorySessionLease:
        return MemorySessionLease(self._space, self.url, lease)

    def _make_batch_lease(self, lease: Lease) -> "MemoryBatchLease":
        return MemoryBatchLease(self._space, lease)

    async def find(self, wanted: Wanted) -> list[SessionRow]:
        """See `Store.find`."""
        rows = await self.list()
        if wanted.after is not None:
            places = [place(row) for row in rows]
            rows = rows[places.index(wanted.after) + 1 :] if wanted.after in places else []
        cells = None if wanted.batch is None else self._space.cells.get(wanted.batch, {})
        return [
            row
            for row in rows
            if wanted.has(row)
            and (cells is None or row.session in cells)
            and (not wanted.is_leased or row.session in self._space.leases)
        ][: wanted.limit]

    async def locked(self, sessions: Sequence[str]) -> frozenset[str]:
        """See `Store.locked`."""
        return frozenset(self._space.leases.keys() & sessions)

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        # The insertion order decides between rows with the same time.
        rows = reversed(list(self._space.rows.values()))
        return sorted(rows, key=lambda row: row.created_at, reverse=True)


class MemoryBatches(Batches):
    """The batches of one address."""

    def __init__(self, space: _Space) -> None:
        self._space = space

    async def get(self, batch: str) -> BatchRow | None:
        """See `Batches.get`."""
        return self._space.batches.get(batch)

    async def list(self) -> Sequence[BatchRow]:
        """See `Batches.list`."""
        rows = reversed(self._space.batches.values())
        return sorted(rows, key=lambda row: row.created_at, reverse=True)

    def _cells(self, batch: str) -> dict[str, CellRow]:
        return self._space.cells.get(batch, {})

    async def known(self, batch: str, sessions: Sequence[str]) -> dict[str, CellRow]:
        """See `Batches.known`."""
        cells = self._cells(batch)
        return {session: cells[session] for session in sessions if session in cells}

    async def find(self, wanted: CellsWanted) -> Sequence[CellRow]:
        """See `Batches.find`."""
        rows = [row for row in self._cells(wanted.batch).values() if wanted.has(row)]
        return nsmallest(wanted.limit, rows, key=lambda row: (row.number, row.session))

    async def count(self, batch: str) -> Sequence[CellCount]:
        """See `Batches.count`."""
        alike: dict[tuple[Any, ...], list[CellRow]] = defaultdict(list)
        for row in self._cells(batch).values():
            alike[row.status, row.reason].append(row)
        return [
            CellCount(
                status=status,
                reason=reason,
                cells=len(rows),
                **add_counts(row.model_dump(include={*SUMMED}) for row in rows),
            )
            for (status, reason), rows in alike.items()
        ]


class MemoryBatchLease(BatchLease):
    """A lease on a batch in memory."""

    def __init__(self, space: _Space, lease: Lease) -> None:
        super().__init__(lease)
        self._space = space

    async def put(self, row: BatchRow) -> None:
        """See `BatchLease.put`."""
        await self.check()
        self._space.batches[row.batch] = row

    async def put_cell(self, row: CellRow) -> None:
        """See `BatchLease.put_cell`."""
        await self.check()
        self._space.cells.setdefault(row.batch, {})[row.session] = row

    async def delete(self) -> None:
        """See `BatchLease.delete`."""
        await self.check()
        self._space.batches.pop(self.batch, None)
        self._space.cells.pop(self.batch, None)

    async def check(self) -> None:
        """See `BatchLease.check`."""
        self._space.check(self.lease)
