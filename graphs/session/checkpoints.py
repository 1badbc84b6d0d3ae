"""The steps of a session as its checkpoints store them: found, checked and copied."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import uuid4

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.types import StateSnapshot

from ..build import Graph
from ..common.errors import AnswerError, SessionError, SpecError
from ..common.validation import name_type
from ..conversation.conversation import Conversation, restore_conversation
from ..conversation.questions import MessageQuestion, Question, check_message, read_question
from ..log.messages import metadata, place_name, place_of
from ..log.metadata import RemovedMessage
from ..log.state import State, log_of
from ..rules.transitions import Node
from ..store.rows import SessionRow, reading_store
from .dump import read_whole_dump
from .options import MessageLike


@contextmanager
def reading_session(graph: Graph, session: str) -> Iterator[None]:
    """Turn whatever is raised inside the block into a `StoreError` about a session."""
    with reading_store(getattr(graph.checkpointer, "store_url", "memory:"), session):
        yield


def stored_conversation(row: SessionRow, url: str) -> Conversation:
    """Make the conversation of a session out of its row."""
    with reading_store(url, row.session):
        return restore_conversation(json.loads(row.spec))


def check_state(session: str, conversation: Conversation | None, state: State) -> None:
    """Make sure that a session can be shown, and gone on with, from a state that was read."""
    given = [state["conversation"]] if state.get("conversation") else []
    known = [state["spec"]] if state.get("spec") else []
    # Most are just what is stored of it, and need not be read to be compared.
    stored = None if conversation is None else conversation.stored()
    specs = [
        restore_conversation(spec) if conversation is None or spec != stored else conversation
        for spec in (*given, *known)
    ]
    if conversation is not None and any(spec != conversation for spec in specs):
        raise SpecError("its conversation is not the one that is listed")
    begun = [name for name in _BEGUN if state.get(name)]
    if known:
        read_whole_dump(session, specs[-1], [state])
    elif begun:
        raise SpecError(f"it has {begun[0]}, but no conversation")


_BEGUN: Final = ("position", "usage", "outcome", "messages", "unspoken")


@dataclass(frozen=True)
class StoredStep:
    """One step of a session, which wrote a message."""

    state: State
    """The state after it."""
    known: list[AnyMessage]
    """The log before it."""
    before: list[CheckpointTuple]
    """The checkpoints before it, oldest first."""
    removed: list[str]
    """The ids of the messages that were removed from the log up to now."""


def config_of(session: str) -> RunnableConfig:
    """Return the config of a session's newest state."""
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


async def find_step(graph: Graph, session: str, message: MessageLike | None) -> StoredStep:
    """Find the step that wrote a message. None: the newest message."""
    name = None if message is None else _name_of(message)
    with reading_session(graph, session):
        step = await _found(graph, session, name)
        # A message from before a fork was written by the rules of its time.
        check_state(session, None, step.state)
        return step


async def _found(graph: Graph, session: str, name: str | None) -> StoredStep:
    now = await _read(graph, config_of(session))
    log = log_of(now)
    if not log:
        raise SessionError(f"Session {session!r} has no message yet: there is nothing to fork.")
    wanted = len(log) - 1 if name is None else _index_of(log, session, name)
    steps = [found async for found in checkpointer_of(graph).alist(config_of(session))]
    steps.reverse()
    # What was killed before its checkpoint has its newest messages after the last of them.
    places = [*(step.config for step in steps), config_of(session)]
    # What is in the log now is in it from some step on, so halving finds the first that holds it
    # and all before it; reading one takes a while. Lines may have been put before it later, and
    # its place may have been another's, which was taken back.
    sought = {one.id for one in log[: wanted + 1]}
    first, last = 0, len(places) - 1
    while first < last:
        middle = (first + last) // 2
        held = {one.id for one in log_of(await _read(graph, places[middle]))}
        first, last = (first, middle) if sought <= held else (middle + 1, last)
    state = await _read(graph, places[first])
    before = log_of(await _read(graph, places[first - 1])) if first else []
    removed = [str(one.id) for one in log if isinstance(metadata(one), RemovedMessage)]
    return StoredStep(state, before, steps[:first], removed)


def _name_of(message: MessageLike) -> str:
    """Return the id or the place of a message."""
    match message:
        case BaseMessage(id=str(name)) | str(name):
            return name
        case int() if not isinstance(message, bool):
            return place_name(message)
    raise SpecError(f"at: must be a message, its id or its number, not {name_type(message)}")


def _index_of(log: Sequence[BaseMessage], session: str, name: str) -> int:
    """Return the index of a message in the log."""
    for index, message in enumerate(log):
        if name in (message.id, place_of(message)):
            return index
    ends = f"{place_of(log[0])} to {place_of(log[-1])}"
    raise SessionError(f"There is no message {name!r} in session {session!r}: it has {ends}.")


async def copy_steps(graph: Graph, steps: list[CheckpointTuple], session: str) -> None:
    """Copy checkpoints into a session that has none, so that its past can be looked up in it.

    What followed the last of them is left out: the next step is another one.
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


async def read_steps(graph: Graph, session: str) -> list[State]:
    """Read all that a session's steps wrote, in one pass over its checkpoints."""
    with reading_session(graph, session):
        return [*_news(await _states(graph, session))]


async def read_states(graph: Graph, session: str, *, logs: int | None = None) -> list[State]:
    """Read a session's state after each of its steps; of older ones than ``logs`` without a log."""
    with reading_session(graph, session):
        return await _states(graph, session, logs)


async def _states(graph: Graph, session: str, logs: int | None = None) -> list[State]:
    found = [one async for one in checkpointer_of(graph).alist(config_of(session))]
    found.reverse()
    channels = {name: cast("BaseChannel[Any, Any, Any]", graph.channels[name]) for name in _WRITES}
    writes: list[tuple[str, str, Any]] = []
    states: list[State] = []
    for place, one in enumerate(found):
        values = one.checkpoint["channel_values"]
        is_whole = logs is None or place >= len(found) - logs
        state: dict[str, Any] = {name: values[name] for name in _WHOLE if name in values}
        for name, before in channels.items():
            # Now and then a checkpoint holds the whole of it.
            channel = before.from_checkpoint(values[name]) if name in values else before.copy()
            if name not in values:
                channel.update([value for _, written, value in writes if written == name])
            channels[name] = channel
            if is_whole and channel.is_available():
                state[name] = channel.get()
        states.append(cast("State", state))
        writes = list(one.pending_writes or ())
    return [*states, await _read(graph, config_of(session))]


_WRITES: Final = ("spec", "specified_task", "interpreter", "decisions", "messages", "unspoken")
_WHOLE: Final = ("position", "usage", "outcome")


def _news(states: Iterable[State]) -> Iterator[State]:
    """Leave out of states the messages that stood before, and states that say nothing new."""
    before: State = {}
    for state in states:
        log, known = log_of(state), log_of(before)
        new = [
            message
            for place, message in enumerate(log)
            # Most are the very same object.
            if place >= len(known) or not (message is known[place] or message == known[place])
        ]
        names = (*_WHOLE, "spec", "specified_task", "interpreter", "decisions")
        # What was never written may be missing or empty.
        changed = any((state.get(name) or None) != (before.get(name) or None) for name in names)
        if state.get("spec") and (new or changed):
            yield {**state, "messages": new, "unspoken": []}
        before = state


async def write_steps(graph: Graph, session: str, steps: Sequence[State]) -> None:
    """Write a session that has no checkpoints, so that its past can be looked up in it."""
    saver = checkpointer_of(graph)
    config, versions = config_of(session), dict[str, Any]()
    values: dict[str, Any] = {}
    # `abulk_update_state` reads all channels anew for each step: 400 steps take it 8.5 s instead of
    # 0.5. A past step needs its writes and parents alone; the last is one of LangGraph's own.
    for number, step in enumerate(steps):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = dict(values)
        checkpoint["channel_versions"] = dict(versions)
        metadata: CheckpointMetadata = {"source": "update", "step": number - 1, "parents": {}}
        config = await saver.aput(config, checkpoint, metadata, versions)
        if number < len(steps) - 1:
            await saver.aput_writes(config, list(step.items()), str(uuid4()))
            values |= {name: value for name, value in step.items() if name in _WHOLE}
            versions |= {name: saver.get_next_version(versions.get(name), None) for name in step}
    if steps:
        await write_state(graph, session, steps[-1])


async def write_state(graph: Graph, session: str, state: State) -> None:
    """Write to a session's state, so that it goes on where the rules say."""
    # Behind any speaker's node the rules say what comes next, whoever has spoken.
    node = Node.USER_AGENT if "position" in state else Node.TASK_SPECIFICATION
    # What it is written to is read first, and what was written is read back.
    with reading_session(graph, session):
        await graph.aupdate_state(config_of(session), state, as_node=node.value)


async def settle(graph: Graph, session: str, conversation: Conversation) -> State:
    """Write the checkpoint that a kill has kept from being written, and read the state."""
    with reading_session(graph, session):
        # What is damaged must not be written to.
        check_state(session, conversation, await _read(graph, config_of(session)))
        found = await checkpointer_of(graph).aget_tuple(config_of(session))
        names = State.__annotations__
        if found is not None and any(name in names for _, name, _ in found.pending_writes or ()):
            await graph.aupdate_state(config_of(session), None, as_node=Node.END.value)
        return await _read(graph, config_of(session))


def checkpointer_of(graph: Graph) -> BaseCheckpointSaver[Any]:
    """Return the checkpointer that a graph was built with."""
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver)  # noqa: S101  # built with the store's
    return saver


async def _read(graph: Graph, config: RunnableConfig) -> State:
    return cast("State", (await graph.aget_state(config)).values)


async def questions_of(graph: Graph, session: str) -> list[Question]:
    """Return the questions that a session waits with."""
    config = config_of(session)
    with reading_session(graph, session):
        return await still_open(graph, config, await graph.aget_state(config))


async def still_open(graph: Graph, config: RunnableConfig, state: StateSnapshot) -> list[Question]:
    """Return the questions of a state that is read already; as `questions_of`."""
    by_tools = {
        one.id
        for task in state.tasks
        for one in task.interrupts
        if task.name == Node.TOOL_EXECUTOR.value
    }
    asked = [
        read_question(found, "tool" if found.id in by_tools else "agent")
        for found in state.interrupts
    ]
    if len(asked) != 1 or not isinstance(asked[0], MessageQuestion):
        return asked
    found = await checkpointer_of(graph).aget_tuple(config)
    for task, channel, value in (found.pending_writes or ()) if found else ():
        if (task, channel) == _ANSWER:
            with suppress(AnswerError):
                check_message(asked[0], value)
                return []
    return asked


def failure_of(state: StateSnapshot) -> str | None:
    """Return the error that broke off the newest step, if it failed."""
    return next((str(task.error) for task in state.tasks if task.error is not None), None)


_ANSWER: Final = ("00000000-0000-0000-0000-000000000000", "__resume__")
"""Where LangGraph stores an answer that is given without the id of its question."""
