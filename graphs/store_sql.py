"""The `duologue_sessions` table, in the SQL that SQLite and PostgreSQL share. No driver here."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, LiteralString

from duologue.graphs.errors import StoreError
from duologue.graphs.store_base import (
    SessionRow,
    Store,
    new_row,
    taken_session,
    unknown_session,
)

VERSION: Final = 1
_SELECT: Final = """SELECT session, title, spec, digest, status, reason, stop_requested,
    created_at, updated_at FROM duologue_sessions"""
# In the order of SessionRow's fields. Times are ISO 8601 text of one width, in UTC, so that both
# databases sort and return them alike.
_TABLE: Final = """CREATE TABLE IF NOT EXISTS duologue_sessions (
    session TEXT PRIMARY KEY, title TEXT NOT NULL, spec TEXT NOT NULL, digest TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT, stop_requested INTEGER NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL)"""


class SqlStore(Store):
    """A store whose rows are in SQL; a database's own class says how statements are run."""

    @abstractmethod
    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, whose placeholders are `?`."""

    @abstractmethod
    async def _write(self, sql: LiteralString, *values: object) -> int:
        """Run and commit one statement, whose placeholders are `?`; return the rows changed."""

    async def set_up(self) -> None:
        """Make our tables if they are missing; the caller keeps others from doing so meanwhile.

        Raises:
            StoreError: The database fails, or a newer version of this library wrote it.
        """
        await self._write("CREATE TABLE IF NOT EXISTS duologue_schema (version INTEGER NOT NULL)")
        found = await self._read("SELECT version FROM duologue_schema")
        if found and found[0][0] > VERSION:
            raise StoreError(
                f"The sessions in {self.url} have format {found[0][0]} and this duologue reads up "
                f"to {VERSION}: upgrade duologue, or choose another store."
            )
        if not found:
            await self._write(_TABLE)
            await self._write("INSERT INTO duologue_schema (version) VALUES (?)", VERSION)

    async def add(self, session: str, *, title: str, spec: str) -> SessionRow:
        """See `Store.add`."""
        row = new_row(session, title, spec)
        added = await self._write(
            "INSERT INTO duologue_sessions (session, title, spec, digest, status, reason, "
            "stop_requested, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session) DO NOTHING",
            *(row.session, row.title, row.spec, row.digest, row.status, row.reason),
            *(int(row.stop_requested), _text(row.created_at), _text(row.updated_at)),
        )
        if not added:
            raise taken_session(session, self.url)
        return row

    async def get(self, session: str) -> SessionRow | None:
        """See `Store.get`."""
        found = await self._read(_SELECT + " WHERE session = ?", session)
        return _row(found[0]) if found else None

    async def finish(self, session: str, reason: str) -> None:
        """See `Store.finish`."""
        await self._set_status(session, "finished", reason)

    async def wait(self, session: str) -> None:
        """See `Store.wait`."""
        await self._set_status(session, "waiting", None)

    async def reopen(self, session: str) -> None:
        """See `Store.reopen`."""
        await self._set_status(session, "unfinished", None)

    async def _set_status(self, session: str, status: str, reason: str | None) -> None:
        await self._change(
            "UPDATE duologue_sessions SET status = ?, reason = ?, updated_at = ? WHERE session = ?",
            *(status, reason, _now(), session),
        )

    async def request_stop(self, session: str) -> None:
        """See `Store.request_stop`."""
        await self._set_stop(session, 1)

    async def clear_stop(self, session: str) -> None:
        """See `Store.clear_stop`."""
        await self._set_stop(session, 0)

    async def _set_stop(self, session: str, wanted: int) -> None:
        await self._change(
            "UPDATE duologue_sessions SET stop_requested = ?, updated_at = ? WHERE session = ?",
            *(wanted, _now(), session),
        )

    async def _change(self, sql: LiteralString, *values: object) -> None:
        """Run an update whose last value is the session."""
        if not await self._write(sql, *values):
            raise unknown_session(str(values[-1]), self.url)

    async def _remove(self, session: str) -> None:
        await self._write("DELETE FROM duologue_sessions WHERE session = ?", session)

    async def list(self) -> list[SessionRow]:
        """See `Store.list`."""
        found = await self._read(_SELECT + " ORDER BY created_at DESC, session")
        return [_row(values) for values in found]


def _row(values: Sequence[Any]) -> SessionRow:
    return SessionRow.model_validate(dict(zip(SessionRow.model_fields, values, strict=True)))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _now() -> str:
    return _text(datetime.now(UTC))
