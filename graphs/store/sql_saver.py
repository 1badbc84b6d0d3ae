"""The common part of the savers on SQL databases: each step is one transaction, under a lease."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, LiteralString, NamedTuple, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ..common.errors import SessionError
from .errors import lost_session
from .lease import Lease
from .message_files import DELETE_FILES, PUT_FILE, SqlFiles
from .saver import GuardedSaver, ReplacedReader
from .writer import Statement, Writer

_NODE: Final = "~__pregel_pull"
"""The prefix of the path that LangGraph gives to a node's task. A call inside a node has another
prefix."""

_SOON: Final = 0.1
"""Maximum seconds that a node's writes wait for their checkpoint."""


class Noted:
    """A recorder of statements with the interface of the cursor that LangGraph's savers expect."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Self:
        """Record a statement."""
        self.statements.append(Statement(sql, values))
        return self

    def executemany(self, sql: str, values: Sequence[Any]) -> Self:
        """Record a statement that runs once for each of the values."""
        self.statements.append(Statement(sql, values, many=True))
        return self


class NotingSaver(BaseCheckpointSaver[str]):
    """A mix-in for LangGraph's synchronous savers that records their statements."""

    noted: Noted


class _NodeWrites(NamedTuple):
    """The writes of a node, as LangGraph passes them."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str

    @property
    def can_wait(self) -> bool:
        """Return whether these writes may wait for the checkpoint, which is the next save.

        duologue's graph runs one node at a time. Graphs that tools run inside it may run several.
        """
        return (
            self.task_path.startswith(_NODE)
            and not self.config["configurable"]["checkpoint_ns"]
            and not any(channel in WRITES_IDX_MAP for channel, _ in self.writes)
        )

    @property
    def place(self) -> object:
        """Return the id of the checkpoint that these writes belong to."""
        return self.config["configurable"]["checkpoint_id"]


class StepSaver(BaseCheckpointSaver[str]):
    """A saver that collects a step's statements and passes them to the writer together.

    The statements come from LangGraph's synchronous saver. LangGraph saves the writes of a node,
    then the checkpoint they lead to, and starts the next node when both are saved. The writes
    therefore wait for the checkpoint, but only briefly: a consumer of the stream receives them
    before the checkpoint, and may take any time. Questions, answers, errors, and results of calls
    inside a node are committed immediately.
    """

    lease: Lease | None

    placeholder: LiteralString = "?"
    """The database's placeholder of a value in a statement."""

    def _write_by(
        self, noting: NotingSaver, files: SqlFiles, writer: Writer, lease: Lease | None
    ) -> None:
        """Set the writer and the lease; the constructor is LangGraph's."""
        self._noting = noting
        self._files = files
        self._writer = writer
        self.lease = lease
        self._waiting: list[_NodeWrites] = []
        self._order = asyncio.Lock()
        self._late: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and the writes before it (see LangGraph's `BaseCheckpointSaver`)."""
        place = config["configurable"]
        values = checkpoint["channel_values"]
        held = [name for name, value in values.items() if not isinstance(value, _DeltaSnapshot)]
        # In order: a checkpoint must not be saved if the writes that led to it could not be saved.
        async with self._order:
            waiting = self._take(place.get("checkpoint_id"))
            put = self._statements(
                partial(self._noting.put, config, checkpoint, metadata, new_versions)
            )
            await self._write(*(self._writes(one, held) for one in waiting), *put)
        kept = {name: place[name] for name in ("thread_id", "checkpoint_ns")}
        return {"configurable": kept | {"checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of one task (see LangGraph's `BaseCheckpointSaver`)."""
        given = _NodeWrites(config, writes, task_id, task_path)
        if not given.can_wait:
            await self._write(self._writes(given))
            return
        self._waiting.append(given)
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(_SOON, self._flush_late)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session (see LangGraph's `BaseCheckpointSaver`)."""
        await self.flush()
        await self._write(*self.deletion(thread_id))

    def deletion(self, session: str) -> Sequence[Statement]:
        """Return the statements that delete all checkpoints of a session, and its files."""
        self._files.written.clear()
        files = Statement(DELETE_FILES.replace("?", self.placeholder), (session,))
        return *self._deletion(session), files

    def _deletion(self, session: str) -> Sequence[Statement]:
        return self._statements(partial(self._noting.delete_thread, session))

    async def flush(self) -> None:
        """Save the writes that wait for their checkpoint. No later save remains to be done."""
        self._stop_clock()
        if self._flushing is not None:
            # Its error comes from the next write.
            await asyncio.wait([self._flushing])
        await self._save_waiting()

    async def _save_waiting(self) -> None:
        async with self._order:
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            try:
                await self._write(*map(self._writes, waiting))
            except Exception:
                # Only the caller gets this error. The node's caller gets it from the checkpoint,
                # which tries again.
                self._waiting = waiting + self._waiting
                raise

    def _flush_late(self) -> None:
        self._late = None
        self._flushing = asyncio.create_task(self._save_waiting())
        # Read here, so that asyncio does not report an exception that the next write raises, too.
        self._flushing.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _take(self, place: object) -> list[_NodeWrites]:
        """Remove and return the waiting writes that belong to a checkpoint."""
        taken = [one for one in self._waiting if one.place == place]
        self._waiting = [one for one in self._waiting if one.place != place]
        if not self._waiting:
            self._stop_clock()
        return taken

    def _stop_clock(self) -> None:
        # An event loop that ends would start the task of a clock, and never run it.
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _writes(self, given: _NodeWrites, left_out: Collection[str] = ()) -> Statement:
        """Return the statement that saves writes.

        The writes that are not in `left_out` keep their numbers.
        """
        values = [(name, None if name in left_out else value) for name, value in given.writes]
        (put,) = self._statements(partial(self._noting.put_writes, *given._replace(writes=values)))
        rows = zip(put.values, values, strict=True)
        return put._replace(values=[row for row, (name, _) in rows if name not in left_out])

    async def _write(self, *statements: Statement) -> None:
        lease, files = self.lease, dict[str, bytes]()
        if self._files.new and lease is not None:
            # In the same transaction as the messages that refer to them.
            files, self._files.new = self._files.new, {}
            put, session = PUT_FILE.replace("?", self.placeholder), lease.subject.name
            new = [Statement(put, (digest, session, data)) for digest, data in files.items()]
            statements = (*new, *statements)
        await self._writer.write(*statements, lease=lease)
        self._files.written |= files.keys()

    def _statements(self, *calls: Callable[[], object]) -> Sequence[Statement]:
        noted = self._noting.noted = Noted()
        for call in calls:
            call()
        return noted.statements


class LeasedSaver(GuardedSaver, ReplacedReader, StepSaver):
    """A saver that writes under a lease; the commit checks that the lease is still valid."""

    def _check_writable(self, session: str) -> None:
        if self.lease is None:
            raise SessionError(f"Session {session!r} can't be written without a lease on it.")
        if session != self.lease.subject.name:
            raise lost_session(session)

    async def replace_all(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        """See `GuardedSaver.replace_all`; one transaction."""
        config: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        versions = checkpoint["channel_versions"]
        with self._writing(session):
            await self.flush()
            put = self._statements(
                partial(self._noting.put, config, checkpoint, metadata, versions)
            )
            # LangGraph's statements end with the condition on the session.
            own = " AND checkpoint_ns = ''"
            deletion = [one._replace(sql=one.sql + own) for one in self._deletion(session)]
            await self._write(*deletion, *put)
