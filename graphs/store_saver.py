"""What our checkpointers add to LangGraph's: whole writes and errors that name the store.

Nothing about a particular database lives here.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from duologue.graphs.store_base import store_errors

T = TypeVar("T")


async def settled(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile.

    A write cut between its statement and its commit would leave a transaction open, and every
    other process waiting for it.

    Args:
        work: What ends soon by itself.

    Returns:
        What `work` returns.

    Raises:
        asyncio.CancelledError: The caller was cancelled; `work` has ended by then.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Looked at, so that asyncio does not report an error that nobody waits for any more.
        _ = task.cancelled() or task.exception()
        raise cancelled
    return task.result()


class GuardedSaver(BaseCheckpointSaver[str]):
    """A mix-in before one of LangGraph's savers: whole writes, and `StoreError` when it fails.

    Attributes:
        store_url: The store's address, named in errors.
        writing: The writes under way.
    """

    store_url: str
    writing: set[asyncio.Task[Any]]

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a write to its end, cancelled or not.

        Args:
            work: The write, with its commit.

        Returns:
            What `work` returns.

        Raises:
            StoreError: The database fails.
        """
        task = asyncio.ensure_future(self._write(work))
        self.writing.add(task)
        task.add_done_callback(self.writing.discard)
        return await settled(task)

    async def drain(self) -> None:
        """Await the writes under way, as must be done before the connection is closed.

        LangGraph does not wait for what it writes of a cancelled step. SQLite keeps the file locked
        for as long as a connection lives that was closed between a statement and its commit.
        """
        while self.writing:
            await asyncio.wait(self.writing)

    async def _write(self, work: Coroutine[Any, Any, T]) -> T:
        with store_errors(self.store_url):
            return await work

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        return await self.whole(super().aput(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what one task wrote, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        await self.whole(super().aput_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        await self.whole(super().adelete_thread(thread_id))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        with store_errors(self.store_url):
            return await super().aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        found = super().alist(config, filter=filter, before=before, limit=limit)
        while True:
            # Not around the yield: what the reader raises is not the store's.
            with store_errors(self.store_url):
                try:
                    one = await anext(found)
                except StopAsyncIteration:
                    return
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, see LangGraph's saver.

        Raises:
            StoreError: The database fails.
        """
        with store_errors(self.store_url):
            return await super().aget_delta_channel_history(config=config, channels=channels)
