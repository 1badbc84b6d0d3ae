"""The connections of a PostgreSQL store: a pool that survives a server's restart."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, LiteralString, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import psycopg
from psycopg.rows import AsyncRowFactory, DictRow, dict_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from .saver import SqlFiles
from .serializer import encode_file, find_digests

T = TypeVar("T")
Row = TypeVar("Row")

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]

# The driver also raises every error that it logs; without a handler Python would print it.
for _name in ("psycopg", "psycopg.pool"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_TRIES: Final = 4
_FIND_FILES: Final[LiteralString] = (
    "SELECT DISTINCT ON (digest) digest, data FROM duologue_files WHERE digest = ANY(%s)"
)


class UnreachableError(psycopg.OperationalError):
    """No connection can be made; the text contains the reason."""


class PoolerTimeoutError(PoolTimeout):
    """A connection pooler has assigned no connection of the server in time."""


class Connections:
    """The connections of one store."""

    def __init__(self, conninfo: str, *, size: int, timeout: float, prepares: bool) -> None:
        self._conninfo = conninfo
        self._prepares = prepares
        self.pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            conninfo,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": 0 if prepares else None,
            },
            min_size=0,
            max_size=size,
            timeout=timeout,
            open=False,
        )

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """Yield a connection of the pool. Behind a pooler, it is in a transaction.

        Raises:
            PoolTimeout: No connection was free for the pool's timeout.
        """
        async with self.pool.connection() as connection:
            if not self._prepares:
                # A pooler admits clients at once, and makes their first statement wait for a
                # connection of the server, PgBouncer for two minutes.
                try:
                    async with asyncio.timeout(self.pool.timeout):
                        await connection.execute("BEGIN")
                except TimeoutError as error:
                    raise PoolerTimeoutError(
                        f"the connection pooler had no free connection for {self.pool.timeout:g} "
                        "s; raise its pool size, or end programs that use its connections"
                    ) from error
            yield connection

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call a function that uses a connection, and retry while connections break."""
        tries = AsyncRetrying(
            retry=retry_if_exception(_is_worth_a_try),
            stop=stop_after_attempt(_TRIES),
            wait=wait_exponential(0.05),
            reraise=True,
        )
        failed = self._count_failures()
        try:
            async for attempt in tries:
                with attempt:
                    if attempt.retry_state.attempt_number > 1:
                        # Otherwise the pool may return another broken connection.
                        await self.pool.check()
                    return await call()
        except psycopg.OperationalError as error:
            if _is_of_connection(error):
                raise UnreachableError(await self._find_reason(error, failed)) from error
            raise
        raise AssertionError  # a retry ends with a result or an error

    def _count_failures(self) -> int:
        """Return the number of failed connection attempts so far."""
        return self.pool.get_stats().get("connections_errors", 0)

    async def _find_reason(self, error: psycopg.OperationalError, failed: int) -> str:
        """Return the reason why there is no connection, which the pool does not report."""
        try:
            await self.connect_once()
        except psycopg.Error as reason:
            return str(reason)
        if isinstance(error, PoolerTimeoutError):
            return str(error)
        if isinstance(error, PoolTimeout) and self._count_failures() > failed:
            return f"no connection could be made for {self.pool.timeout:g} s"
        if isinstance(error, PoolTimeout):
            return f"all its connections were in use for {self.pool.timeout:g} s; raise pool_size"
        return str(error)

    async def connect_once(self) -> None:
        """Make a connection outside the pool, and close it."""
        await (await psycopg.AsyncConnection.connect(self._conninfo)).close()

    async def fetch(
        self,
        query: str,
        values: Sequence[object],
        row_factory: AsyncRowFactory[Row],
        *,
        binary: bool = False,
    ) -> list[Row]:
        """Return all rows of a query; the connection is then free again."""

        async def fetch_rows() -> list[Row]:
            async with (
                self.acquire() as connection,
                connection.cursor(row_factory=row_factory, binary=binary) as cursor,
            ):
                await cursor.execute(query, values)
                return await cursor.fetchall()

        return await self.retry(fetch_rows)


def _is_of_connection(error: psycopg.OperationalError) -> bool:
    """Return whether the connection caused an error, and not the statement."""
    state = error.sqlstate or ""
    # 08: connection exceptions; 57P: the server shuts down, or is not up yet.
    return not state or state.startswith(("08", "57P"))


def _is_worth_a_try(error: BaseException) -> bool:
    if isinstance(error, PoolTimeout) or not isinstance(error, psycopg.OperationalError):
        # The pool has waited for its whole timeout.
        return False
    return _is_of_connection(error) or isinstance(error, psycopg.errors.DeadlockDetected)


class _Text(str):
    """A text that can be referenced weakly."""


class FetchedFiles(SqlFiles):
    """The files of a saver that reads asynchronously, so that it must fetch them beforehand.

    A file stays in memory while a message, or the rows of a query, contain it.
    """

    def __init__(self) -> None:
        super().__init__(lambda digest: None)
        self._fetched: WeakValueDictionary[str, _Text] = WeakValueDictionary()

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        found = self._fetched.get(digest)
        return super().get(digest) if found is None else found

    def find_missing(self, rows: Iterable[object]) -> list[str]:
        """Return the digests of the files in rows that were not fetched yet."""
        return [digest for digest in {*_digests(rows)} if digest not in self._fetched]

    def keep(self, found: Iterable[tuple[str, bytes]]) -> list[object]:
        """Keep files that were fetched as long as the returned list is referenced."""
        kept: list[object] = []
        for digest, data in found:
            text = self._fetched[digest] = _Text(encode_file(digest, data))
            kept.append(text)
        return kept


def _digests(value: object) -> Iterator[str]:
    """Yield the digests in the binary values of rows."""
    if isinstance(value, bytes):
        yield from find_digests(value)
    elif isinstance(value, dict):
        yield from _digests(value.values())
    elif not isinstance(value, str | None) and isinstance(value, Iterable):
        for one in value:
            yield from _digests(one)


class FetchedRows:
    """A replacement for the cursor that LangGraph's saver expects.

    LangGraph waits for threads while it reads from its cursor. A cursor of PostgreSQL would occupy
    a connection during that wait.
    """

    def __init__(self, connections: Connections, files: FetchedFiles) -> None:
        self._connections = connections
        self._files = files
        self._rows: list[DictRow] = []
        self._kept: list[object] = []

    async def execute(self, query: str, values: Sequence[object] = (), **_: object) -> None:
        """Run a query and read all its rows."""
        self._rows = await self._connections.fetch(query, values, dict_row, binary=True)
        if digests := self._files.find_missing(self._rows):
            found = await self._connections.fetch(_FIND_FILES, [digests], tuple_row, binary=True)
            # LangGraph reads the rows before it drops this object.
            self._kept += self._files.keep((digest, data) for digest, data in found)

    async def fetchone(self) -> "DictRow | None":
        """Return the next row."""
        return self._rows.pop(0) if self._rows else None

    async def fetchall(self) -> list[DictRow]:
        """Return the remaining rows."""
        rows, self._rows = self._rows, []
        return rows

    async def __aiter__(self) -> AsyncIterator[DictRow]:
        """Yield the remaining rows."""
        for row in await self.fetchall():
            yield row
