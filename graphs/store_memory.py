"""Sessions in this process's memory, gone when it ends. Nothing is written anywhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs.store_base import (
    SessionRow,
    Store,
    busy_session,
    check_session_id,
    new_row,
    taken_session,
    unknown_session,
)


@dataclass
class _Space:
    rows: dict[str, SessionRow] = field(default_factory=dict)
    locks: dict[str, object] = field(default_factory=dict)
    checkpointer: InMemorySaver = field(default_factory=InMemorySaver)


# One space for each URL, as long as the process lives: who opens it again sees the same sessions.
_SPACES: dict[str, _Space] = {}


class MemoryStore(Store):
    """A store in memory, shared by all in this process that open the same URL.

    Args:
        url: `memory:` or `memory:name`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._space = _SPACES.setdefault(url, _Space())
        self.checkpointer = self._space.checkpointer

    async def add(self, session: str, *, title: str, spec: str) -> SessionRow:
        """See `Store.add`."""
        row = new_row(session, title, spec)
        if self._space.rows.setdefault(session, row) is not row:
            raise taken_session(session, self.url)
        return row

    async def get(self, session: str) -> SessionRow | None:
        """See `Store.get`."""
        return self._space.rows.get(session)

    async def finish(self, session: str, reason: str) -> None:
        """See `Store.finish`."""
        self._change(session, status="finished", reason=reason)

    async def wait(self, session: str) -> None:
        """See `Store.wait`."""
        self._change(session, status="waiting", reason=None)

    async def reopen(self, session: str) -> None:
        """See `Store.reopen`."""
        self._change(session, status="unfinished", reason=None)

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        self._change(session, stop_requested=True)

    async def clear_stop(self, session: str) -> None:
        """See `Store.clear_stop`."""
        self._change(session, stop_requested=False)

    def _change(self, session: str, **values: object) -> None:
        row = self._space.rows.get(session)
        if row is None:
            raise unknown_session(session, self.url)
        values["updated_at"] = datetime.now(UTC)
        self._space.rows[session] = row.model_copy(update=values)

    async def _remove(self, session: str) -> None:
        self._space.rows.pop(session, None)

    @asynccontextmanager
    async def lock(self, session: str) -> AsyncIterator[None]:
        """See `Store.lock`."""
        check_session_id(session)
        # `setdefault` is one step, so two event loops in two threads can't both win.
        mine = object()
        if self._space.locks.setdefault(session, mine) is not mine:
            raise busy_session(session)
        try:
            yield
        finally:
            del self._space.locks[session]

    async def is_locked(self, session: str) -> bool:
        """See `Store.is_locked`."""
        return session in self._space.locks

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        # Insertion order settles what one tick of the clock can't.
        rows = reversed(list(self._space.rows.values()))
        return sorted(rows, key=lambda row: row.created_at, reverse=True)


@asynccontextmanager
async def open_memory(url: str) -> AsyncIterator[Store]:
    """Open the store in this process's memory.

    Args:
        url: `memory:` or `memory:name`.

    Yields:
        The store.
    """
    yield MemoryStore(url)
