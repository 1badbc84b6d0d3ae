"""LangGraph's saver on PostgreSQL: it reads by a pool, and leaves writing to the writer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from ..saver import LeasedSaver, Noted
from ..serializer import PlainSerializer
from ..writer import Lease, Writer
from .postgres_pool import Connections, FetchedRows


class PostgresSaver(LeasedSaver, AsyncPostgresSaver):
    """Our saver on a PostgreSQL database."""

    def __init__(
        self, url: str, connections: Connections, writer: Writer, lease: Lease | None
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
        noted = Noted()
        yield noted
        await self._writer.write(*noted.statements, lease=self.lease)
