"""Files of verdicts: JSON lines, a line for each model call, from which a run is resumed."""

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    messages_from_dict,
    messages_to_dict,
)
from pydantic import BaseModel, ConfigDict, ValidationError


class Key(NamedTuple):
    """The question that a call belongs to."""

    judge: str
    dialogue: str
    turns: int


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Line):
    """The first line of a file: the options with which all of its calls were made."""

    format: Literal[1] = 1
    """The version of the format."""
    model: str
    """The model, as `--model` names it."""
    half: Literal["tune", "report", "both"]
    """The half of the dialogues."""
    sample: int | None
    """Number of prefixes in the sample. All prefixes if None."""
    seed: int
    """The seed of the sample."""
    prefixes: int
    """Number of prefixes about which each judge is asked."""


class StoredCall(_Line):
    """An answered model call."""

    key: Key
    is_over: bool
    """Whether the dialogue should be over after these turns, by its label."""
    source: str
    """The source of the dialogue."""
    is_last: bool
    """Whether the call completes the verdict."""
    says_over: bool | None
    """The verdict of the last call. None if it could not be read, or follows in a later call."""
    position: dict[str, Any]
    """The position of the judge's conversation after the call. Empty for the bare question."""
    messages: list[dict[str, Any]]
    """The messages that the call adds to the log of the judge's conversation."""
    usage: dict[str, Any]
    """The usage of all calls about this question so far, by model."""


def dump_messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert messages to plain values."""
    return messages_to_dict(messages)


def load_messages(stored: Sequence[dict[str, Any]]) -> list[AnyMessage]:
    """Return stored messages."""
    found: list[Any] = messages_from_dict(stored)
    return found


class VerdictFile:
    """A file of verdicts that grows by a line for each call.

    The last line is ignored and removed if a kill has left it unfinished.

    Args:
        path: The file. It is created if it does not exist.
        head: The options of the run.

    Raises:
        ValueError: The file has calls that were made with other options, or a line is damaged.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self.calls: defaultdict[Key, list[StoredCall]] = defaultdict(list)
        """The stored calls of each question, oldest first."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = 0
        if path.exists() and (found := _whole_lines(path)):
            before, calls = _read(path, found)
            _check_same(path, before, head)
            for call in calls:
                self.calls[call.key].append(call)
            whole = len(found)
        self._file = path.open("ab")
        self._file.truncate(whole)
        if not whole:
            self._write(head)

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

    def add(self, call: StoredCall) -> None:
        """Store a call, so that it survives a kill of the process or a loss of power."""
        self._write(call)
        self.calls[call.key].append(call)

    def _write(self, line: _Line) -> None:
        self._file.write(line.model_dump_json().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_verdicts(path: Path) -> tuple[Head, list[StoredCall]]:
    """Read a file of verdicts.

    Returns:
        The options of the run, and the calls in the order in which they were made.

    Raises:
        ValueError: The file does not exist, or a line is damaged; names the file and the line.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; `judge` writes it")
    return _read(path, _whole_lines(path))


def _whole_lines(path: Path) -> bytes:
    """Return the content up to the end of the last finished line."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _read(path: Path, content: bytes) -> tuple[Head, list[StoredCall]]:
    first, *rest = content.splitlines() or [b""]
    try:
        head = Head.model_validate_json(first)
    except ValidationError as error:
        raise ValueError(f"{path}: line 1 has no options; name a file of `judge`") from error
    calls = list[StoredCall]()
    for number, line in enumerate(rest, start=2):
        try:
            calls.append(StoredCall.model_validate_json(line))
        except ValidationError as error:
            raise ValueError(
                f"{path}: line {number} is not a stored call; delete the line"
            ) from error
    return head, calls


def _check_same(path: Path, before: Head, now: Head) -> None:
    for name in Head.model_fields:
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            raise ValueError(
                f"{path}: its verdicts were made with {name} {json.dumps(old)}, not "
                f"{json.dumps(new)}; use the same options, or name another file by --runs"
            )
