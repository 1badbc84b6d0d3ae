"""What the savers on SQL databases share: each step is one transaction, under a lease."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ...common.errors import SessionError
from ..errors import lost_session
from ..saver import GuardedSaver
from ..writer import Lease, Statement, Writer

_NODE: Final = "~__pregel_pull"
"""How LangGraph begins the path of a node's task, unlike that of a call which a node makes."""


class Noted:
    """Takes statements where LangGraph's savers expect a cursor."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Self:
        """Note a statement."""
        self.statements.append(Statement(sql, values))
        return self

    def executemany(self, sql: str, values: Sequence[Any]) -> Self:
        """Note a statement that is run once for each of the values."""
        self.statements.append(Statement(sql, values, many=True))
        return self


class NotingSaver(BaseCheckpointSaver[str]):
    """Stands before one of LangGraph's savers for threads, to give its statements a place."""

    noted: Noted


class _NodeWrites(NamedTuple):
    """What a node has written, as LangGraph gives it."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str

    @property
    def can_wait(self) -> bool:
        """Whether the next to be saved is the checkpoint that these writes lead to.

        Our graph runs one node at a time. Graphs that tools run inside of it may run several.
        """
        return (
            self.task_path.startswith(_NODE)
            and not self.config["configurable"]["checkpoint_ns"]
            and not any(channel in WRITES_IDX_MAP for channel, _ in self.writes)
        )

    def beside(self, parent: str | None, checkpoint: Checkpoint) -> "_NodeWrites":
        """Leave out what the checkpoint itself holds, if these writes lead to it."""
        if self.config["configurable"]["checkpoint_id"] != parent:
            return self
        held = checkpoint["channel_values"]
        left = [
            (channel, value)
            for channel, value in self.writes
            if channel not in held or isinstance(held[channel], _DeltaSnapshot)
        ]
        return self._replace(writes=left)


class StepSaver(BaseCheckpointSaver[str]):
    """Leaves to the writer what LangGraph's saver for threads would run, a step at once.

    LangGraph saves what a node has written, then the checkpoint that it leads to, and begins the
    next node when both are saved. So the first waits for the second. Questions, answers, errors,
    and what the calls of a node have given are committed when they come.
    """

    lease: Lease | None

    def _write_by(self, noting: NotingSaver, writer: Writer, lease: Lease | None) -> None:
        """Take what it writes by; the constructor is LangGraph's."""
        self._noting = noting
        self._writer = writer
        self.lease = lease
        self._waiting: list[_NodeWrites] = []

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and what led to it, see LangGraph's saver."""
        place = config["configurable"]
        parent = place.get("checkpoint_id")
        waiting, self._waiting = self._waiting, []
        left = (one.beside(parent, checkpoint) for one in waiting)
        statements = self._statements(
            *(partial(self._noting.put_writes, *one) for one in left if one.writes),
            partial(self._noting.put, config, checkpoint, metadata, new_versions),
        )
        await self._writer.write(*statements, lease=self.lease)
        kept = {name: place[name] for name in ("thread_id", "checkpoint_ns")}
        return {"configurable": kept | {"checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what one task wrote, see LangGraph's saver."""
        given = _NodeWrites(config, writes, task_id, task_path)
        self._waiting.append(given)
        if not given.can_wait:
            await self.flush()

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session, see LangGraph's saver."""
        await self.flush()
        statements = self._statements(partial(self._noting.delete_thread, thread_id))
        await self._writer.write(*statements, lease=self.lease)

    async def flush(self) -> None:
        """Save what waits for its checkpoint."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            calls = (partial(self._noting.put_writes, *one) for one in waiting)
            await self._writer.write(*self._statements(*calls), lease=self.lease)

    def _statements(self, *calls: Callable[[], object]) -> Sequence[Statement]:
        noted = self._noting.noted = Noted()
        for call in calls:
            call()
        return noted.statements


class LeasedSaver(GuardedSaver, StepSaver):
    """A saver that writes under a lease; the commit looks whether it still stands."""

    def _check_writable(self, session: str) -> None:
        if self.lease is None:
            raise SessionError(f"Session {session!r} can't be written without holding its lock.")
        if session != self.lease.session:
            raise lost_session(session)
