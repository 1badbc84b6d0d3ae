"""Sessions in this process's memory, which are lost when it ends.

Rows, leases and batches are in a SQLite database without a file, checkpoints in dicts.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import cached_property, partial
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

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """The connection to the database, which ends with it."""
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


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
        if self._deleted is not None:
            InMemorySaver.delete_thread(self, self._deleted)
            self._deleted = None

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
        for key in [*self.blobs]:
            if key[:2] == (session, "") and versions.get(key[2]) != key[3]:
                del self.blobs[key]
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

    def _saver(self, lease: Lease | None = None) -> MemorySaver:
        return MemorySaver(self._space, self.url, self.writer, lease)

    async def open(self) -> None:
        """Create the tables if they are missing."""
        await self._run(self._prepare)

    def _prepare(self) -> None:
        connection = self._space.connection
        self._space.owners.add(self.owner)
        if not connection.execute(self.known_tables).fetchone():
            self._write([Job(self.missing_tables([]), lease=None)])

    async def _run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, while no other thread uses the connection.

        LangGraph's dev server refuses calls of SQLite in an event loop, also if they take no time.
        """

        def call() -> T:
            with _LOCK:
                return function()

        # Unlike an executor's threads, these still work after the main thread has ended.
        return await in_thread(call)

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Tables.read`."""
        with store_errors(self.url):
            return await self._run(lambda: self._space.connection.execute(sql, values).fetchall())

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
        return await self._run(partial(self._write, jobs))

    def _write(self, jobs: Sequence[Job]) -> Results:
        self._space.connection.execute("BEGIN")
        return self.run_jobs(self._space.connection, jobs)

    def _explain(self, error: Exception) -> WriteFailure:
        return WriteFailure(as_store_error(self.url, error), is_for_all=False)

    async def close(self) -> None:
        """See `Store.close`."""
        await super().close()
        self._space.owners.discard(self.owner)
