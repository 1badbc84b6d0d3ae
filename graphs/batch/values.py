"""The values of fields that vary together, row by row, from lists and files."""

import csv
import json
from array import array
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set as AbstractSet,
)
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import JsonValue

from ..common.errors import SpecError, did_you_mean, list_names, name_type, suggest_near_or_all
from ..common.files import read_file
from .spec import Values, read_paths, write_path


class _Left(Enum):
    LEFT = "left"


LEFT: Final = _Left.LEFT
"""The value of an empty cell of a table: the field keeps the conversation's value."""

Value: TypeAlias = JsonValue | Literal[_Left.LEFT]
"""The value of one field in one row."""

_JSON: Final = ":json"
"""The end of the name of a table's column that contains JSON."""

_NESTED: Final = frozenset({"array", "object"})
"""The JSON types of lists and tables."""

TextTypes: TypeAlias = Callable[[str], AbstractSet[str]]
"""A function that returns the JSON types as which the texts of a path are read. Empty if they stay
texts."""

Row: TypeAlias = tuple[Value, ...]
"""The values of fields that vary together, in the order of the paths."""


def canonical_json(value: object) -> str:
    """Return a value as canonical JSON: equal values have the same text.

    Raises:
        ValueError: The value contains a number that JSON can't express.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


@dataclass(frozen=True)
class Axis:
    """Fields that vary together, with the rows of values."""

    key: str
    """The fields as the batch names them."""
    paths: tuple[str, ...]
    """The paths of the fields."""
    rows: Sequence[Row]
    """The rows of values."""
    file: str | None = None
    """The name of the file that contains the rows. None if they come from a list."""
    lines: Sequence[int] = ()
    """For each row, the number of its first line in the file."""

    @classmethod
    def of(cls, key: str) -> "Axis":
        """Return the axis of a key of ``vary``, without rows."""
        return cls(key, tuple(map(write_path, read_paths(key))), ())

    def place(self, number: int) -> str:
        """Return the place of a row for an error message.

        Args:
            number: The number of the row, from 0. While a file is read, the number of its line.
        """
        if self.file is None:
            return f"row {number + 1}"
        return f"{self.file}, line {self.lines[number] if self.lines else number}"

    def error(self, text: str, number: int | None = None) -> SpecError:
        """Return the error for one row, or for the axis if `number` is None."""
        at = "" if number is None else f"{self.place(number)}: "
        return SpecError(f"vary.{self.key}: {at}{text}")

    def varied(self, number: int) -> dict[str, JsonValue]:
        """Return the values of a row by their paths, without fields that are left unchanged."""
        pairs = zip(self.paths, self.rows[number], strict=True)
        return {path: value for path, value in pairs if value is not LEFT}

    def check_distinct(self) -> None:
        """Raise if two rows are the same, because their sessions would be the same.

        Raises:
            SpecError: Two rows are the same; the message names both.
        """
        seen: dict[str, int] = {}
        for number in range(len(self.rows)):
            try:
                text = canonical_json(self.varied(number))
            except ValueError as error:
                raise self.error(
                    "contains a number that JSON can't express; use finite numbers", number
                ) from error
            first = seen.setdefault(text, number)
            if first != number:
                raise self.error(
                    f"has the same values as {self.place(first)}; remove one of them", number
                )


def read_axis(axis: Axis, values: Values, types: TextTypes) -> Axis:
    """Return an axis with its rows.

    Args:
        axis: The axis without rows.
        values: Their values, or a file with the values.
        types: The types of each field, for the texts of files.

    Raises:
        SpecError: A row does not fit, or a file cannot be read; the message names the fields and
            the row.
    """
    if isinstance(values, str):
        return _from_file(axis, Path(values), types)
    rows = [_row(axis, given, number) for number, given in enumerate(values)]
    return replace(axis, rows=rows)


def _row(axis: Axis, given: JsonValue, number: int) -> Row:
    """Return one row of a list of values."""
    if len(axis.paths) == 1:
        return (given,)
    if isinstance(given, Mapping):
        unknown = next((name for name in given if name not in axis.paths), None)
        if unknown is not None:
            text = f"{unknown!r} is not one of its fields{suggest_near_or_all(unknown, axis.paths)}"
            raise axis.error(text, number)
        return _pick_values(axis, given, number)
    count = len(axis.paths)
    if not isinstance(given, list):
        raise axis.error(
            f"must be a list of {count} values or a table of the fields, not {name_type(given)}",
            number,
        )
    if len(given) != count:
        raise axis.error(
            f"has {_count_values(len(given))} for {count} fields; list one value for each field",
            number,
        )
    return tuple(given)


def _pick_values(axis: Axis, given: Mapping[str, JsonValue], number: int) -> Row:
    missing = [path for path in axis.paths if path not in given]
    if missing:
        raise axis.error(f"{missing[0]}: is missing{did_you_mean(missing[0], [*given])}", number)
    return tuple(given[path] for path in axis.paths)


def _count_values(count: int) -> str:
    return f"{count} value" if count == 1 else f"{count} values"


def _from_file(axis: Axis, path: Path, types: TextTypes) -> Axis:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise axis.error(
            f"{path.name!r} is not a .txt, .csv or .jsonl file; name such a file, "
            "or pass a list of values"
        )
    lines, rows = array("Q"), []
    try:
        text: str = read_file(path, str)
    except SpecError as error:
        raise axis.error(str(error)) from error
    for line, row in reader(replace(axis, file=path.name), text, types):
        lines.append(line)
        rows.append(row)
    if not rows:
        raise axis.error(f"{path.name} has no values; add at least one")
    return replace(axis, rows=rows, file=path.name, lines=lines)


def _txt(axis: Axis, text: str, types: TextTypes) -> Iterator[tuple[int, Row]]:
    """Read one value from each line, without white space around it. Blank lines are skipped."""
    if len(axis.paths) > 1:
        raise axis.error(
            f"{axis.file}: has one value in each line; use a .csv or .jsonl file for several fields"
        )
    read = _text_reader(axis.paths[0], types)
    for line, value in enumerate(text.split("\n"), 1):
        if value.strip():
            yield line, _read_cells(axis, line, [(read, value.strip())])


def _csv(axis: Axis, text: str, types: TextTypes) -> Iterator[tuple[int, Row]]:
    """Read the columns whose names are the axis's paths, with or without ``:json``."""
    records = _records(axis, text)
    _, header = next(records, (0, []))
    json_names = {name.strip() for name in header if name.strip().endswith(_JSON)}
    names = [name.strip().removesuffix(_JSON) for name in header]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise axis.error(f"{axis.file}: has two columns called {twice!r}; rename one")
    missing = next((path for path in axis.paths if path not in names), None)
    if missing is not None:
        has = f"it has {list_names(names)}" if names else "it has no columns"
        hint = did_you_mean(missing, names)
        raise axis.error(f"{axis.file}: has no column {missing!r}; {has}{hint}")
    columns = [names.index(path) for path in axis.paths]
    readers = [
        partial(_read_json, field=f"{path}: ")
        if f"{path}{_JSON}" in json_names
        else _text_reader(path, types)
        for path in axis.paths
    ]
    for line, record in records:
        if len(record) != len(names):
            raise axis.error(
                f"has {_count_values(len(record))} for {len(names)} columns; write one value "
                "for each column",
                line,
            )
        texts = (record[column] for column in columns)
        yield line, _read_cells(axis, line, zip(readers, texts, strict=True))


def _records(axis: Axis, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of a CSV file, each with its first line's number. Skip blank lines."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        raise axis.error(f"is not valid CSV: {error}", line) from error


def _jsonl(axis: Axis, text: str, _: TextTypes) -> Iterator[tuple[int, Row]]:
    """Read one JSON object from each line. For a single field, a line may also be the value."""
    for line, written_value in enumerate(text.split("\n"), 1):
        if not written_value.strip():
            continue
        (given,) = _read_cells(axis, line, [(_read_json, written_value)])
        if isinstance(given, Mapping) and (len(axis.paths) > 1 or axis.paths[0] in given):
            yield line, _pick_values(axis, given, line)
        elif len(axis.paths) == 1:
            yield line, (given,)
        else:
            raise axis.error(f"must be an object with {list_names(axis.paths)}", line)


def _read_cells(
    axis: Axis, line: int, cells: Iterable[tuple[Callable[[str], JsonValue], str]]
) -> Row:
    """Return the row of a line, from the reader and the text of each cell."""
    try:
        return tuple(read(text) if text else LEFT for read, text in cells)
    except ValueError as error:
        raise axis.error(str(error), line) from error


def _text_reader(path: str, types: TextTypes) -> Callable[[str], JsonValue]:
    """Return the function that reads the texts of a path."""
    accepted = types(path)
    return partial(_read_text, path, accepted) if accepted else str


def _read_text(path: str, types: AbstractSet[str], text: str) -> JsonValue:
    """Read a number or a boolean of these types, and return any other text unchanged.

    Case is ignored, because spreadsheets write ``TRUE``.

    Raises:
        ValueError: The text must be JSON. A word can mean a table, but never a list.
    """
    is_json = types & _NESTED and text.lstrip().startswith(("[", "{"))
    if is_json or types == {"array"}:
        column = f"{path}{_JSON}"
        raise ValueError(f"a list or a table must be JSON; use a .csv column named {column!r}")
    try:
        value = _parse_json(text.lower())
    except (ValueError, RecursionError):
        return text
    wanted = {"boolean"} if isinstance(value, bool) else {"integer", "number"}
    return value if isinstance(value, int | float) and types & wanted else text


def _read_json(text: str, field: str = "") -> JsonValue:
    try:
        value: JsonValue = _parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{field}is not valid JSON: {error}") from error
    return value


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


# Made once, because a file may have many thousands of texts.
_parse_json: Final[Callable[[str], Any]] = json.JSONDecoder(parse_constant=_reject_constant).decode


_READERS: Final[Mapping[str, Callable[[Axis, str, TextTypes], Iterable[tuple[int, Row]]]]] = {
    ".txt": _txt,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
