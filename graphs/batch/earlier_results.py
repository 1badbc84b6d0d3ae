"""The results of an earlier batch, as the values of fields that vary together. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pydantic import Field, JsonValue

from ..common.data import Data
from ..common.errors import SpecError
from ..common.sanitize import excerpt
from ..common.validation import did_you_mean, list_names


class EarlierResult(Data):
    """The result of one session of an earlier batch."""

    session: str
    """The session's id."""
    varied: dict[str, JsonValue] = Field(default_factory=dict)
    """The values of the session's cell, by path. Labels are included."""
    output: JsonValue
    """The session's output: a parsed object, the items of a list in a text, or a text."""


EarlierBatches: TypeAlias = Mapping[str, Sequence[EarlierResult]]
"""The results of earlier batches in the order of their cells, by the batches' names."""


def read_rows(result: EarlierResult, paths: Sequence[str]) -> Iterator[tuple[JsonValue, ...]]:
    """Yield the rows of values that a result makes, in the order of the paths.

    If the output is a list, or has exactly one list among its fields, each item makes a row. An
    item that is an object contains the fields by name. Any other item is the value of the only
    field that the earlier batch does not vary.

    Raises:
        SpecError: A field has no value; the message names it.
    """
    for item in _items(result.output, paths):
        yield _read_row(item, result.varied, paths)


def _items(output: JsonValue, paths: Sequence[str]) -> Sequence[JsonValue]:
    if isinstance(output, list):
        return output
    if isinstance(output, dict) and output.keys().isdisjoint(paths):
        lists = [one for one in output.values() if isinstance(one, list)]
        if len(lists) == 1:
            return lists[0]
    return [output]


def _read_row(
    item: JsonValue, varied: Mapping[str, JsonValue], paths: Sequence[str]
) -> tuple[JsonValue, ...]:
    others = [path for path in paths if path not in varied]
    if isinstance(item, dict):
        fields = item
        if fields.keys().isdisjoint(paths):
            names = excerpt(list_names(fields))
            raise SpecError(
                f"the output has {names}, but none of the fields {list_names(paths)}; use a schema "
                "with them"
            )
    elif len(others) == 1:
        fields = {others[0]: item}
    else:
        raise SpecError(_describe_mismatch(others))
    known = {**varied, **fields}
    missing = next((path for path in paths if path not in known), None)
    if missing is not None:
        hint = excerpt(did_you_mean(missing, [*known]))
        raise SpecError(f"{missing}: is missing in the output{hint}")
    return tuple(known[path] for path in paths)


def _describe_mismatch(others: Sequence[str]) -> str:
    if not others:
        return (
            "the earlier batch varies all of these fields, so none is left for its output; add a "
            "field for the output"
        )
    return (
        f"the output is a single value, but must fill the fields {list_names(others)}; use a "
        "schema with these fields"
    )
