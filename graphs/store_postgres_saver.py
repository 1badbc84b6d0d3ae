"""LangGraph's saver on PostgreSQL: it reads by a pool, and leaves writing to the writer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from duologue.graphs.store_saver import LeasedSaver
from duologue.graphs.store_serde import PlainSerializer
from duologue.graphs.store_writer import Lease, Statement, Writer

T = TypeVar("T")

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]
Pool: TypeAlias = AsyncConnectionPool[Connection]


def _is_broken(error: BaseException) -> bool:
    # Who has waited in vain for a connection has waited long enough.
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, PoolTimeout)


async def again(pool: Pool, call: Callable[[], Awaitable[T]]) -> T:
    """Call again while connections of the pool break, as all do when the server restarts.

    Args:
        pool: The pool.
        call: What uses it, and may be called several times.

    Returns:
        What the call returns.

    Raises:
        psycopg.OperationalError: What the last of four tries has raised.
    """
    tries = AsyncRetrying(
        retry=retry_if_exception(_is_broken),
        stop=stop_after_attempt(4),
        wait=wait_exponential(0.05),
        reraise=True,
    )
    async for attempt in tries:
        with attempt:
            if attempt.retry_state.attempt_number > 1:
                # Else the next one that is broken is taken.
                await pool.check()
            return await call()
    raise AssertionError("unreachable")


class _Noted:
    """Takes statements where LangGraph's saver expects a cursor."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Note a statement."""
        self.statements.append(Statement(sql, values))

    async def executemany(self, sql: str, values: Sequence[Any]) -> None:
        """Note a statement that is run once for each of the values."""
        self.statements.append(Statement(sql, values, many=True))


class PooledSaver(AsyncPostgresSaver):
    """LangGraph's saver, which reads by a pool and leaves writing to the writer."""

    def __init__(self, pool: Pool, writer: Writer, lease: Lease | None) -> None:
        super().__init__(pool, serde=PlainSerializer())
        self.lease = lease
        self._pool = pool
        self._writer = writer

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        if pipeline:
            noted = _Noted()
            yield noted
            await self._writer.write(*noted.statements, lease=self.lease)
            return
        async with (
            self._pool.connection() as connection,
            connection.cursor(binary=True, row_factory=dict_row) as cursor,
        ):
            yield cursor

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint, see LangGraph's saver."""
        read = super().aget_tuple
        return await again(self._pool, lambda: read(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first, see LangGraph's saver."""
        listed = super().alist

        async def found() -> list[CheckpointTuple]:
            return [one async for one in listed(config, filter=filter, before=before, limit=limit)]

        for one in await again(self._pool, found):
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, see LangGraph's saver."""
        read = super().aget_delta_channel_history
        return await again(self._pool, lambda: read(config=config, channels=channels))


class PostgresSaver(LeasedSaver, PooledSaver):
    """Our saver on a PostgreSQL database.

    Args:
        url: How the store is shown.
        pool: Reads are made by it.
        writer: Commits what is written.
        lease: The session that may be written. None: the saver is for reading only.
    """

    def __init__(self, url: str, pool: Pool, writer: Writer, lease: Lease | None = None) -> None:
        super().__init__(pool, writer, lease)
        self.store_url = url
