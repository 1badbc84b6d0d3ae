"""LangGraph's saver on SQLite, which reads in a thread and passes its writes to the writer."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.sqlite import SqliteSaver

from .lease import Lease
from .message_files import FIND_FILE, SqlFiles
from .serializer import PlainSerializer
from .sql_saver import LeasedSaver, NotingSaver, StepSaver
from .sqlite_files import SqliteThread
from .writer import Writer

T = TypeVar("T")


class _NotingSaver(NotingSaver, SqliteSaver):
    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Yield the recorder of a transaction's statements."""
        yield self.noted


class _ThreadedSaver(StepSaver, SqliteSaver):
    """LangGraph's SQLite checkpointer. It reads in a thread and passes its writes to the writer."""

    def __init__(self, url: str, reader: SqliteThread, writer: Writer, lease: Lease | None) -> None:
        files = SqlFiles(self._find_file)
        super().__init__(reader.connection, serde=PlainSerializer(files))
        self._write_by(_NotingSaver(reader.connection, serde=self.serde), files, writer, lease)
        self.store_url = url
        self._reader = reader

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[Any]:
        """Yield a cursor that reads in one transaction; the tables exist."""
        with closing(self.conn.cursor()) as cursor:
            # LangGraph reads with several queries, between which a step may be saved.
            cursor.execute("BEGIN")
            try:
                yield cursor
            finally:
                self.conn.rollback()

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version of a channel, with fewer digits than LangGraph's versions."""
        # LangGraph stores many versions and compares them as text. Any of these sorts after any of
        # LangGraph's own versions, which older sessions contain. Their random part is for databases
        # that store values by version.
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:08}."

    def _find_file(self, digest: str) -> bytes | None:
        """Return the bytes of a file. LangGraph's saver calls this in the reader's thread."""
        found = self.conn.execute(FIND_FILE, (digest,)).fetchone()
        return None if found is None else found[0]

    async def _read(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        await self.flush()
        return await self._reader.read(partial(call, *given, **named))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        return await self._read(self.get_tuple, config)

    async def alist(self, *given: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first (see LangGraph's `BaseCheckpointSaver`)."""
        for one in await self._read(lambda: list(self.list(*given, **named))):
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels (see LangGraph's `BaseCheckpointSaver`)."""
        return await self._read(self.get_delta_channel_history, config=config, channels=channels)


class SqliteSessionSaver(LeasedSaver, _ThreadedSaver):
    """A checkpointer that stores sessions in one SQLite file, each under its lease."""
