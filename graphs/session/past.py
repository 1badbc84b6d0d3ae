"""The past of a session: the states before its oldest checkpoint, packed into a text.

A session that has ended keeps only its newest checkpoint, with the states before it in its
metadata. From them the session is dumped, and forked at any message. A fork and a loaded session
begin with such a checkpoint, too.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import AnyMessage

from ..log.state import State
from ..store.serializer import PlainSerializer

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
                count = _common_length(before.get(name, []), log)
                new = [_index(one, logs[name], places[name]) for one in log[count:]]
                changed[name] = count, new
            elif value == now.get(name):
                changed.setdefault(_SAME, []).append(name)
            else:
                changed[name] = value
        yield changed
        before = state


def _common_length(known: Sequence[AnyMessage], log: Sequence[AnyMessage]) -> int:
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
