"""How an open PostgreSQL store shows that it lives: a connection that holds a lock of its own."""

import asyncio
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Final, LiteralString, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row

from ...common.errors import StoreError
from ..errors import store_errors, store_failure

_Connection: TypeAlias = psycopg.AsyncConnection[DictRow]

# The server notices within a minute that this machine is gone; this side's is in the conninfo.
_KEEPALIVES: Final[LiteralString] = (
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
)
ALIVE: Final[LiteralString] = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = ? AND objid::bigint = ?"
)
"""Gives a row while somebody holds the lock with this key, given as `halves` gives it."""


def key(name: str) -> int:
    """Return the 64-bit key of an advisory lock; all schemas of a database share them."""
    return int.from_bytes(sha256(f"duologue\0{name}".encode()).digest()[:8], signed=True)


def halves(name: str) -> tuple[int, int]:
    """Return the two halves of a lock's key, as PostgreSQL lists them."""
    whole = key(name)
    return whole >> 32 & 0xFFFFFFFF, whole & 0xFFFFFFFF


class PostgresOwner:
    """An open store, known to other processes by its name."""

    def __init__(self, conninfo: str, url: str, *, is_direct: bool) -> None:
        self.name = token_hex(16)
        self.url = url
        self._conninfo = conninfo
        self.is_direct = is_direct
        self._connection: _Connection | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> _Connection:
        """Connect and take the lock."""
        with store_errors(self.url):
            self._connection = connection = await self._connected()
            pid = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        # A pooler gives its clients numbers of its own.
        if not self.is_direct and pid and pid["pid"] != connection.info.backend_pid:
            raise store_failure(
                self.url,
                "a pooler of connections answers there: add direct=HOST:PORT to the address, where "
                "the server itself listens, for the one connection that must go past the pooler",
            )
        return connection

    async def _connected(self) -> _Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, row_factory=dict_row
        )
        try:
            await connection.execute(_KEEPALIVES)
            take: LiteralString = "SELECT pg_try_advisory_lock(%s) AS got"
            found = await (await connection.execute(take, [key(self.name)])).fetchone()
            if not (found and found["got"]):
                # The server has not noticed yet that the connection before is gone.
                raise psycopg.OperationalError("the lock of this store is still held")
        except BaseException:
            await connection.close()
            raise
        return connection

    def watch(self) -> None:
        """From now on, make a new connection whenever this one breaks."""
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            connection = self._connection
            assert connection is not None  # noqa: S101  # watched once it is open
            with suppress(psycopg.Error):
                # No notification is ever sent: the loop ends when the connection breaks.
                async for _ in connection.notifies():
                    pass
            await connection.close()
            pause = 0.05
            while connection is self._connection:
                try:
                    self._connection = await self._connected()
                except (psycopg.Error, StoreError):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 0.2)

    async def close(self) -> None:
        """Let go of the lock."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._connection is not None:
            # Said aloud, because the server learns of a closed connection a little later.
            with suppress(psycopg.Error):
                await self._connection.execute("SELECT pg_advisory_unlock_all()")
            await self._connection.close()
