"""A mix-in for LangGraph's savers: errors that name the store, and a check of who may write.

It does not depend on a database. Parameters that are passed to LangGraph's savers unchanged have no
names here, except `task_path`, because LangGraph looks for it in the signature.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from .errors import ReplacedSessionError, lost_session, store_errors
from .lease import Lease
from .rows import check_checkpoint, reading_store


class ReplacedReader(BaseCheckpointSaver[str]):
    """A mix-in for savers that read while another run may replace a session's checkpoints.

    LangGraph reads a checkpoint first, and then the writes from which it computes the channels that
    are missing there. If the checkpoints are replaced between both, the writes are gone, and the
    channels would be empty without an error.
    """

    lease: Lease | None = None
    """The lease of the run that uses this saver, or None if it only reads.

    A run whose process was suspended may have lost its lease without noticing it.
    """

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels, or their values if these have replaced the writes."""
        found = await super().aget_delta_channel_history(config=config, channels=channels)
        now = await self.aget_tuple(config)
        if now is None:
            session = _session(config)
            if self.lease is not None:
                raise lost_session(session)
            raise ReplacedSessionError(
                f"Session {session!r} was changed by another run while it was read; read it again."
            )
        values = now.checkpoint["channel_values"]
        whole = {name: values[name] for name in channels if name in values}
        return {**found, **{name: {"writes": [], "seed": one} for name, one in whole.items()}}


class GuardedSaver(BaseCheckpointSaver[str]):
    """A mix-in; in the bases of a class it comes before one of LangGraph's savers."""

    store_url: str

    @abstractmethod
    def _check_writable(self, session: str) -> None:
        """Raise an error if this session may not be written."""

    @contextmanager
    def _writing(self, session: str) -> Iterator[None]:
        self._check_writable(session)
        with store_errors(self.store_url):
            yield

    async def aput(self, config: RunnableConfig, *given: Any, **named: Any) -> RunnableConfig:
        """Save a checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(_session(config)):
            return await super().aput(config, *given, **named)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save the writes of one task (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(_session(config)):
            await super().aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a session (see LangGraph's `BaseCheckpointSaver`)."""
        with self._writing(thread_id):
            await super().adelete_thread(thread_id)

    @abstractmethod
    async def replace_all(
        self, session: str, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> None:
        """Replace all checkpoints of a session by a single one, which must contain the whole state.

        The checkpoints of graphs that run inside the session's graph remain: an agent may keep its
        memory in them.
        """

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint (see LangGraph's `BaseCheckpointSaver`)."""
        with reading_store(self.store_url, _session(config)):
            found = await super().aget_tuple(config)
            return None if found is None else check_checkpoint(found)

    async def alist(
        self, config: RunnableConfig | None, *given: Any, **named: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first (see LangGraph's `BaseCheckpointSaver`)."""
        session = None if config is None else _session(config)
        found = super().alist(config, *given, **named)
        while True:
            # Not around the yield, because errors of the reader are not errors of the store.
            with reading_store(self.store_url, session):
                try:
                    one = check_checkpoint(await anext(found))
                except StopAsyncIteration:
                    return
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read the writes of delta channels (see LangGraph's `BaseCheckpointSaver`)."""
        with reading_store(self.store_url, _session(config)):
            return await super().aget_delta_channel_history(config=config, channels=channels)


def _session(config: RunnableConfig) -> str:
    session: str = config["configurable"]["thread_id"]
    return session
