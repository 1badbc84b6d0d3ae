"""Functions that find, check, copy and write the steps of a session in its checkpoints.

A session that has ended keeps only its newest checkpoint, with the states before it packed into a
text in its metadata. From them the session is dumped, and forked at any message. A fork and a
loaded session begin with such a checkpoint, too.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import StateSnapshot

from ..build import Graph
from ..common.errors import SessionError, SpecError, name_type
from ..conversation.conversation import Conversation, restore_conversation
from ..log.messages import metadata, place_name, place_of
from ..log.metadata import RemovedMessage
from ..log.state import State, apply_update, log_of
from ..rules.transitions import Node
from ..store.errors import ReplacedSessionError
from ..store.rows import SessionRow, reading_store
from ..store.serializer import PlainSerializer
from ..store.session_lease import SessionLease
from .dump import read_whole_dump
from .options import MessageLike

_LOGS: Final = ("messages", "unspoken")
_SAME: Final = "same"
"""The key for the names of the values that equal those of the newest state, such as the spec."""
_MOST: Final = 1 << 28
"""Maximum size of unpacked states, in bytes. A damaged text could otherwise unpack to any size."""


def pack_past(states: Sequence[State], now: State) -> str:
    """Pack the states of a session's past into a text.

    Args:
        states: The states, oldest first.
        now: The state after them. Its messages are not packed again: the text refers to them.

    Returns:
        The text, for `unpack_past`.

    Raises:
        ValueError: The states are too large.
    """
    changes = list(_changes(states, now))
    _, packed = PlainSerializer().dumps_typed(changes)
    if len(packed) > _MOST:
        raise ValueError("the past states are too large to be packed")
    return b64encode(zlib.compress(packed)).decode()


def unpack_past(text: str, now: State, logs: int | None = None) -> list[State]:
    """Unpack the states of a session's past.

    Args:
        text: The text that `pack_past` has returned.
        now: The state after them, as it was packed.
        logs: The number of states, counted from the newest, that are returned with their log. If
            None, all of them.

    Returns:
        The states, oldest first.
    """
    unpacking = zlib.decompressobj()
    packed = unpacking.decompress(b64decode(text, validate=True), _MOST)
    if not unpacking.eof:
        raise ValueError("its past states are incomplete")
    changes = PlainSerializer().loads_typed(("msgpack", packed))
    first = 0 if logs is None else len(changes) - logs
    newest = cast("Mapping[str, Any]", now)
    values: dict[str, Any] = {}
    known: dict[str, list[AnyMessage]] = {}
    states: list[State] = []
    for place, changed in enumerate(changes):
        written = {name: changed.pop(name) for name in _LOGS if name in changed}
        same = {name: newest[name] for name in changed.pop(_SAME, ())}
        values = {**values, **changed, **same}
        for name, (count, new) in written.items():
            added = [newest[name][one] if isinstance(one, int) else one for one in new]
            known = {**known, name: [*known.get(name, ())[:count], *added]}
        states.append(cast("State", {**values, **known} if place >= first else values))
    return states


def _changes(states: Sequence[State], now: State) -> Iterator[dict[str, Any]]:
    """Yield the values that differ from those of the state before."""
    logs = {name: cast("Mapping[str, Any]", now).get(name) or [] for name in _LOGS}
    places = {name: {one.id: place for place, one in enumerate(log)} for name, log in logs.items()}
    before: Mapping[str, Any] = {}
    for state in states:
        changed: dict[str, Any] = {}
        for name, value in state.items():
            if name in before and value == before[name]:
                continue
            if name in _LOGS:
                log = cast("list[AnyMessage]", value)
                count = common_length(before.get(name, []), log)
                new = [_index(one, logs[name], places[name]) for one in log[count:]]
                changed[name] = count, new
            elif value == now.get(name):
                changed.setdefault(_SAME, []).append(name)
            else:
                changed[name] = value
        yield changed
        before = state


def common_length(known: Sequence[AnyMessage], log: Sequence[AnyMessage]) -> int:
    """Return the number of equal messages at the beginning of two lists."""
    least = min(len(known), len(log))
    # Fast, because a list first compares the identity of its items, and most are the same objects.
    if known[:least] == log[:least]:
        return least
    return next(at for at in range(least) if known[at] != log[at])


def _index(
    message: AnyMessage, log: Sequence[AnyMessage], places: Mapping[str | None, int]
) -> AnyMessage | int:
    """Return the index of a message in the log, or the message if it has changed since."""
    place = places.get(message.id)
    return place if place is not None and log[place] == message else message


@contextmanager
def reading_session(graph: Graph, session: str) -> Iterator[None]:
    """Turn every exception inside the block into a `StoreError` about a session."""
    with reading_store(getattr(graph.checkpointer, "store_url", "memory:"), session):
        yield


def stored_conversation(row: SessionRow, url: str) -> Conversation:
    """Return the conversation that a session's row contains."""
    with reading_store(url, row.session):
        return restore_conversation(json.loads(row.spec))


def check_state(session: str, conversation: Conversation | None, state: State) -> None:
    """Raise an error if a session cannot be shown and resumed from a state that was read."""
    given = [state["conversation"]] if state.get("conversation") else []
    known = [state["spec"]] if state.get("spec") else []
    # Most specs equal the stored one, and need not be parsed to be compared.
    stored = None if conversation is None else conversation.stored()
    specs = [
        restore_conversation(spec) if conversation is None or spec != stored else conversation
        for spec in (*given, *known)
    ]
    if conversation is not None and any(spec != conversation for spec in specs):
        raise SpecError(
            "its newest state and its entry in the store contain different conversations"
        )
    begun = [name for name in _BEGUN if state.get(name)]
    if known:
        read_whole_dump(session, specs[-1], [state])
    elif begun:
        raise SpecError(f"its newest state has the field {begun[0]}, but no conversation")


_BEGUN: Final = ("position", "usage", "outcome", "messages", "unspoken")


@dataclass(frozen=True)
class StoredStep:
    """A step of a session that wrote a message."""

    state: State
    """The state after the step."""
    before: list[State]
    """The states before the step, oldest first."""
    removed: list[str]
    """The ids of the messages that have been removed from the log up to now."""

    @property
    def log_before(self) -> list[AnyMessage]:
        """The log before the step."""
        return log_of(self.before[-1]) if self.before else []


def config_of(session: str) -> RunnableConfig:
    """Return the LangGraph config that selects a session's newest state."""
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


async def find_step(graph: Graph, session: str, message: MessageLike | None) -> StoredStep:
    """Find the step that wrote a message, or the newest message if `message` is None."""
    name = None if message is None else _name_of(message)
    with reading_session(graph, session):
        step = await _locate_step(graph, session, name)
        # A message from before a fork was written under the rules of the earlier session, so the
        # state is not compared with the current conversation.
        check_state(session, None, step.state)
        return step


async def _locate_step(graph: Graph, session: str, name: str | None) -> StoredStep:
    states = await _states(graph, session)
    log = log_of(states[-1])
    if not log:
        raise SessionError(f"Session {session!r} has no message yet to fork at; resume it first.")
    wanted = len(log) - 1 if name is None else _index_of(log, session, name)
    # A message that is in the log now is also in the log after every step since the step that wrote
    # it. So a binary search finds the first step whose log contains the message and all before it;
    # merging a log is slow. Ids are compared, not places: messages may have been inserted before it
    # later, and its place may have belonged to a message that was taken back.
    sought = {one.id for one in log[: wanted + 1]}
    first, last = 0, len(states) - 1
    while first < last:
        middle = (first + last) // 2
        held = {one.id for one in log_of(states[middle])}
        first, last = (first, middle) if sought <= held else (middle + 1, last)
    removed = [str(one.id) for one in log if isinstance(metadata(one), RemovedMessage)]
    return StoredStep(states[first], states[:first], removed)


def _name_of(message: MessageLike) -> str:
    """Return the id or the place of a message."""
    match message:
        case BaseMessage(id=str(name)) | str(name):
            return name
        case int() if not isinstance(message, bool):
            return str(message)
    raise SpecError(
        f"at: must be a message of result.messages, its id or its number, not {name_type(message)}"
    )


def _index_of(log: Sequence[BaseMessage], session: str, name: str) -> int:
    """Return the index of a message in the log."""
    place = place_name(int(name)) if name.isdecimal() else name
    for index, message in enumerate(log):
        if message.id == name or place_of(message) == place:
            return index
    ends = f"{place_of(log[0])} to {place_of(log[-1])}"
    raise SessionError(f"Session {session!r} has no message {name!r}; it has {ends}.")


async def read_steps(graph: Graph, session: str) -> list[State]:
    """Read everything that a session's steps wrote, in one pass over its checkpoints."""
    with reading_session(graph, session):
        return [*_new_parts(await _states(graph, session))]


async def read_states(graph: Graph, session: str, *, logs: int | None = None) -> list[State]:
    """Read a session's state after each step. Only the newest `logs` states have a log.

    If `logs` is None, all states have a log.
    """
    with reading_session(graph, session):
        return await _states(graph, session, logs)


async def _states(graph: Graph, session: str, logs: int | None = None) -> list[State]:
    # In this order: another run may write between both reads. A newest state that is read after the
    # list would contain the messages of several steps, none of which would be in the list.
    newest = await read_snapshot(graph, session)
    found = await _list_checkpoints(graph, session)
    if found and found[-1].checkpoint["id"] != newest.config["configurable"].get("checkpoint_id"):
        return _states_of(graph, found, None if logs is None else logs + 1)
    # If the process was killed before a checkpoint, the newest messages follow the last checkpoint.
    return [*_states_of(graph, found, logs), cast("State", newest.values)]


async def _list_checkpoints(graph: Graph, session: str) -> list[CheckpointTuple]:
    """Read a session's checkpoints, oldest first."""
    found = [one async for one in checkpointer_of(graph).alist(config_of(session))]
    found.reverse()
    return found


def _states_of(
    graph: Graph, found: Sequence[CheckpointTuple], logs: int | None = None
) -> list[State]:
    """Return the state after each step, from a session's checkpoints."""
    past = cast("Mapping[str, Any]", found[0].metadata).get(_PAST) if found else None
    channels: dict[str, BaseChannel[Any, Any, Any]] = {}
    writes: list[tuple[str, str, Any]] = []
    states: list[State] = []
    for place, one in enumerate(found):
        values = one.checkpoint["channel_values"]
        written: dict[str, list[Any]] = {}
        for _, name, value in writes:
            written.setdefault(name, []).append(value)
        for name in DELTA_CHANNELS:
            before = channels.get(name) or cast("BaseChannel[Any, Any, Any]", graph.channels[name])
            # From time to time a checkpoint contains the whole channel.
            if name in values:
                channels[name] = before.from_checkpoint(values[name])
            elif name in written:
                channels[name] = before.copy()
                channels[name].update(written[name])
        # A packed past refers to the messages of the checkpoint that contains it.
        refers = place == 0 and past is not None
        is_whole = logs is None or place >= len(found) - logs or refers
        state: dict[str, Any] = {name: values[name] for name in _WHOLE if name in values}
        if is_whole:
            state |= {name: channel.get() for name, channel in channels.items()}
        states.append(cast("State", state))
        writes = list(one.pending_writes or ())
    if past is None:
        return states
    unpacked = unpack_past(past, states[0], None if logs is None else max(0, logs - len(states)))
    return [*unpacked, *states]


_PAST: Final = "duologue_past"
"""The key of a checkpoint's metadata that contains the states before the checkpoint."""

DELTA_CHANNELS: Final = (
    *("conversation", "spec", "specified_task", "interpreter", "decisions"),
    *("messages", "unspoken"),
)
"""The channels whose values LangGraph computes from the writes of earlier checkpoints."""
_WHOLE: Final = ("position", "usage", "outcome")


def _new_parts(states: Iterable[State]) -> Iterator[State]:
    """Yield the states with their new messages only, and skip states without a change."""
    before: State = {}
    for state in states:
        log, known = log_of(state), log_of(before)
        new = [
            message
            for place, message in enumerate(log)
            # Comparing identities first is fast, because most messages are the same object.
            if place >= len(known) or not (message is known[place] or message == known[place])
        ]
        names = (*_WHOLE, "spec", "specified_task", "interpreter", "decisions")
        # A value that was never written may be missing or empty.
        changed = any((state.get(name) or None) != (before.get(name) or None) for name in names)
        if state.get("spec") and (new or changed):
            yield {**state, "messages": new, "unspoken": []}
        before = state


async def write_steps(graph: Graph, session: str, steps: Sequence[State]) -> None:
    """Write the steps of a session that has no checkpoints, so that older messages can be found.

    Args:
        graph: The graph, with the session's checkpointer.
        session: The session's id.
        steps: The values that each step writes, oldest first.
    """
    if steps:
        _, *states = accumulate(steps[:-1], apply_update, initial=State())
        await write_past(graph, session, states)
        await write_state(graph, session, steps[-1])


async def write_past(graph: Graph, session: str, states: Sequence[State]) -> None:
    """Write the past of a session that has no checkpoints: its state after each step.

    `write_state` then writes the newest state.
    """
    if not states:
        return
    saver = checkpointer_of(graph)
    checkpoint = empty_checkpoint()
    checkpoint["channel_versions"] = {
        name: saver.get_next_version(None, None) for name in states[-1]
    }
    source: CheckpointMetadata = {"source": "update", "step": len(states) - 2, "parents": {}}
    whole, about = _with_past(checkpoint, source, states)
    await saver.aput(config_of(session), whole, about, whole["channel_versions"])


class FinishedSteps(NamedTuple):
    """The checkpoints of a session, oldest first, and the state after each. No step is open."""

    checkpoints: Sequence[CheckpointTuple]
    states: Sequence[State]


def recorded_steps(graph: Graph, held: SessionLease) -> FinishedSteps | None:
    """Return the steps of a session that this run has begun and ended, without reading them."""
    found = [*(held.checkpointer.steps or {}).values()]
    if not found or found[-1].pending_writes:
        return None
    newest = found[-1]
    # A saver adds the config's metadata to that of a checkpoint when it writes it.
    about = get_checkpoint_metadata(newest.config, newest.metadata)
    return FinishedSteps([*found[:-1], newest._replace(metadata=about)], _states_of(graph, found))


async def read_finished_steps(graph: Graph, session: str) -> FinishedSteps | None:
    """Read the steps of a session. Return None if there are none, or if the newest is open."""
    with reading_session(graph, session):
        found = await _list_checkpoints(graph, session)
        if not found or found[-1].pending_writes:
            return None
        return FinishedSteps(found, _states_of(graph, found))


def pack_steps(steps: FinishedSteps | None) -> tuple[Checkpoint, CheckpointMetadata] | None:
    """Return the newest checkpoint of a session with the states before it, and its metadata.

    Without the checkpoints before it, the newest would have no log: LangGraph computes the log from
    their writes. So it contains the whole log. None if there is no older checkpoint, or if the
    states are too large.
    """
    if steps is None or len(steps.checkpoints) < 2:
        return None
    newest, states = steps.checkpoints[-1], steps.states
    about = {name: one for name, one in newest.metadata.items() if name not in _COUNTS}
    with suppress(ValueError):  # too large
        return _with_past(newest.checkpoint, cast("CheckpointMetadata", about), states)
    return None


_COUNTS: Final = ("counters_since_delta_snapshot",)
"""The metadata in which LangGraph counts the steps since the last snapshot of each channel."""


def _with_past(
    checkpoint: Checkpoint, about: CheckpointMetadata, states: Sequence[State]
) -> tuple[Checkpoint, CheckpointMetadata]:
    """Return a checkpoint, and its metadata, that need no older checkpoint.

    Args:
        checkpoint: The checkpoint of the newest state.
        about: Its metadata.
        states: The states up to the checkpoint, oldest first.
    """
    *past, now = states
    versions = checkpoint["channel_versions"]
    whole = {
        name: _DeltaSnapshot(value) if name in DELTA_CHANNELS else value
        for name, value in now.items()
        if name in versions
    }
    values = checkpoint["channel_values"] | whole
    packed = cast("CheckpointMetadata", {**about, _PAST: pack_past(past, now)})
    return {**checkpoint, "channel_values": values}, packed


async def write_state(graph: Graph, session: str, state: State) -> None:
    """Write to a session's state; the session then continues at the node that the rules choose."""
    # After any speaker's node the rules choose the next node, whoever spoke last.
    node = Node.USER_AGENT if "position" in state else Node.TASK_SPECIFICATION
    # LangGraph reads the old state first, and reads the written state back.
    with reading_session(graph, session):
        await graph.aupdate_state(config_of(session), state, as_node=node.value)


async def settle(graph: Graph, session: str, conversation: Conversation) -> State:
    """Write the checkpoint that is missing if the process was killed, and return the state."""
    with reading_session(graph, session):
        # A damaged state must not be written to.
        check_state(session, conversation, _values(await read_snapshot(graph, session)))
        found = await checkpointer_of(graph).aget_tuple(config_of(session))
        names = State.__annotations__
        if found is not None and any(name in names for _, name, _ in found.pending_writes or ()):
            await graph.aupdate_state(config_of(session), None, as_node=Node.END.value)
        return _values(await read_snapshot(graph, session))


def checkpointer_of(graph: Graph) -> BaseCheckpointSaver[Any]:
    """Return the checkpointer that a graph was built with."""
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver)  # noqa: S101  # the store's checkpointer
    return saver


def _values(snapshot: StateSnapshot) -> State:
    return cast("State", snapshot.values)


async def read_snapshot(graph: Graph, session: str) -> StateSnapshot:
    """Read a session's newest state.

    If another run goes on with the session and replaces its checkpoints between the two reads of
    LangGraph, the state is read again. Runs often end a moment after they have written a step.
    """
    for _ in range(_MOST_READS - 1):
        with suppress(ReplacedSessionError):
            return await graph.aget_state(config_of(session))
    return await graph.aget_state(config_of(session))


_MOST_READS: Final = 5
