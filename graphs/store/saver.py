"""LangGraph's savers with the rules of a store: who may write, what is committed together, errors.

Parameters that are passed to LangGraph's savers unchanged have no names here, except `task_path`,
because LangGraph looks for it in the signature.
"""

import asyncio
import sqlite3
from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final, LiteralString, NamedTuple, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver

from ..common.errors import SessionError
from .errors import lost_session, replaced_session, store_errors
from .lease import Lease, Statement, Writer
from .rows import check_checkpoint, reading_store
from .serializer import PlainSerializer, encode_file

T = TypeVar("T")


def _session(config: RunnableConfig) -> str:
    session: str = config["configurable"]["thread_id"]
    return session


_PUT_FILE: Final[LiteralString] = (
    "INSERT INTO duologue_files (digest, session, data) VALUES (?, ?, ?) "
    "ON CONFLICT (digest, session) DO NOTHING"
)
_DELETE_FILES: Final[LiteralString] = "DELETE FROM duologue_files WHERE session = ?"
_FIND_FILE: Final[LiteralString] = "SELECT data FROM duologue_files WHERE digest = ? LIMIT 1"

_NODE: Final = "~__pregel_pull"
"""The prefix of the path that LangGraph gives to a node's task. A call inside a node has another
prefix."""

_SOON: Final = 0.1
"""Maximum seconds that a node's writes wait for their checkpoint."""


class SqlFiles:
    """The files of one saver on a SQL database.

    Args:
        find: Returns the bytes of a file by its digest, or None if it is missing.
    """

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self._find = find
        self.new: dict[str, bytes] = {}
        """The files to write with the next statements, by digest."""
        self.written: set[str] = set()
        """The digests of the files that were written for the saver's session."""

    def put(self, digest: str, data: bytes) -> None:
        """See `MessageFiles.put`."""
        if digest not in self.written:
            self.new[digest] = data

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        return encode_file(digest, self._find(digest))


class StatementRecorder:
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


class RecordingSaver(BaseCheckpointSaver[str]):
    """A mix-in for LangGraph's synchronous savers that records their statements."""

    recorder: StatementRecorder


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


class SqlSaver(BaseCheckpointSaver[str]):
    """A mix-in that passes the statements of a step to the writer together, under the lease.

    In the bases of a class it comes before one of LangGraph's savers, which reads.

    The statements come from LangGraph's synchronous saver. LangGraph saves the writes of a node,
    then the checkpoint they lead to, and starts the next node when both are saved. The writes
    therefore wait for the checkpoint, but only briefly: a consumer of the stream receives them
    before the checkpoint, and may take any time. Questions, answers, errors, and results of calls
    inside a node are committed immediately.
    """

    store_url: str
    lease: Lease | None = None
    """The lease of the run that uses this saver, or None if it only reads.

    A run whose process was suspended may have lost its lease without noticing it.
    """
    steps: dict[str, CheckpointTuple] | None = None
    """The session's checkpoints with their writes, oldest first, by their ids. They are the
    objects of the run and must not be changed. None if earlier runs have saved some, which must be
    read."""

    placeholder: LiteralString = "?"
    """The database's placeholder of a value in a statement."""

    def _write_by(
        self, recording: RecordingSaver | None, files: SqlFiles, writer: Writer, lease: Lease | None
    ) -> None:
        """Set the writer and the lease; the constructor is LangGraph's.

        `recording` makes the statements. None if a subclass saves without them.
        """
        self._recording = recording
        self._files = files
        self._writer = writer
        self.lease = lease
        self._waiting: list[_NodeWrites] = []
        self._held: list[Statement] = []
        """The statements that are committed with the next ones."""
        self._order = asyncio.Lock()
        self._late: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[int] | None = None

    def record_steps(self) -> None:
        """Record the checkpoints of a session that has none yet."""
        self.steps = {}

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and the writes before it (see LangGraph's `BaseCheckpointSaver`)."""
        place = config["configurable"]
        before = place.get("checkpoint_id")
        values = checkpoint["channel_values"]
        held = [name for name, value in values.items() if not isinstance(value, _DeltaSnapshot)]
        # In order: a checkpoint must not be saved if the writes that led to it could not be saved.
        with self._writing(place["thread_id"]):
            async with self._order:
                waiting = [one for one in self._waiting if one.place == before]
                self._waiting = [one for one in self._waiting if one.place != before]
                step = [self._writes(one, held) for one in waiting]
                step += self._record("put", config, checkpoint, metadata, new_versions)
                if self.steps is not None and _can_wait(config, checkpoint, metadata):
                    self.hold(*step)
                else:
                    await self._write(*step)
                self._note_checkpoint(config, checkpoint, metadata)
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
        with self._writing(_session(config)):
            if given.can_wait:
                self._waiting.append(given)
                self._start_clock()
            else:
                await self._write(self._writes(given))
            self._note_writes(config, writes, task_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(thread_id):
            self.steps = None
            await self.flush()
            await self._write(*self.deletion(thread_id))

    def deletion(self, session: str) -> Sequence[Statement]:
        """Return the statements that delete all checkpoints of a session, and its files."""
        self._files.written.clear()
        files = Statement(_DELETE_FILES.replace("?", self.placeholder), (session,))
        return *self._deletion(session), files

    def _deletion(self, session: str) -> Sequence[Statement]:
        return self._record("delete_thread", session)

    def replacement(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> Sequence[Statement]:
        """Return the statements that replace all checkpoints of a session by this one."""
        self.steps = None
        config: RunnableConfig = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        # LangGraph's statements end with the condition on the session.
        own = " AND checkpoint_ns = ''"
        deletion = [one._replace(sql=one.sql + own) for one in self._deletion(session)]
        versions = checkpoint["channel_versions"]
        return *deletion, *self._record("put", config, checkpoint, metadata, versions)

    def hold(self, *statements: Statement) -> None:
        """Commit statements together with the next ones, or soon."""
        self._held += statements
        self._start_clock()

    async def flush(self, *statements: Statement) -> int:
        """Save all that waits, and run statements. No later save remains to be done.

        Returns:
            The number of rows that the last statement changed.
        """
        self._stop_clock()
        if self._flushing is not None:
            # Its error comes from the next write.
            await asyncio.wait([self._flushing])
        return await self._save_waiting(*statements)

    async def _save_waiting(self, *statements: Statement) -> int:
        async with self._order:
            waiting, self._waiting = self._waiting, []
            if not (waiting or self._held or statements):
                return 0
            try:
                return await self._write(*map(self._writes, waiting), *statements)
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

    def _start_clock(self) -> None:
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(_SOON, self._flush_late)

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
        (put,) = self._record("put_writes", *given._replace(writes=values))
        rows = zip(put.values, values, strict=True)
        return put._replace(values=[row for row, (name, _) in rows if name not in left_out])

    async def _write(self, *statements: Statement) -> int:
        """Commit the held statements and these; return the number of rows the last one changed."""
        lease, files, new = self.lease, dict[str, bytes](), list[Statement]()
        held, self._held = self._held, []
        if not self._waiting:
            self._stop_clock()
        if self._files.new and lease is not None:
            # In the same transaction as the messages that refer to them.
            files, self._files.new = self._files.new, {}
            put, session = _PUT_FILE.replace("?", self.placeholder), lease.subject.name
            new = [Statement(put, (digest, session, data)) for digest, data in files.items()]
        try:
            changed = await self._writer.write(*new, *held, *statements, lease=lease)
        except Exception:
            self._held = new + held + self._held if held else self._held
            raise
        self._files.written |= files.keys()
        return changed

    def _record(self, method: str, *given: object) -> Sequence[Statement]:
        """Call a method of LangGraph's synchronous saver, and return its statements."""
        assert self._recording is not None  # noqa: S101  # a subclass saves without statements
        recorder = self._recording.recorder = StatementRecorder()
        getattr(self._recording, method)(*given)
        return recorder.statements

    def _note_checkpoint(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        if self.steps is not None and not config["configurable"]["checkpoint_ns"]:
            self.steps[checkpoint["id"]] = CheckpointTuple(config, checkpoint, metadata)

    def _note_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        place = config["configurable"]
        if self.steps is None or place["checkpoint_ns"]:
            return
        step = self.steps.get(place["checkpoint_id"])
        known = list(step.pending_writes or ()) if step is not None else []
        if step is None or any(
            task == task_id and channel not in WRITES_IDX_MAP for task, channel, _ in known
        ):
            # Of a task that runs again, the savers keep some writes of each run.
            self.steps = None
            return
        known += [(task_id, channel, value) for channel, value in writes]
        self.steps[place["checkpoint_id"]] = step._replace(pending_writes=known)

    @contextmanager
    def _writing(self, session: str) -> Iterator[None]:
        """Raise an error if this session may not be written, and convert errors of the block."""
        if self.lease is None:
            raise SessionError(f"Session {session!r} can't be written without a lease on it.")
        if session != self.lease.subject.name:
            raise lost_session(session)
        with store_errors(self.store_url):
            yield

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        if self.steps == {} and self.lease is not None:
            # LangGraph looks for a checkpoint of each session, also of a new one.
            return None
        with reading_store(self.store_url, _session(config)):
            found = await super().aget_tuple(config)
            return None if found is None else check_checkpoint(found)

    async def alist(
        self, config: RunnableConfig | None, *given: Any, **named: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first (see LangGraph's `BaseCheckpointSaver`)."""
        session = None if config is None else _session(config)
        found = super().alist(config, *given, **named)
        while True:
            # Not around the yield, because errors of the reader are not errors of the store.
            with reading_store(self.store_url, session):
                try:
                    one = check_checkpoint(await anext(found))
                except StopAsyncIteration:
                    return
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, or their values if these have replaced the writes.

        LangGraph reads a checkpoint first, and then the writes from which it computes the channels
        that are missing there. If another run replaces the checkpoints between both, the writes are
        gone, and the channels would be empty without an error.
        """
        session = _session(config)
        with reading_store(self.store_url, session):
            found = await super().aget_delta_channel_history(config=config, channels=channels)
            now = await self.aget_tuple(config)
            if now is None:
                raise lost_session(session) if self.lease is not None else replaced_session(session)
            values = now.checkpoint["channel_values"]
            whole = {name: values[name] for name in channels if name in values}
            return {**found, **{name: {"writes": [], "seed": one} for name, one in whole.items()}}


def _can_wait(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> bool:
    """Return whether a checkpoint of a new session may wait for the next save.

    No call precedes the first checkpoints, and the end follows the last one.
    """
    is_first = metadata["step"] <= 0
    has_ended = bool(checkpoint["channel_values"].get("outcome"))
    return not config["configurable"]["checkpoint_ns"] and (is_first or has_ended)


class _RecordingSaver(RecordingSaver, SqliteSaver):
    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Yield the recorder of a transaction's statements."""
        yield self.recorder


class _ThreadedSaver(SqliteSaver):
    """LangGraph's SQLite checkpointer, which reads in a thread."""

    @abstractmethod
    async def _read(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Call a function that reads, in the thread of the connection."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        return await self._read(self.get_tuple, config)

    async def alist(self, *given: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first (see LangGraph's `BaseCheckpointSaver`)."""
        for one in await self._read(lambda: list(self.list(*given, **named))):
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels (see LangGraph's `BaseCheckpointSaver`)."""
        return await self._read(self.get_delta_channel_history, config=config, channels=channels)


class SqliteSessionSaver(SqlSaver, _ThreadedSaver):
    """A checkpointer that stores sessions in one SQLite file, each under its lease.

    Args:
        url: The store's address for display.
        connection: The connection for reading.
        run: Calls a function in the thread of that connection.
        writer: The writer of the store.
        lease: The lease on the session that is written, or None.
    """

    def __init__(
        self,
        url: str,
        connection: sqlite3.Connection,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        writer: Writer,
        lease: Lease | None,
    ) -> None:
        files = SqlFiles(self._find_file)
        super().__init__(connection, serde=PlainSerializer(files))
        self._write_by(_RecordingSaver(connection, serde=self.serde), files, writer, lease)
        self.store_url = url
        self._run = run

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Yield a cursor that reads in one transaction; the tables exist."""
        with closing(self.conn.cursor()) as cursor:
            # LangGraph reads with several queries, between which a step may be saved.
            cursor.execute("BEGIN")
            try:
                yield cursor
            finally:
                self.conn.rollback()

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version of a channel, with fewer digits than LangGraph's versions."""
        # LangGraph stores many versions and compares them as text. Any of these sorts after any of
        # LangGraph's own versions, which older sessions contain. Their random part is for databases
        # that store values by version.
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:08}."

    def _find_file(self, digest: str) -> bytes | None:
        """Return the bytes of a file. LangGraph's saver calls this in the reader's thread."""
        found = self.conn.execute(_FIND_FILE, (digest,)).fetchone()
        return None if found is None else found[0]

    async def _read(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        await self.flush()
        found: T = await self._run(partial(call, *given, **named))
        return found
