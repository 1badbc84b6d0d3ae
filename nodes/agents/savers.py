"""The checkpointer that a session lends its agents, where LangGraph runs it in threads.

Agents run in a loop even then, and many a checkpointer is for threads alone.
"""

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from ...graphs.common.threads import in_thread

_LENT = "__pregel_checkpointer"
"""Where LangGraph lends a subgraph the checkpointer."""


def for_loop(config: RunnableConfig) -> RunnableConfig:
    """Give a configuration whose checkpointer works by its methods for threads alone."""
    configurable = config.get("configurable", {})
    saver = configurable.get(_LENT)
    if not isinstance(saver, BaseCheckpointSaver):
        return config
    lent = copy(saver)
    # LangGraph may copy it once more, so no method of it may be bound to this one.
    lent.__class__ = type(type(saver).__name__, (_InThreads, type(saver)), {})
    return {**config, "configurable": {**configurable, _LENT: lent}}


class _InThreads(BaseCheckpointSaver[Any]):
    """What a run needs of a checkpointer, in threads of its own."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await in_thread(self.get_tuple, config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Any:  # noqa: ANN401  # as LangGraph has it
        found = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await in_thread(found)
