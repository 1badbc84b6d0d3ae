"""What our checkpointers add to LangGraph's: errors that name the store, and who may write.

Nothing about a particular database lives here.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from ..common.errors import SessionError
from .errors import lost_session, store_errors
from .reading import checked, reading_store
from .writer import Lease


class GuardedSaver(BaseCheckpointSaver[str]):
    """A mix-in before one of LangGraph's savers."""

    store_url: str

    @abstractmethod
    def _held(self, session: str) -> None:
        """Make sure that this session may be written."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, see LangGraph's saver."""
        self._held(config["configurable"]["thread_id"])
        with store_errors(self.store_url):
            return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what one task wrote, see LangGraph's saver."""
        self._held(config["configurable"]["thread_id"])
        with store_errors(self.store_url):
            await super().aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session, see LangGraph's saver."""
        self._held(thread_id)
        with store_errors(self.store_url):
            await super().adelete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint, see LangGraph's saver."""
        with reading_store(self.store_url, config["configurable"]["thread_id"]):
            found = await super().aget_tuple(config)
            return None if found is None else checked(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first, see LangGraph's saver."""
        session = None if config is None else config["configurable"]["thread_id"]
        found = super().alist(config, filter=filter, before=before, limit=limit)
        while True:
            # Not around the yield: what the reader raises is not the store's.
            with reading_store(self.store_url, session):
                try:
                    one = checked(await anext(found))
                except StopAsyncIteration:
                    return
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, see LangGraph's saver."""
        with reading_store(self.store_url, config["configurable"]["thread_id"]):
            return await super().aget_delta_channel_history(config=config, channels=channels)


class LeasedSaver(GuardedSaver):
    """A guarded saver that writes under a lease; the commit looks whether it still stands."""

    lease: Lease | None

    def _held(self, session: str) -> None:
        if self.lease is None:
            raise SessionError(f"Session {session!r} can't be written without holding its lock.")
        if session != self.lease.session:
            raise lost_session(session)
