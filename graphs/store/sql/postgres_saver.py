"""LangGraph's saver on PostgreSQL: it reads by a pool, and leaves writing to the writer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from ..saver import LeasedSaver
from ..serializer import PlainSerializer
from ..writer import Lease, Statement, Writer
from .postgres_pool import Connections, FetchedRows


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


class PostgresSaver(LeasedSaver, AsyncPostgresSaver):
    """Our saver on a PostgreSQL database."""

    def __init__(
        self, url: str, connections: Connections, writer: Writer, lease: Lease | None = None
    ) -> None:
        super().__init__(connections.pool, serde=PlainSerializer())
        self.store_url = url
        self.lease = lease
        self._connections = connections
        self._writer = writer

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        if not pipeline:
            yield FetchedRows(self._connections)
            return
        noted = _Noted()
        yield noted
        await self._writer.write(*noted.statements, lease=self.lease)
