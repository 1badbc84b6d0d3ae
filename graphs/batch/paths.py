"""The paths of fields that vary: names joined by dots. A name that contains a dot is quoted."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set as AbstractSet
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from pydantic import BaseModel

from ..common.errors import check_depth

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a field, the outermost first."""

LABELS = "labels"
"""The first name of a label's path. Labels are not fields of the conversation."""

_NAME = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s.,"'](?:[^.,]*[^\s.,])?))\s*""")
_NEEDS_QUOTES = re.compile(r"""[.,]|^["'\s]|\s$""")


def read_paths(text: str) -> tuple[Path, ...]:
    """Parse one or more paths, separated by commas.

    Raises:
        ValueError: The text is not a path; the message describes the syntax.
    """
    found: list[Path] = []
    names: list[str] = []
    at = 0
    while match := _NAME.match(text, at):
        names.append(next(name for name in match.groups() if name is not None))
        at = match.end()
        sign = text[at : at + 1]
        if sign != ".":
            found.append(tuple(names))
            names = []
        at += 1
        if not sign:
            return tuple(found)
        if sign not in ".,":
            break
    raise ValueError(
        f"vary: {text!r} is not a path; join names with dots, quote a name that contains a dot or "
        "a comma, and separate the paths of several fields by commas"
    )


def write_path(path: Path) -> str:
    """Return a path as text."""
    return ".".join(map(_quoted, path))


def _quoted(name: str) -> str:
    if _NEEDS_QUOTES.search(name) is None:
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


def flatten_paths(given: object) -> dict[str, object]:
    """Return the values of each field that varies, by path. Nested tables become dotted paths.

    Raises:
        ValueError: The argument is not a table, or a field varies twice; the message names it.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"vary: must be a table of fields with their values, not {given!r}")
    check_depth(given, "vary: ")
    found: dict[str, object] = {}
    for paths, values in _leaves(given, ()):
        key = ", ".join(map(write_path, paths))
        if key in found:
            raise ValueError(f"vary.{key}: occurs twice; remove one of them")
        found[key] = values
    return found


def check_apart(paths: Iterable[tuple[Path, str]]) -> None:
    """Raise if a field varies twice, or is a part of another field that varies.

    Args:
        paths: The paths, each with its text as it was given.

    Raises:
        ValueError: Two paths overlap; the message names both.
    """
    for (one, first), (other, second) in pairwise(sorted(paths)):
        if one == other:
            also = "" if first == second else f", also as {first}"
            raise ValueError(f"vary.{second}: varies twice{also}; remove one of them")
        if other[: len(one)] == one:
            raise ValueError(
                f"vary.{second}: is a part of {first}, which varies as well; vary only one of them"
            )


def json_types(model: type[BaseModel], path: Path) -> AbstractSet[str]:
    """Return the JSON types of the values that a model accepts at a path, except null.

    The set is empty if there is no such path, or if it accepts only certain words.
    """
    found = [_json_schema(model)]
    for name in path:
        inner = (_inner_schemas(one, name) for part in found for one in _alternatives(model, part))
        found = [one for some in inner for one in some]
    ends = (one for part in found for one in _alternatives(model, part))
    types = {str(one["type"]) for one in ends if "type" in one and not one.keys() & _WORDS}
    return types - {"null"}


_WORDS = {"const", "enum"}
"""The keys of a JSON schema that accepts only certain values."""


@cache
def _json_schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


def _alternatives(model: type[BaseModel], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that a schema combines, or the schema itself."""
    if "$ref" in schema:
        yield from _alternatives(model, _json_schema(model)["$defs"][schema["$ref"].split("/")[-1]])
        return
    several = next((schema[key] for key in ("anyOf", "oneOf", "allOf") if key in schema), None)
    if several is None:
        yield schema
    for one in several or ():
        yield from _alternatives(model, one)


def _inner_schemas(schema: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of a field, or of the items of a list or a table."""
    field = schema.get("properties", {}).get(name)
    items = (schema.get("items"), schema.get("additionalProperties"))
    patterns = schema.get("patternProperties", {}).values()
    yield from (one for one in (field, *items, *patterns) if isinstance(one, dict))


def _leaves(table: Mapping[object, object], at: Path) -> Iterator[tuple[tuple[Path, ...], object]]:
    for key, given in table.items():
        if not isinstance(key, str):
            raise ValueError(f"vary: {key!r} is not a path; it must be text")
        if not isinstance(given, Mapping):
            yield tuple((*at, *path) for path in read_paths(key)), given
            continue
        # Inside a table, a key of a further table is a single name, even if it contains dots.
        (inner, *more) = ((key,),) if at else read_paths(key)
        if more:
            raise ValueError(
                f"vary.{key}: several fields can't share one table; pass a list of rows"
            )
        yield from _leaves(given, (*at, *inner))
