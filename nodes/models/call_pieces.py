"""The joining of streamed pieces of tool calls."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from ...graphs.log.messages import storable


def decode_arguments(text: str) -> object:
    """Return the value of arguments in JSON. Some servers encode it twice.

    Returns None if there are no arguments.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: The value is nested too deeply.
    """
    # Line breaks within strings are accepted, as in LangChain's partial reading.
    value = json.loads(text, strict=False) if text.strip() else None
    while isinstance(value, str):
        try:
            value = json.loads(value, strict=False) if value.strip() else None
        except (ValueError, RecursionError):
            break
    return value


def _read_object(text: str) -> dict[str, Any] | None:
    """Return the whole object that arguments contain, or None."""
    try:
        value = decode_arguments(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def arguments_as_text(arguments: object) -> str:
    """Return arguments as the log stores them if they are invalid."""
    if isinstance(arguments, str):
        return storable(arguments)
    try:
        return json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):
        return f"({type(arguments).__name__})"


@dataclass(frozen=True)
class _Piece:
    """A piece of a call."""

    id: str | None
    index: object
    name: str
    arguments: str

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Return the piece in an entry of a message, in the form of `answers.RAW`."""
        return cls(raw["id"] or None, raw.get("index"), raw["name"] or "", raw["arguments"] or "")


@dataclass(eq=False)
class StreamedCall:
    """A call that arrives in pieces."""

    id: str | None
    index: object
    event: int
    """Number of the event that began the call."""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    """The pieces of the arguments."""

    @property
    def has_arguments(self) -> bool:
        """Return whether arguments have arrived."""
        return any(map(str.strip, self.pieces))

    def read_object(self) -> dict[str, Any] | None:
        """Return the arguments if they are a whole object, or None."""
        # Parsing all arguments at each piece would take too long.
        first = next(filter(None, map(str.strip, self.pieces)), "")
        last = next(filter(None, map(str.strip, reversed(self.pieces))), "")
        is_closed = first[:1] + last[-1:] in ("{}", '""')
        return _read_object("".join(self.pieces)) if is_closed else None

    def is_repeated_by(self, piece: _Piece) -> bool:
        """Return whether a piece only repeats the call."""
        return (
            piece.name in ("", self.name)
            and piece.index in (None, self.index)
            and (None in (piece.id, self.id) or piece.id == self.id)
            and (repeated := _read_object(piece.arguments)) is not None
            and repeated == self.read_object()
        )

    def join_pieces(self) -> dict[str, Any]:
        """Return the complete call, in the form of `answers.RAW`."""
        arguments, last = "".join(self.pieces), "".join(self.pieces[-1:])
        grows = all(after.startswith(before) for before, after in pairwise(self.pieces))
        # Either each piece contained all the arguments so far, or an empty object came before them.
        other = last if grows else arguments.lstrip().removeprefix("{}")
        if _read_object(arguments) is None and _read_object(other) is not None:
            arguments = other
        return {"id": self.id, "name": self.name, "arguments": arguments}


class CallJoiner:
    """The calls of a streamed answer, joined from pieces by index, id and name.

    Servers repeat names, leave out or change ids, and use one index for all calls. These rules
    assign each piece to a call:

    1. A piece belongs to the call with its index and id. Without such a call it belongs to the
       newest call with its index, and without an index to the newest call. A new index with a name
       begins a call.
    2. In one event, each name begins a call, unless it repeats the name in the middle of arguments.
    3. If a call has no arguments yet, a piece without a name goes on with it, whatever its id. The
       same name with the same id, or without one, is the same call. Another name is the rest of the
       name if it has the same index or id. A name with another id begins a call.
    4. While the arguments of a call are incomplete, a piece without a name or with the same name
       goes on with it, whatever its id. Another name begins a call, and so does the same name with
       another id and the beginning of an object.
    5. If the arguments of a call are a whole object, a piece with the same arguments and no other
       id repeats the call, and changes nothing. With a name, any other arguments begin a call. An
       event that contains the calls so far once more changes nothing.

    At the end, a call without arguments is dropped if a call with the same name and index has some:
    its id has changed before the arguments arrived.
    """

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        """The calls so far."""
        self._event = 0

    def add(self, event: Iterable[Mapping[str, Any]]) -> list[tuple[StreamedCall, str]]:
        """Add the pieces of one event, and return their calls, each with its new arguments."""
        self._event += 1
        pieces = [*map(_Piece.read, event)]
        is_known = len(pieces) == len(self.calls) and all(
            call.is_repeated_by(piece) for call, piece in zip(self.calls, pieces, strict=True)
        )
        return [] if is_known else [*map(self._add, pieces)]

    def list_calls(self) -> list[dict[str, Any]]:
        """Return the complete calls, in the form of `answers.RAW`."""
        filled = {(call.name, call.index) for call in self.calls if call.has_arguments}
        return [
            call.join_pieces()
            for call in self.calls
            if call.has_arguments or call.index is None or (call.name, call.index) not in filled
        ]

    def _add(self, piece: _Piece) -> tuple[StreamedCall, str]:
        call = self._find(piece)
        if call is not None and call.event < self._event and call.is_repeated_by(piece):
            return call, ""
        if call is None or not self._is_continued(call, piece):
            call = StreamedCall(piece.id, piece.index, self._event)
            self.calls.append(call)
        call.id = call.id or piece.id
        call.name = piece.name if piece.name.startswith(call.name) else call.name + piece.name
        if piece.arguments:
            call.pieces.append(piece.arguments)
        return call, piece.arguments

    def _find(self, piece: _Piece) -> StreamedCall | None:
        """Return the call to which a piece belongs unless it begins a call."""
        near = [
            call for call in self.calls if piece.index is None or call.index in (None, piece.index)
        ]
        same = [call for call in near or self.calls if piece.id and call.id == piece.id]
        if not near and (not piece.name or (same and _is_middle(same[-1], piece))):
            # An index that changes inside a call.
            near = self.calls
        return next(reversed(near and (same or near)), None)

    def _is_continued(self, call: StreamedCall, piece: _Piece) -> bool:
        """Return whether a piece goes on with the call to which it belongs."""
        is_blank = not piece.arguments.strip()
        has_new_id = bool(piece.id and call.id and piece.id != call.id)
        is_whole = bool(piece.name or has_new_id) and call.read_object() is not None
        if not piece.name:
            return is_blank or not has_new_id or not is_whole
        is_new = has_new_id or call.event == self._event
        if is_whole:
            return is_blank and not is_new and call.name in ("", piece.name)
        if call.has_arguments:
            return not call.name or _is_middle(call, piece, may_begin=not is_new)
        is_tied = piece.index is not None or (bool(piece.id) and piece.id == call.id)
        return not is_new and (is_tied or piece.name.startswith(call.name))


def _is_middle(call: StreamedCall, piece: _Piece, *, may_begin: bool = False) -> bool:
    """Return whether a piece repeats a call's name in the middle of the arguments."""
    begins = piece.arguments.lstrip().startswith("{") and not may_begin
    is_partial = call.has_arguments and call.read_object() is None
    return is_partial and piece.name == call.name and not begins


def join_calls(events: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Join the pieces of calls by the rules of `CallJoiner`.

    Args:
        events: The pieces of each event, in the form of `answers.RAW`.
    """
    joiner = CallJoiner()
    for event in events:
        joiner.add(event)
    return joiner.list_calls()
