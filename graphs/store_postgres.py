"""Sessions in a PostgreSQL database, with advisory locks. Needs the extra `postgres`.

A pooler that hands out connections by transaction can't keep such a lock: connect past it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, LiteralString, TypeAlias

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row, tuple_row

from duologue.graphs.errors import StoreError
from duologue.graphs.store_base import (
    Store,
    busy_session,
    check_session_id,
    redacted,
    store_errors,
    store_failure,
)
from duologue.graphs.store_saver import GuardedSaver, settled
from duologue.graphs.store_sql import SqlStore

_Connection: TypeAlias = psycopg.AsyncConnection[DictRow]

_SETUP = ""  # no session has this id, so no session's lock is this one


class _Saver(GuardedSaver, AsyncPostgresSaver):
    """LangGraph's saver, whose errors name the store."""

    def __init__(self, conn: _Connection, url: str) -> None:
        super().__init__(conn)
        self.store_url = url
        self.writing = set()


class PostgresStore(SqlStore):
    """A store in one schema of a PostgreSQL database.

    Args:
        conninfo: What new connections are made with.
        url: How it is shown.
        connection: An open connection that commits each statement, closed by the caller.
        schema: The schema its tables are in.
    """

    def __init__(self, conninfo: str, url: str, connection: _Connection, schema: str) -> None:
        self.url = url
        self._conninfo = conninfo
        self._connection = connection
        self._schema = schema
        self._saver = _Saver(connection, url)
        self.checkpointer = self._saver

    async def drain(self) -> None:
        """Await the writes under way."""
        await self._saver.drain()

    async def set_up(self) -> None:
        """Make LangGraph's tables and ours; one process at a time.

        Raises:
            StoreError: The tables can't be made, or a newer version of this library made them.
        """
        key = self._key(_SETUP)
        # Asked again and again: a statement that waits inside PostgreSQL would stop the
        # holder's CREATE INDEX CONCURRENTLY, which waits for all statements under way.
        take: LiteralString = "SELECT pg_try_advisory_lock(?)"
        while not (await self._read(take, key))[0][0]:  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.05)
        try:
            await super().set_up()
            await self._saver.whole(self._saver.setup())
        finally:
            await settled(self._read("SELECT pg_advisory_unlock(?)", key))

    async def _read(self, sql: LiteralString, *values: object) -> Sequence[Sequence[Any]]:
        # The saver's lock: its pipelines and our statements share one connection.
        with store_errors(self.url):
            async with (
                self._saver.lock,
                self._connection.cursor(row_factory=tuple_row) as cursor,
            ):
                await cursor.execute(sql.replace("?", "%s"), values)
                return await cursor.fetchall()

    async def _write(self, sql: LiteralString, *values: object) -> int:
        return await self._saver.whole(self._commit(sql, values))

    async def _commit(self, sql: LiteralString, values: tuple[object, ...]) -> int:
        async with self._saver.lock, self._connection.cursor() as cursor:
            await cursor.execute(sql.replace("?", "%s"), values)
            return cursor.rowcount

    @asynccontextmanager
    async def lock(self, session: str) -> AsyncIterator[None]:
        """See `Store.lock`. The lock lives as long as a connection of its own."""
        key = self._key(check_session_id(session))
        async with _connected(self._conninfo, self.url) as connection:
            with store_errors(self.url):
                cursor = await connection.execute("SELECT pg_try_advisory_lock(%s) AS got", [key])
                row = await cursor.fetchone()
            if row is None or not row["got"]:
                raise busy_session(session)
            try:
                yield
            finally:
                # Said aloud, because the server learns of a closed connection a little later.
                with suppress(psycopg.Error):
                    await settled(_unlock(connection, key))

    async def is_locked(self, session: str) -> bool:
        """See `Store.is_locked`."""
        key = self._key(check_session_id(session))
        found = await self._read(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND classid::bigint = ? AND objid::bigint = ?",
            *(key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF),
        )
        return bool(found)

    def _key(self, session: str) -> int:
        """Return the 64-bit number of a session's lock; locks are shared by all schemas."""
        name = f"duologue\0{self._schema}\0{session}"
        return int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)


async def _unlock(connection: _Connection, key: int) -> None:
    await connection.execute("SELECT pg_advisory_unlock(%s)", [key])


@asynccontextmanager
async def _connected(conninfo: str, url: str) -> AsyncIterator[_Connection]:
    with store_errors(url):
        connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
    try:
        yield connection
    finally:
        await settled(connection.close())


@asynccontextmanager
async def open_postgres(target: str) -> AsyncIterator[Store]:
    """Open the store in a PostgreSQL database; its tables are made if they are missing.

    Args:
        target: `postgresql://…` or `postgres://…`, as libpq takes it. Ten seconds are given to
            connect unless it names a `connect_timeout`.

    Yields:
        The store, usable in this event loop until the block ends.

    Raises:
        StoreError: The address is not valid, or the database can't be reached or used.
    """
    url = redacted(target)
    try:
        given = conninfo_to_dict(target)
    except psycopg.ProgrammingError:
        # Not chained: what libpq says of a bad address may hold parts of the password.
        raise StoreError(
            f"{url!r} is not a valid PostgreSQL address: "
            "use postgresql://user:password@host:port/database, with special characters as %XX."
        ) from None
    conninfo = make_conninfo(target, connect_timeout=given.get("connect_timeout", 10))
    async with _connected(conninfo, url) as connection:
        with store_errors(url):
            found = await (await connection.execute("SELECT current_schema() AS s")).fetchone()
        if found is None or found["s"] is None:
            raise store_failure(url, "no schema of its search_path exists")
        store = PostgresStore(conninfo, url, connection, found["s"])
        try:
            await store.set_up()
            yield store
        finally:
            await settled(store.drain())
