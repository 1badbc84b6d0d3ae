"""Sessions in a PostgreSQL database. Needs the extra `postgres`.

Each open store has a pool of connections and one separate connection, whose lock shows that the
store's owner is alive. If a pooler such as PgBouncer assigns connections per transaction, the
separate connection bypasses the pooler.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Any, ClassVar, Final, LiteralString, NamedTuple
from urllib.parse import unquote

import langgraph.checkpoint.postgres as langgraph
import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row, tuple_row

from ..common.addresses import show_address
from ..common.errors import StoreError
from .base import Store, settled
from .errors import as_store_error, store_errors, store_failure
from .lease import Job, Lease, Results, Statement, WriteFailure, Writer
from .postgres_pool import Connection, Connections, FetchedFiles, FetchedRows, UnreachableError
from .saver import RecordingSaver, SqlSaver
from .serializer import PlainSerializer
from .sql_tables import STORE_VERSION

# The server notices within a minute that this machine is gone. This side's settings are in the
# conninfo.
_KEEPALIVES: Final[LiteralString] = (
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
)
ALIVE: Final[LiteralString] = (
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = ? AND objid::bigint = ?"
)
"""Returns a row while a connection has the lock with this key, in the form of `halves`."""


def key(name: str) -> int:
    """Return the 64-bit key of an advisory lock; all schemas of a database share these keys."""
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
        self._connection: Connection | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> Connection:
        """Connect and acquire the lock."""
        with store_errors(self.url):
            self._connection = connection = await self._connect()
            pid = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        # A pooler assigns its own process ids to its clients.
        if not self.is_direct and pid and pid["pid"] != connection.info.backend_pid:
            raise store_failure(
                self.url,
                "a connection pooler answers there; add direct=HOST:PORT of the server itself to "
                "the address, for the one connection that must bypass the pooler",
            )
        return connection

    async def _connect(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, row_factory=dict_row
        )
        try:
            await connection.execute(_KEEPALIVES)
            if not await _try_lock(connection, self.name):
                # The server has not noticed yet that the previous connection is gone.
                raise psycopg.OperationalError(
                    "the server still holds the lock of a lost connection; try again in a minute"
                )
        except BaseException:
            await connection.close()
            raise
        return connection

    def watch(self) -> None:
        """Start to replace the connection whenever it breaks."""
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            connection = self._connection
            assert connection is not None  # noqa: S101  # set by `open`
            with suppress(psycopg.Error):
                # No notification is ever sent: the loop ends when the connection breaks.
                async for _ in connection.notifies():
                    pass
            await connection.close()
            pause = 0.05
            while connection is self._connection:
                try:
                    self._connection = await self._connect()
                except (psycopg.Error, StoreError):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 0.2)

    async def close(self) -> None:
        """Release the lock."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._connection is not None:
            # Explicitly, because the server notices a closed connection a little later.
            with suppress(psycopg.Error):
                await self._connection.execute("SELECT pg_advisory_unlock_all()")
            await self._connection.close()


class _RecordingSaver(RecordingSaver, langgraph.PostgresSaver):
    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Any]:
        yield self.recorder


class PostgresSaver(SqlSaver, AsyncPostgresSaver):
    """The saver of a PostgreSQL database."""

    placeholder = "%s"

    def __init__(
        self, url: str, connections: Connections, writer: Writer, lease: Lease | None
    ) -> None:
        self._fetched = FetchedFiles()
        super().__init__(connections.pool, serde=PlainSerializer(self._fetched))
        # This saver never connects. LangGraph's async saver serializes in threads, which takes
        # longer.
        recording = _RecordingSaver(None, serde=self.serde)  # type: ignore[arg-type]
        self._write_by(recording, self._fetched, writer, lease)
        self.store_url = url
        self._connections = connections

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        await self.flush()
        yield FetchedRows(self._connections, self._fetched)


_POOL_SIZE: Final = 10
_CONNECT: Final = 10  # seconds
_KEPT_ALIVE: Final = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_FRESH: Final = 0.01
"""Seconds after a write during which no other process is expected to request a stop."""
_TABLES_SECONDS: Final = 60.0  # seconds that another process may take to create the tables
_VALID_LEASES: Final[LiteralString] = (
    "SELECT session, owner, number, (SELECT stop_requested FROM duologue_sessions "
    "WHERE duologue_sessions.session = duologue_leases.session) AS stops "
    "FROM duologue_leases JOIN unnest("
    "%(sessions)s::text[], %(owners)s::text[], %(numbers)s::integer[]) "
    "AS given (session, owner, number) USING (session, owner, number) "
    # Ordered, so that two batches of jobs can't deadlock. FOR SHARE, so that no process can take
    # over a lease before the commit.
    "ORDER BY session FOR SHARE OF duologue_leases"
)
"""Returns the given leases that are valid, and whether their sessions were asked to stop."""

_ALL_LEASES_VALID: Final[LiteralString] = (
    "SELECT 1 / (count(*) = %(count)s)::integer, array_agg(session) FILTER (WHERE stops = 1) "
    "FROM (" + _VALID_LEASES + ") AS standing"
)
"""Fails, together with its transaction, unless all given leases are valid. Returns the sessions
that shall stop."""


class _Address(NamedTuple):
    """The parts of a store's address."""

    url: str
    """The address for users, without the password."""
    conninfo: str
    """The connection string of the pool."""
    direct: str
    """The connection string of the connection that shows that the store is alive."""
    is_direct: bool
    """Whether `direct` was given, because `conninfo` leads to a pooler."""
    pool_size: int
    timeout: float
    """Maximum seconds to connect, and to wait for a connection of the pool."""


class PostgresStore(Store):
    """A store in one schema of a PostgreSQL database."""

    # Time to replace a broken connection; until then, its leases must not be taken over.
    second_look = 2.0
    like = "ILIKE"
    placeholder = "%s"
    each_of = "SELECT json_array_elements_text(CAST(? AS json))"
    bytes_type = "BYTEA"
    known_tables = "SELECT 1 WHERE to_regclass('duologue_schema') IS NOT NULL"
    newest_stop: ClassVar = object()
    """Another object after each stop that this process requests."""

    def __init__(self, target: str) -> None:
        super().__init__()
        address = _address(target)
        self.url = address.url
        self._target = target
        self._owner = PostgresOwner(address.direct, address.url, is_direct=address.is_direct)
        self.owner = self._owner.name
        self._connections = Connections(
            address.conninfo,
            size=address.pool_size,
            timeout=address.timeout,
            # A pooler may use another connection for each transaction.
            prepares=not address.is_direct,
        )
        self.writer = Writer(self._commit, self._explain)

    @property
    def address(self) -> str:
        """Return the address that opens the store again. It may contain a password."""
        return self._target

    def _saver(self, lease: Lease | None = None) -> PostgresSaver:
        return PostgresSaver(self.url, self._connections, self.writer, lease)

    async def open(self) -> None:
        """Connect, and create the tables of LangGraph and duologue if they are missing."""
        connection = await self._owner.open()
        with store_errors(self.url):
            if self._owner.is_direct:
                # Tried separately, because the pool would not report why it gets no connection.
                await self._connections.connect_once()
            found = await (await connection.execute("SELECT current_schema() AS s")).fetchone()
        if found is None or found["s"] is None:
            raise store_failure(self.url, "no schema of its search_path exists")
        with store_errors(self.url):
            await self._connections.pool.open()
            async with _advisory_lock(connection, f"set-up {found['s']}", self.url):
                known = await self.read(self.known_tables)
                missing = self.missing_tables(await self.read(STORE_VERSION) if known else [])
                if missing:
                    await self.writer.write(*missing)
                # A pooler could keep the pool's connections waiting.
                await AsyncPostgresSaver(connection).setup()
        self._owner.watch()

    async def read(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """See `Store.read`."""
        with store_errors(self.url):
            return await self._connections.fetch(sql.replace("?", "%s"), values, tuple_row)

    def stop_sign(self) -> object:
        """See `Tables.stop_sign`. It also changes with time: other processes may request stops."""
        return PostgresStore.newest_stop, time.monotonic() // _FRESH

    async def request_stop(self, session: str) -> None:
        """See `Tables.request_stop`."""
        await super().request_stop(session)
        PostgresStore.newest_stop = object()

    async def _is_alive(self, owner: str) -> bool:
        return bool(await self.read(ALIVE, *halves(owner)))

    async def _commit(self, jobs: Sequence[Job]) -> Results:
        return await self._connections.retry(partial(self._commit_once, jobs))

    def _explain(self, error: Exception) -> WriteFailure:
        return WriteFailure(as_store_error(self.url, error), isinstance(error, UnreachableError))

    async def _commit_once(self, jobs: Sequence[Job]) -> Results:
        leases = [*{job.lease for job in jobs if job.lease is not None}]
        sign, valid, stopped = self.stop_sign(), leases, None
        results = list[int | Exception]()
        async with self._connections.acquire() as connection:
            try:
                # All statements are sent to the server at once.
                async with connection.pipeline(), connection.transaction():
                    # A row that another transaction has locked must not stop all sessions.
                    await connection.execute("SET LOCAL lock_timeout = '5s'")
                    if leases:
                        checked = await _check_leases(connection, _ALL_LEASES_VALID, leases)
                    sent = [await _send(connection, *job.statements) for job in jobs]
                if leases:
                    ((_, stopped),) = await checked.fetchall()
                results += [cursor.rowcount for cursor in sent]
            except psycopg.errors.DivisionByZero:
                results, valid, stopped = await self._commit_valid(connection, jobs, leases)
        for lease in valid:
            lease.note_write(sign, stop_requested=lease.subject.key in (stopped or ()))
        return results

    async def _commit_valid(
        self, connection: Connection, jobs: Sequence[Job], leases: Collection[Lease]
    ) -> tuple[list[int | Exception], list[Lease], Collection[str]]:
        """Commit the jobs with valid leases if some leases are lost.

        Returns:
            The results, the valid leases, and the keys of those whose sessions shall stop.
        """
        async with connection.transaction():
            found = await (await _check_leases(connection, _VALID_LEASES, leases)).fetchall()
            stops = {(key, owner, number): stop for key, owner, number, stop in found}
            valid = [lease for lease in leases if lease.terms in stops]
            results = list[int | Exception]()
            for job in jobs:
                if job.lease is not None and job.lease not in valid:
                    results.append(job.lease.refusal())
                else:
                    results.append((await _send(connection, *job.statements)).rowcount)
        return results, valid, [terms[0] for terms, stop in stops.items() if stop]

    async def close(self) -> None:
        """See `Store.close`."""
        await super().close()
        await self._connections.pool.close()
        await self._owner.close()


async def _check_leases(
    connection: Connection, query: LiteralString, leases: Collection[Lease]
) -> psycopg.AsyncCursor[tuple[Any, ...]]:
    """Acquire the leases that are not acquired yet, and run a query on all of them."""
    new = [lease.acquisition for lease in leases if lease.acquisition is not None]
    await _send(connection, *new)
    sessions, owners, numbers = ([one.terms[place] for one in leases] for place in range(3))
    terms = {"sessions": sessions, "owners": owners, "numbers": numbers, "count": len(leases)}
    return await connection.cursor(row_factory=tuple_row).execute(query, terms)


async def _send(connection: Connection, *statements: Statement) -> psycopg.AsyncCursor[Any]:
    """Send statements; return the cursor of the last one."""
    cursor = connection.cursor(binary=True)
    for sql, values, many in statements:
        cursor = connection.cursor(binary=True)
        # Statements of LangGraph and duologue; none contains text of users or models.
        query: Any = sql
        await (cursor.executemany if many else cursor.execute)(query, values)
    return cursor


async def _try_lock(connection: Connection, name: str) -> bool:
    """Acquire an advisory lock, and return whether it was free."""
    take: LiteralString = "SELECT pg_try_advisory_lock(%s) AS got"
    found = await (await connection.execute(take, [key(name)])).fetchone()
    return bool(found and found["got"])


@asynccontextmanager
async def _advisory_lock(connection: Connection, what: str, url: str) -> AsyncIterator[None]:
    """Run the block under an advisory lock, so that only one process at a time does so."""
    until = time.monotonic() + _TABLES_SECONDS
    # Polled, because a statement that waits inside PostgreSQL would block the lock holder's CREATE
    # INDEX CONCURRENTLY, which waits for all running statements.
    while not await _try_lock(connection, what):
        if time.monotonic() > until:
            raise store_failure(
                url,
                f"another process has been creating its tables for {_TABLES_SECONDS:g} s; try "
                "again",
            )
        await asyncio.sleep(0.05)
    try:
        yield
    finally:
        await settled(connection.execute("SELECT pg_advisory_unlock(%s)", [key(what)]))


def _address(target: str) -> _Address:
    """Parse an address, in which two parameters belong to duologue and not to libpq."""
    url = show_address(target)
    address, _, query = target.partition("?")
    ours = dict[str, str]()
    others = list[str]()
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in ("pool_size", "direct"):
            ours[name] = unquote(value)
        else:
            others.append(pair)
    try:
        given = "?".join(filter(None, (address, "&".join(others))))
        if set("@/") & set(address.partition("://")[2].rpartition("@")[0]):
            # libpq would read a part of the password as the host, and quote it in errors.
            raise psycopg.ProgrammingError
        timeout = int(conninfo_to_dict(given).get("connect_timeout") or 0) or _CONNECT
        # By default, libpq notices only after two hours that the server's machine is gone.
        known = conninfo_to_dict(given)
        kept = {name: value for name, value in _KEPT_ALIVE.items() if name not in known}
        conninfo = make_conninfo(given, connect_timeout=timeout, **kept)
    except ValueError:
        raise StoreError(f"{url!r} is not valid: connect_timeout must be in seconds.") from None
    except psycopg.ProgrammingError:
        # Not chained: libpq's message about an invalid address may contain parts of the password.
        raise StoreError(
            f"{url!r} is not a valid PostgreSQL address: "
            "use postgresql://user:password@host:port/database, with special characters as %XX."
        ) from None
    size = ours.get("pool_size", str(_POOL_SIZE))
    if not re.fullmatch("[1-9][0-9]{0,3}", size):
        raise StoreError(f"{url!r} is not valid: pool_size must be a whole number from 1 to 9999.")
    past, direct = conninfo, ours.get("direct")
    if direct is not None:
        host, _, port = direct.rpartition(":")
        if not host.strip("[]") or not port.isdigit():
            raise StoreError(f"{url!r} is not valid: direct must be HOST:PORT of the server.")
        # The address of the pooler's machine would override the host's name.
        parts: dict[str, Any] = conninfo_to_dict(conninfo)
        parts.pop("hostaddr", None)
        past = make_conninfo(**parts | {"host": host.strip("[]"), "port": port})
    return _Address(url, conninfo, past, direct is not None, int(size), timeout)
