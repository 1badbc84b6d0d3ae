"""Leases on sessions and batches, under which alone their rows and checkpoints are written."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from ..common.errors import SessionError
from .batches import PUT_BATCH, PUT_CELL, BatchRow, CellRow
from .errors import taken_session, unknown_session
from .lease import Lease, Statement
from .rows import SessionRow, moment
from .sql_tables import ADD_ROW, RELEASE, Tables, columns_of

if TYPE_CHECKING:
    # Code that only lists sessions does not load LangGraph.
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

    from .saver import SqlSaver


class SessionLease:
    """A lease on a session, which permits only this run to write it.

    Get one from `Store.lock`. Every method that writes, and the checkpointer, raises `SessionError`
    without writing if the run has lost the lease, and `StoreError` if the database fails.
    """

    def __init__(self, store: Tables, lease: Lease, checkpointer: "SqlSaver") -> None:
        self.session = lease.subject.name
        self.url = store.url
        self.lease = lease
        self.checkpointer = checkpointer
        self._store = store

    @property
    def is_acquired(self) -> bool:
        """Return whether this run has the lease. If not, `begin` acquires it."""
        return self.lease.acquisition is None

    async def stop_requested(self, session: str) -> bool:
        """Return whether a stop of the session was requested. `session` is its id."""
        lease = self.lease
        if lease.stop_sign != (sign := self._store.stop_sign()):
            lease.stop_requested = await self._store.stop_requested(session)
            lease.stop_sign = sign
        return lease.stop_requested

    async def add(
        self, *, title: str, spec: str, forked_from: str | None = None, tools: str = "{}"
    ) -> SessionRow:
        """Add the session's row, unfinished."""
        row, insert = self._make_row(title, spec, forked_from, tools)
        added = await self._store.writer.write(insert, lease=self.lease)
        # A write that is retried after its connection broke may find its own row.
        if not added and await self._store.get(self.session) != row:
            raise taken_session(self.session, self.url)
        return row

    async def begin(self, *, title: str, spec: str, tools: str = "{}") -> None:
        """Add the session's row, and delete the state that a killed fork has left under its id.

        Raises:
            SessionError: Another run has begun the session meanwhile.
        """
        _, insert = self._make_row(title, spec, None, tools)
        self.checkpointer.hold(*self.checkpointer.deletion(self.session), insert)
        self.checkpointer.record_steps()

    def _make_row(
        self, title: str, spec: str, forked_from: str | None, tools: str
    ) -> tuple[SessionRow, Statement]:
        now = datetime.now(UTC)
        row = SessionRow(
            session=self.session,
            title=title,
            spec=spec,
            digest=sha256(spec.encode()).hexdigest(),
            created_at=now,
            updated_at=now,
            forked_from=forked_from,
            tools=tools,
        )
        return row, self._store.statement(ADD_ROW, *columns_of(row))

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
        release = self._store.statement(RELEASE, *self.lease.terms)
        change = self._store.row_change(self.session, status="finished", reason=reason)
        saver = self.checkpointer
        replaced = () if whole is None else saver.replacement(self.session, *whole)
        try:
            # The change of the row is the last, so that its number of rows is returned.
            changed = await saver.flush(*replaced, release, change)
        except SessionError:
            # A write that is retried after its connection broke may find its own end, which has
            # released the lease.
            row = await self._store.get(self.session)
            if row is None or moment(row.updated_at) not in change.values:
                raise
            changed = 1
        self.lease.is_released = True
        if not changed:
            raise unknown_session(self.session, self.url)

    async def wait(self) -> None:
        """Mark the session as waiting for a person."""
        await self._change(status="waiting", reason=None)

    async def reopen(self) -> None:
        """Mark the session as unfinished, from any status."""
        await self._change(status="unfinished", reason=None)

    async def clear_stop(self) -> None:
        """Clear a stop request for the session, as a starting run does."""
        await self._change(stop_requested=False)
        # The lease was checked before the change.
        self.lease.stop_requested = False

    async def touch(self) -> None:
        """Note in the session's row that it was used now."""
        await self._change()

    async def _change(self, **values: str | bool | None) -> None:
        await self._store.update(self.session, self.lease, **values)

    async def put_verdict(self, number: int, verdict: str) -> None:
        """Store a verdict about the session beside its log.

        Args:
            number: The number of the verdict among the session's verdicts, from 1.
            verdict: The verdict, as JSON text.
        """
        # A write that is retried after its connection broke may find its own row.
        await self._store.write(
            "INSERT INTO duologue_verdicts (session, number, verdict) VALUES (?, ?, ?) "
            "ON CONFLICT (session, number) DO NOTHING",
            *(self.session, number, verdict),
            lease=self.lease,
        )

    async def delete_verdicts(self) -> None:
        """Delete the verdicts that are stored beside the session's log."""
        await self._store.write(
            "DELETE FROM duologue_verdicts WHERE session = ?", self.session, lease=self.lease
        )

    async def erase(self) -> bool:
        """Delete the session's row and all its checkpoints; return whether there was a row."""
        # The row is deleted last, so that after a kill in between the session can be deleted again.
        await self.checkpointer.adelete_thread(self.session)
        await self.delete_verdicts()
        return await self._remove()

    async def _remove(self) -> bool:
        # Read first, because a retried DELETE, after its connection broke, may change no row.
        row = "FROM duologue_sessions WHERE session = ?"
        found = await self._store.read("SELECT 1 " + row, self.session)
        await self._store.write("DELETE " + row, self.session, lease=self.lease)
        return bool(found)

    async def drain(self) -> None:
        """Await the writes in progress."""
        await self.checkpointer.flush()
        await self.lease.drain()


class BatchLease:
    """A lease on a batch, under which its rows are written.

    Get one from `Store.lock_batch`. Each method raises `LostBatchError`, without writing, if the
    lease is lost, and `StoreError` if the database fails.
    """

    def __init__(self, store: Tables, lease: Lease) -> None:
        self.lease = lease
        self._store = store

    @property
    def batch(self) -> str:
        """Return the batch's name."""
        return self.lease.subject.name

    async def put(self, row: BatchRow) -> None:
        """Add the batch's row, or replace it."""
        await self._store.write(PUT_BATCH, *columns_of(row), lease=self.lease)

    async def put_cell(self, row: CellRow) -> None:
        """Add the row of a cell, or replace it."""
        await self._store.write(PUT_CELL, *columns_of(row), lease=self.lease)

    async def delete(self) -> None:
        """Delete the batch with its cells; the sessions stay."""
        statement = self._store.statement
        await self._store.writer.write(
            statement("DELETE FROM duologue_cells WHERE batch = ?", self.batch),
            statement("DELETE FROM duologue_batches WHERE batch = ?", self.batch),
            lease=self.lease,
        )

    async def check(self) -> None:
        """Raise an error if the lease is lost."""
        if not await self._store.is_valid(self.lease):
            raise self.lease.subject.lost_error()

    async def drain(self) -> None:
        """Await the writes in progress."""
        await self.lease.drain()
