"""Files of verdicts: JSON lines, a line for each verdict, from which a run is resumed."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Key(NamedTuple):
    """The question that a verdict answers."""

    judge: str
    dialogue: str
    turns: int


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Head(_Line):
    """The first line of a file: the options with which all of its verdicts were made."""

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


class StoredVerdict(_Line):
    """A verdict about a prefix."""

    key: Key
    is_over: bool
    """Whether the dialogue should be over after these turns, by its label."""
    source: str
    """The source of the dialogue."""
    says_over: bool | None
    """The verdict. None if it could not be read."""
    messages: list[dict[str, Any]]
    """The messages of the judge."""
    usage: dict[str, Any]
    """The usage of the calls for this verdict, by model."""


class VerdictFile:
    """A file of verdicts that grows by a line for each verdict.

    The last line is ignored and removed if a kill has left it unfinished.

    Args:
        path: The file. It is created if it does not exist.
        head: The options of the run.

    Raises:
        ValueError: The file has verdicts that were made with other options, or a line is damaged.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self.keys = set[Key]()
        """The questions whose verdicts are stored."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = 0
        if path.exists() and (found := _whole_lines(path)):
            before, verdicts = _read(path, found)
            _check_same(path, before, head)
            self.keys = {one.key for one in verdicts}
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

    def add(self, verdict: StoredVerdict) -> None:
        """Store a verdict, so that it survives a kill of the process or a loss of power."""
        self._write(verdict)
        self.keys.add(verdict.key)

    def _write(self, line: _Line) -> None:
        self._file.write(line.model_dump_json().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_verdicts(path: Path) -> tuple[Head, list[StoredVerdict]]:
    """Read a file of verdicts.

    Returns:
        The options of the run, and the verdicts in the order in which they were made.

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


def _read(path: Path, content: bytes) -> tuple[Head, list[StoredVerdict]]:
    first, *rest = content.splitlines() or [b""]
    try:
        head = Head.model_validate_json(first)
    except ValidationError as error:
        raise ValueError(f"{path}: line 1 has no options; name a file of `judge`") from error
    verdicts = list[StoredVerdict]()
    for number, line in enumerate(rest, start=2):
        try:
            verdicts.append(StoredVerdict.model_validate_json(line))
        except ValidationError as error:
            raise ValueError(
                f"{path}: line {number} is not a stored verdict; delete the line"
            ) from error
    return head, verdicts


def _check_same(path: Path, before: Head, now: Head) -> None:
    for name in Head.model_fields:
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            raise ValueError(
                f"{path}: its verdicts were made with {name} {json.dumps(old)}, not "
                f"{json.dumps(new)}; use the same options, or name another file by --runs"
            )
