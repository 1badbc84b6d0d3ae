"""Sessions in this process's memory, which are lost when it ends."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from heapq import nsmallest
from itertools import count
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver

from .base import LeaseHolder, SessionLease, Store
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
from .errors import taken_session, unknown_session
from .lease import Lease, LeaseSubject
from .rows import SessionRow, Wanted, new_row, place
from .saver import GuardedSaver
from .serializer import PlainSerializer, encode_file

_OWNER: Final = "memory"
_NUMBERS: Final = count(1)


class _Files:
    """The files of the sessions in memory.

    Args:
        known: The files of all sessions: their bytes by digest, then by session.
        session: The session that is written. None if nothing is written.
    """

    def __init__(self, known: dict[str, dict[str, bytes]], session: str | None) -> None:
        self._known = known
        self._session = session

    def put(self, digest: str, data: bytes) -> None:
        """See `MessageFiles.put`."""
        if self._session is not None:
            self._known.setdefault(digest, {})[self._session] = data

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        found = [*self._known.get(digest, {}).values()]
        return encode_file(digest, found[0] if found else None)

    def delete(self, session: str) -> None:
        """Delete the files of a session."""
        for digest in [*self._known]:
            found = self._known[digest]
            found.pop(session, None)
            if not found:
                self._known.pop(digest, None)


@dataclass
class _Space:
    """The sessions and batches of one address."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    batches: dict[str, BatchRow] = field(default_factory=dict)
    cells: dict[str, dict[str, CellRow]] = field(default_factory=dict)
    verdicts: dict[str, dict[int, str]] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    checkpoints: InMemorySaver = field(default_factory=InMemorySaver)

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


class MemorySaver(GuardedSaver, InMemorySaver):
    """A checkpointer on the sessions of one address. Without a lease, it can only be read."""

    def __init__(self, space: _Space, url: str, lease: Lease | None = None) -> None:
        self._files = _Files(space.files, lease.subject.name if lease else None)
        # Serialized, so that reading returns the same values as from a database.
        super().__init__(serde=PlainSerializer(self._files))
        self.storage, self.writes, self.blobs = (
            space.checkpoints.storage,
            space.checkpoints.writes,
            space.checkpoints.blobs,
        )
        self.store_url = url
        self.lease = lease
        self._space = space

    @contextmanager
    def _writing(self, session: str) -> Iterator[None]:
        with super()._writing(session):
            if self.lease is not None:
                self._space.check(self.lease)
            yield

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(config["configurable"]["thread_id"]):
            put = await super().aput(config, checkpoint, metadata, new_versions)
            self._note_checkpoint(config, checkpoint, metadata)
            return put

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of one task (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(config["configurable"]["thread_id"]):
            await super().aput_writes(config, writes, task_id, task_path)
            self._note_writes(config, writes, task_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session, and its files."""
        with self._writing(thread_id):
            self.steps = None
            await super().adelete_thread(thread_id)
            self._files.delete(thread_id)

    async def replace_all(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        """See `GuardedSaver.replace_all`."""
        config: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        self.steps = None
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
        super().__init__(url, lease)
        self._space = space
        self.checkpointer = MemorySaver(space, url, lease)

    async def add(
        self, *, title: str, spec: str, forked_from: str | None = None, tools: str = "{}"
    ) -> SessionRow:
        """See `SessionLease.add`."""
        self._space.check(self.lease)
        row = new_row(self.session, title, spec, forked_from, tools)
        if self._space.rows.setdefault(self.session, row) is not row:
            raise taken_session(self.session, self.url)
        return row

    async def stop_requested(self, session: str) -> bool:
        """See `SessionLease.stop_requested`."""
        return self._space.rows[session].stop_requested

    async def _remove(self) -> bool:
        self._space.check(self.lease)
        return self._space.rows.pop(self.session, None) is not None

    async def put_verdict(self, number: int, verdict: str) -> None:
        """See `SessionLease.put_verdict`."""
        self._space.check(self.lease)
        self._space.verdicts.setdefault(self.session, {})[number] = verdict

    async def delete_verdicts(self) -> None:
        """See `SessionLease.delete_verdicts`."""
        self._space.check(self.lease)
        self._space.verdicts.pop(self.session, None)

    async def _change(self, **values: str | bool | None) -> None:
        self._space.check(self.lease)
        self._space.change(self.session, self.url, **values)


class MemoryStore(Store):
    """A store in memory, shared by all users of the same URL in this process."""

    outlives_process = False

    def __init__(self, url: str) -> None:
        self.url = url
        self._space = _SPACES.setdefault(url, _Space())

    @cached_property
    def checkpointer(self) -> MemorySaver:
        """See `Store.checkpointer`."""
        return MemorySaver(self._space, self.url)

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

    async def _take(self, subject: LeaseSubject, *, is_new: bool, is_random: bool) -> Lease | None:
        lease = Lease(subject, _OWNER, next(_NUMBERS))
        # `setdefault` is atomic, so two event loops in two threads can't both acquire it.
        return lease if self._space.leases.setdefault(subject.key, lease) is lease else None

    async def _free(self, lease: Lease, holder: LeaseHolder | None) -> None:
        del self._space.leases[lease.subject.key]

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
