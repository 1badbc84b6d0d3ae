"""The steps of a session, as its checkpoints keep them: one is found, those before it copied."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from duologue.graphs.build import Graph
from duologue.graphs.errors import SessionError
from duologue.graphs.state import State


@dataclass(frozen=True)
class Step:
    """One step of a session, which wrote a message."""

    state: State
    """The state after it."""
    known: int
    """How many messages the log held before it."""
    before: list[CheckpointTuple]
    """The checkpoints before it, oldest first."""


def config_of(session: str) -> RunnableConfig:
    """Give the config of a session's newest state."""
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


async def find_step(graph: Graph, session: str, message: str | None) -> Step:
    """Find the step that wrote a message.

    Args:
        graph: A graph on the store's checkpointer.
        session: The session's id; it may be running.
        message: The message's id. None: the newest one.

    Returns:
        The step.

    Raises:
        SessionError: There is no such message.
    """
    ids = _ids(await _read(graph, config_of(session)))
    if not ids:
        raise SessionError(f"Session {session!r} has no message yet: there is nothing to fork.")
    wanted = ids[-1] if message is None else message
    if wanted not in ids:
        raise SessionError(
            f"There is no message {wanted!r} in session {session!r}: it has {ids[0]} to {ids[-1]}."
        )
    steps = [found async for found in checkpointer_of(graph).alist(config_of(session))]
    steps.reverse()
    # What was killed before its checkpoint has its newest messages behind the last of them.
    places = [*(step.config for step in steps), config_of(session)]
    # The log only grows, so halving finds the first that holds it; reading one takes a while.
    first, last, known = 0, len(places) - 1, 0
    while first < last:
        middle = (first + last) // 2
        held = _ids(await _read(graph, places[middle]))
        if wanted in held:
            last = middle
        else:
            first, known = middle + 1, len(held)
    return Step(await _read(graph, places[first]), known, steps[:first])


async def copy_steps(graph: Graph, steps: list[CheckpointTuple], session: str) -> None:
    """Copy checkpoints into a session that has none, so that its past can be looked up in it.

    What followed the last of them is left out: the next step is another one.

    Args:
        graph: A graph on the store's checkpointer.
        steps: The checkpoints, oldest first.
        session: The new session's id.
    """
    saver = checkpointer_of(graph)
    for number, step in enumerate(steps, start=1):
        config = config_of(session)
        if step.parent_config is not None:
            parent = step.parent_config["configurable"]["checkpoint_id"]
            config["configurable"]["checkpoint_id"] = parent
        versions = step.checkpoint["channel_versions"]
        config = await saver.aput(config, step.checkpoint, step.metadata, versions)
        if number == len(steps):
            return
        # The log is kept as what each step wrote to it.
        writes: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        for task, channel, value in step.pending_writes or ():
            writes[task].append((channel, value))
        for task, written in writes.items():
            await saver.aput_writes(config, written, task)


def checkpointer_of(graph: Graph) -> BaseCheckpointSaver[Any]:
    """Give the checkpointer that a graph was built with."""
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver)  # noqa: S101  # built with the store's
    return saver


async def _read(graph: Graph, config: RunnableConfig) -> State:
    return cast("State", (await graph.aget_state(config)).values)


def _ids(state: State) -> list[str]:
    return [str(message.id) for message in state.get("messages", [])]
