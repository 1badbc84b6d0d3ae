"""LangGraph's saver on PostgreSQL: it reads by a pool, and leaves writing to the writer."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.checkpoint.postgres as langgraph
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from ..lease import Lease
from ..serializer import PlainSerializer
from ..writer import Writer
from .postgres_pool import Connections, FetchedRows
from .saver import LeasedSaver, NotingSaver


class _NotingSaver(NotingSaver, langgraph.PostgresSaver):
    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Any]:
        yield self.noted


class PostgresSaver(LeasedSaver, AsyncPostgresSaver):
    """Our saver on a PostgreSQL database."""

    def __init__(
        self, url: str, connections: Connections, writer: Writer, lease: Lease | None
    ) -> None:
        super().__init__(connections.pool, serde=PlainSerializer())
        # It never connects. LangGraph's async one serializes in threads, which takes longer.
        noting = _NotingSaver(None, serde=self.serde)  # type: ignore[arg-type]
        self._write_by(noting, writer, lease)
        self.store_url = url
        self._connections = connections

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        await self.flush()
        yield FetchedRows(self._connections)
