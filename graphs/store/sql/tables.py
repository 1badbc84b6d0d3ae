"""The tables of sessions and leases, in the SQL that SQLite and PostgreSQL share."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, LiteralString

from langgraph.checkpoint.base import BaseCheckpointSaver

from ...common.errors import StoreError
from ..base import Held, Store
from ..errors import taken_session, unknown_session
from ..reading import read_row, read_version
from ..rows import SessionRow, new_row
from ..writer import Lease, Statement, Writer

VERSION: Final = 2
_ROW: Final = """SELECT session, title, spec, digest, status, reason, stop_requested,
    created_at, updated_at FROM duologue_sessions"""
# In the order of SessionRow's fields. Times are ISO 8601 text of one width, in UTC, so that both
# databases sort and return them alike.
_TABLES: Final[Sequence[LiteralString]] = (
    """CREATE TABLE IF NOT EXISTS duologue_sessions (
    session TEXT PRIMARY KEY, title TEXT NOT NULL, spec TEXT NOT NULL, digest TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT, stop_requested INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS duologue_leases (
    session TEXT PRIMARY KEY, owner TEXT NOT NULL, number INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS duologue_schema (version INTEGER NOT NULL)",
    "INSERT INTO duologue_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM duologue_schema)",
)
_RETRY: Final = 1.0  # seconds
LEASE: Final = "SELECT 1 FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?"
"""Gives a row while a lease stands."""


class SqlStore(Store):
    """A store in SQL; a database's own class says how statements are run.

    A session is held by a lease: a row with the open store that has taken it, its owner. A lease
    whose owner is dead may be taken over; every write looks for its lease in its own transaction.
    """

    owner: str
    writer: Writer
    known_tables: LiteralString
    """A query that gives a row where our tables are there."""
    second_look: float = 0.0
    """Seconds after which an owner that seems dead is looked at again; 0: it is not."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._leases = dict[int, Lease]()
        self._left = list[Lease]()
        self._freeing: asyncio.Task[None] | None = None

    @abstractmethod
    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, whose placeholders are `?`."""

    @abstractmethod
    def statement(self, sql: LiteralString, *values: object) -> Statement:
        """Return a statement, whose placeholders are `?`, as this database writes them."""

    @abstractmethod
    def _saver(self, lease: Lease) -> BaseCheckpointSaver[str]:
        """Return a saver that writes under a lease."""

    @abstractmethod
    async def _is_alive(self, owner: str) -> bool:
        """Return whether another open store still lives."""

    async def write(self, sql: LiteralString, *values: object, lease: Lease | None = None) -> int:
        """Run and commit one statement."""
        return await self.writer.write(self.statement(sql, *values), lease=lease)

    async def set_up(self) -> None:
        """Make our tables if they are missing; the caller keeps others from doing so meanwhile.

        Nothing is written where they are there, so that who only reads waits for no writer.
        """
        known = await self._read(self.known_tables)
        found = await self._read("SELECT version FROM duologue_schema") if known else []
        if read_version(found, VERSION, self.url) == VERSION:
            return
        statements = [self.statement(sql) for sql in _TABLES]
        version = self.statement("UPDATE duologue_schema SET version = ?", VERSION)
        await self.writer.write(*statements, version)

    async def get(self, session: str) -> SessionRow | None:
        """See `Store.get`."""
        found = await self._read(_ROW + " WHERE session = ?", session)
        return read_row(found[0], self.url) if found else None

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        found = await self._read(_ROW + " ORDER BY created_at DESC, session")
        return [read_row(values, self.url) for values in found]

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        changed = await self.write(
            "UPDATE duologue_sessions SET stop_requested = 1, updated_at = ? WHERE session = ?",
            *(_now(), session),
        )
        if not changed:
            raise unknown_session(session, self.url)

    async def stop_requested(self, session: str) -> bool:
        """See `Store.stop_requested`."""
        # Asked at every turn, and the whole row holds the spec.
        found = await self._read(
            "SELECT stop_requested FROM duologue_sessions WHERE session = ?", session
        )
        if not found:
            raise unknown_session(session, self.url)
        return bool(found[0][0])

    async def is_locked(self, session: str) -> bool:
        """See `Store.is_locked`."""
        lease = await self._lease(session)
        return lease is not None and await self._stands(lease)

    async def _lease(self, session: str) -> tuple[str, int] | None:
        """Read who holds a session: the owner, and the number of its lease."""
        found = await self._read(
            "SELECT owner, number FROM duologue_leases WHERE session = ?", session
        )
        # As it stands there, however odd: it must be found again to be taken over.
        return (found[0][0], found[0][1]) if found else None

    async def _stands(self, lease: tuple[str, int]) -> bool:
        """Whether somebody runs a session under this lease."""
        owner, number = lease
        # One of ours that stands in the table alone could not be deleted when it was freed.
        return number in self._leases if owner == self.owner else await self._is_alive(str(owner))

    async def _take(self, session: str) -> "SqlHeld | None":
        lease = Lease(session, self.owner, next(self._numbers))
        self._leases[lease.number] = lease
        try:
            if await self._taken(lease):
                return SqlHeld(self, lease, self._saver(lease))
        except BaseException:
            # Who is cancelled here may take it all the same, as soon as the database lets it.
            del self._leases[lease.number]
            self._leave(lease)
            raise
        del self._leases[lease.number]
        return None

    async def _taken(self, lease: Lease) -> bool:
        # Twice: who holds it may let go of it between a look and what follows from it.
        for _ in range(2):
            held = await self._lease(lease.session)
            if held is None:
                added = await self.write(
                    "INSERT INTO duologue_leases (session, owner, number) VALUES (?, ?, ?) "
                    "ON CONFLICT (session) DO NOTHING",
                    *lease.terms,
                )
                if added:
                    return True
                continue
            if await self._stands(held) or await self._is_alive_after_all(held):
                return False
            taken_over = await self.write(
                "UPDATE duologue_leases SET owner = ?, number = ? "
                "WHERE session = ? AND owner = ? AND number = ?",
                *(lease.owner, lease.number, lease.session, *held),
            )
            if taken_over:
                return True
        return False

    async def _is_alive_after_all(self, lease: tuple[str, int]) -> bool:
        """Whether another owner is alive after all, some seconds after it has seemed dead."""
        if not self.second_look or lease[0] == self.owner:
            return False
        await asyncio.sleep(self.second_look)
        return await self._stands(lease)

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self.writer.write(self._deleted(lease))
        except StoreError:
            self._leave(lease)
        finally:
            del self._leases[lease.number]

    def _leave(self, lease: Lease) -> None:
        """Have a lease deleted later; for other processes it stands while this store is open."""
        self._left.append(lease)
        if self._freeing is None or self._freeing.done():
            self._freeing = asyncio.create_task(self._free_what_is_left())

    async def _free_what_is_left(self) -> None:
        """Delete the leases that could not be deleted when they were freed."""
        while self._left:
            left = list(self._left)
            try:
                await self.writer.write(*map(self._deleted, left))
            except StoreError:
                await asyncio.sleep(_RETRY)
            else:
                self._left = self._left[len(left) :]

    def _deleted(self, lease: Lease) -> Statement:
        return self.statement(
            "DELETE FROM duologue_leases WHERE session = ? AND owner = ? AND number = ?",
            *lease.terms,
        )

    async def _free(self, held: "SqlHeld") -> None:
        # LangGraph does not wait for what it writes of a cancelled step.
        await held.drain()
        await self._give_back(held.lease)

    async def close(self) -> None:
        """See `Store.close`."""
        if self._freeing is not None:
            self._freeing.cancel()
            await asyncio.wait([self._freeing])
        await self.writer.drain()


class SqlHeld(Held):
    """A session that this run holds by a lease."""

    def __init__(
        self, store: SqlStore, lease: Lease, checkpointer: BaseCheckpointSaver[str]
    ) -> None:
        self.session = lease.session
        self.url = store.url
        self.lease = lease
        self.checkpointer = checkpointer
        self._store = store

    async def add(self, *, title: str, spec: str) -> SessionRow:
        """See `Held.add`."""
        row = new_row(self.session, title, spec)
        added = await self._store.write(
            "INSERT INTO duologue_sessions (session, title, spec, digest, status, reason, "
            "stop_requested, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session) DO NOTHING",
            *(row.session, row.title, row.spec, row.digest, row.status, row.reason),
            *(int(row.stop_requested), _text(row.created_at), _text(row.updated_at)),
            lease=self.lease,
        )
        # A write that was made again because its connection broke finds itself.
        if not added and await self._store.get(self.session) != row:
            raise taken_session(self.session, self.url)
        return row

    async def _remove(self) -> bool:
        # Looked for first: a write that is made again because its connection broke changes nothing.
        row: LiteralString = "FROM duologue_sessions WHERE session = ?"
        found = await self._store._read("SELECT 1 " + row, self.session)
        await self._store.write("DELETE " + row, self.session, lease=self.lease)
        return bool(found)

    async def drain(self) -> None:
        """See `Held.drain`."""
        await self.lease.drain()

    async def _change(self, **values: str | bool | None) -> None:
        changes = {_COLUMNS[name]: _value(value) for name, value in values.items()}
        sql: LiteralString = "UPDATE duologue_sessions SET "
        sql += "".join(f"{column} = ?, " for column in changes)
        sql += "updated_at = ? WHERE session = ?"
        changed = await self._store.write(
            sql, *changes.values(), _now(), self.session, lease=self.lease
        )
        if not changed:
            raise unknown_session(self.session, self.url)


_COLUMNS: Final[dict[str, LiteralString]] = {
    "status": "status",
    "reason": "reason",
    "stop_requested": "stop_requested",
}


def _value(value: str | bool | None) -> str | int | None:
    return int(value) if isinstance(value, bool) else value


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _now() -> str:
    return _text(datetime.now(UTC))
