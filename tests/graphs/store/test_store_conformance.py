"""LangGraph's own test suite for checkpointers, with the savers of every store."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES

from support.stores import EACH_STORE, Store, open_store, store_address

pytestmark = pytest.mark.every_store


class EachInItsLock(BaseCheckpointSaver[str]):
    """A saver that writes each session under its lease, and reads from the store.

    The suite counts versions in whole numbers, from which no saver on a database can continue. They
    are stored as LangGraph's loop counts them.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(serde=store.checkpointer.serde)
        self._store = store

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        counted = _counted(checkpoint, lambda number: f"{number:032}.0")
        versions: ChannelVersions = {
            name: f"{number:032}.0" for name, number in new_versions.items()
        }
        async with self._store.lock(config["configurable"]["thread_id"]) as held:
            return await held.checkpointer.aput(config, counted, metadata, versions)

    async def aput_writes(self, config: RunnableConfig, *given: Any, **named: Any) -> None:
        async with self._store.lock(config["configurable"]["thread_id"]) as held:
            await held.checkpointer.aput_writes(config, *given, **named)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._store.lock(thread_id) as held:
            await held.checkpointer.adelete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._store.checkpointer.aget_tuple(config)
        return found and _read(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        **named: Any,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self._store.checkpointer.alist(config, **named):
            yield _read(found)


def _counted(checkpoint: Checkpoint, count: Callable[[Any], Any]) -> Checkpoint:
    counted = checkpoint.copy()
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    counted["channel_versions"] = {name: count(one) for name, one in versions.items()}
    counted["versions_seen"] = {
        node: {name: count(one) for name, one in versions.items()}
        for node, versions in seen.items()
    }
    return counted


def _read(found: CheckpointTuple) -> CheckpointTuple:
    number = _counted(found.checkpoint, lambda version: int(version.partition(".")[0]))
    return found._replace(checkpoint=number)


@pytest.mark.part(1)
@pytest.mark.parametrize("kind", EACH_STORE)
async def test_a_stores_saver_does_what_langgraph_asks_of_one(
    kind: str, request: pytest.FixtureRequest
) -> None:
    target = store_address(kind, request)

    @checkpointer_test(name=kind)
    async def saver() -> AsyncGenerator[EachInItsLock]:
        async with open_store(target) as store:
            yield EachInItsLock(store)

    report = await validate(saver, capabilities={one.value for one in BASE_CAPABILITIES})
    failed = {name: found.failures for name, found in report.results.items() if found.failures}
    assert failed == {}
    assert report.passed_all_base()
