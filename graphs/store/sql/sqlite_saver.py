"""LangGraph's saver on SQLite: it reads in a thread, and leaves writing to the writer."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.sqlite import SqliteSaver

from ..serializer import PlainSerializer
from ..writer import Lease, Writer
from .saver import LeasedSaver, NotingSaver, StepSaver

T = TypeVar("T")

_WAIT: Final = 30.0  # seconds


class SqliteThread:
    """A connection in a thread of its own."""

    connection: sqlite3.Connection

    def __init__(self, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="duologue-store")

    def connect(self) -> None:
        """Open the connection, in whatever thread this is called."""
        # A file that was deleted meanwhile is not made anew.
        self.connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT,
            isolation_level=None,
            check_same_thread=False,
        )

    async def run(self, function: Callable[..., T], *given: object) -> T:
        """Call a function in the thread, after all calls that were made before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *given))

    async def close(self) -> None:
        """Close the connection and end the thread, when all is done that was asked for."""
        with suppress(sqlite3.Error):
            await self.run(self._close)
        self._executor.shutdown(wait=False)

    def _close(self) -> None:
        # Opening may have failed.
        if hasattr(self, "connection"):
            self.connection.close()


class _NotingSaver(NotingSaver, SqliteSaver):
    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Give what notes the statements of a transaction."""
        yield self.noted


class _ThreadedSaver(StepSaver, SqliteSaver):
    """LangGraph's saver, which reads in a thread and leaves writing to the writer."""

    def __init__(self, url: str, reader: SqliteThread, writer: Writer, lease: Lease | None) -> None:
        super().__init__(reader.connection, serde=PlainSerializer())
        self._write_by(_NotingSaver(reader.connection, serde=self.serde), writer, lease)
        self.store_url = url
        self._reader = reader

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Give a cursor to read by; the tables are there."""
        with closing(self.conn.cursor()) as cursor:
            yield cursor

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Count a channel's writes in fewer digits than LangGraph, which stores many of them."""
        # LangGraph compares them as text: any of these is more than any of its own, which older
        # sessions hold. Its random part is for databases that keep values by their version.
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:08}."

    async def _read(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        await self.flush()
        return await self._reader.run(partial(call, *given, **named))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint, see LangGraph's saver."""
        return await self._read(self.get_tuple, config)

    async def alist(self, *given: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first, see LangGraph's saver."""
        for one in await self._read(lambda: list(self.list(*given, **named))):
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, see LangGraph's saver."""
        return await self._read(self.get_delta_channel_history, config=config, channels=channels)


class SqliteSessionSaver(LeasedSaver, _ThreadedSaver):
    """Our saver on one SQLite file."""
