"""Sessions in this process's memory, which are lost when it ends.

Rows, leases and batches are in a SQLite database without a file, checkpoints in dicts.
"""

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver

from ..common.threads import in_thread
from .errors import as_store_error, store_errors
from .lease import Job, Lease, Results, Statement, WriteFailure, Writer
from .saver import SqlFiles, SqlSaver
from .serializer import PlainSerializer
from .sqlite import SqliteTables

T = TypeVar("T")


class _Space:
    """The sessions and batches of one address."""

    def __init__(self) -> None:
        self.owners = set[str]()
        """The names of the open stores."""
        self.stop_sign = object()
        """Another object after each request of a stop."""
        self.checkpoints = InMemorySaver()
        self.versions = defaultdict[str, set[tuple[str, str | int | float]]](set)
        """The channels and versions whose values are kept, by session."""
        self.connection: sqlite3.Connection | None = None
        """The connection to the database, which ends with it. None before the first use."""


# Kept as long as the process lives, so that a reopened address has the same sessions.
_SPACES: Final[dict[str, _Space]] = {}
_LOCK: Final = Lock()
"""The lock on all connections: event loops in several threads may share an address."""

if hasattr(os, "register_at_fork"):
    # The child's copy of a database that another thread is using could not be used.
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class MemorySaver(SqlSaver, InMemorySaver):
    """A checkpointer that keeps the checkpoints of one address in dicts.

    A step is then saved without the thread of the database, which contains everything else.

    Args:
        space: The sessions of the address.
        url: The store's address for display.
        writer: The writer of the store.
        lease: The lease on the session that is written, or None.
    """

    def __init__(self, space: _Space, url: str, writer: Writer, lease: Lease | None) -> None:
        # Serialized, so that reading returns the same values as from a database.
        super().__init__(serde=PlainSerializer())
        known = space.checkpoints
        self.storage, self.writes, self.blobs = known.storage, known.writes, known.blobs
        self._write_by(None, SqlFiles(lambda digest: None), writer, lease)
        self.store_url = url
        self._versions = set() if lease is None else space.versions[lease.subject.name]
        self._deleted: str | None = None
        """The session whose checkpoints are deleted when the lease is acquired."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(config["configurable"]["thread_id"]):
            # First, since the writes after this checkpoint do not wait for it.
            self._note_checkpoint(config, checkpoint, metadata)
            await self._check()
            if not config["configurable"]["checkpoint_ns"]:
                self._versions.update(new_versions.items())
            return InMemorySaver.put(self, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of one task (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(config["configurable"]["thread_id"]):
            self._note_writes(config, writes, task_id)
            await self._check()
            InMemorySaver.put_writes(self, config, writes, task_id, task_path)

    async def _check(self) -> None:
        """Commit the held statements, which acquire the lease; raise an error if it is released."""
        # LangGraph saves several checkpoints at once: each waits until the lease is acquired.
        await self.flush()
        if self.lease is not None and self.lease.is_released:
            raise self.lease.refusal()
        deleted, self._deleted = self._deleted, None
        # LangGraph's deletion looks at all sessions, and most new sessions have no checkpoints.
        if deleted is not None and deleted in self.storage:
            InMemorySaver.delete_thread(self, deleted)
            self._versions.clear()

    def _deletion(self, session: str) -> Sequence[Statement]:
        self._deleted = session
        return ()

    async def adelete_thread(self, thread_id: str) -> None:
        """See `SqlSaver.adelete_thread`."""
        await super().adelete_thread(thread_id)
        await self._check()

    def replacement(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> Sequence[Statement]:
        """See `SqlSaver.replacement`; the checkpoints are replaced at once."""
        self.steps = None
        config: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        kept, versions = checkpoint["id"], checkpoint["channel_versions"]
        InMemorySaver.put(self, config, checkpoint, metadata, versions)
        # Deleted afterwards, so that a reader in another thread always finds the session.
        for one in self.storage[session][""].keys() - {kept}:
            del self.storage[session][""][one]
            self.writes.pop((session, "", one), None)
        for channel, version in self._versions - versions.items():
            self.blobs.pop((session, "", channel, version), None)
        self._versions.clear()
        self._versions.update(versions.items())
        return ()


class MemoryStore(SqliteTables):
    """A store in memory, shared by all users of the same URL in this process."""

    outlives_process = False

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.owner = token_hex(16)
        self.writer = Writer(self._commit, self._explain)
        self._space = _SPACES.setdefault(url, _Space())
        self._space.owners.add(self.owner)

    def _saver(self, lease: Lease | None = None) -> MemorySaver:
        return MemorySaver(self._space, self.url, self.writer, lease)

    async def _run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection in a thread, while no other thread uses it.

        LangGraph's dev server refuses calls of SQLite in an event loop, also if they take no time.
        """

        def call() -> T:
            with _LOCK:
                return function(self._connect())

        # Unlike an executor's threads, these still work after the main thread has ended.
        return await in_thread(call)

    def _connect(self) -> sqlite3.Connection:
        """Return the connection. The first call opens it and creates the tables."""
        space = self._space
        if space.connection is None:
            found = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for sql, values, _ in self.missing_tables([]):
                found.execute(sql, values)
            space.connection = found
        return space.connection

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Tables.read`."""
        with store_errors(self.url):
            return await self._run(lambda database: database.execute(sql, values).fetchall())

    def stop_sign(self) -> object:
        """See `Tables.stop_sign`."""
        return self._space.stop_sign

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await super().request_stop(session)
        self._space.stop_sign = object()

    async def _is_alive(self, owner: str) -> bool:
        return owner in self._space.owners

    async def _commit(self, jobs: Sequence[Job]) -> Results:
        def commit(database: sqlite3.Connection) -> Results:
            database.execute("BEGIN")
            return self.run_jobs(database, jobs)

        return await self._run(commit)

    def _explain(self, error: Exception) -> WriteFailure:
        return WriteFailure(as_store_error(self.url, error), is_for_all=False)

    async def close(self) -> None:
        """See `Store.close`."""
        await super().close()
        self._space.owners.discard(self.owner)
