"""A batch as data, the paths of the fields that vary, and reading it from a dict or a file.

A path consists of names joined by dots. A name that contains a dot is quoted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ..common.data import Accepts, Cap, DistinctNames, Fields, Spec, Thing, default
from ..common.errors import SpecError, hide_frames, name_type
from ..common.files import read_fields
from ..common.validation import check_depth, validate
from ..conversation.conversation import Conversation

FieldPath: TypeAlias = tuple[str, ...]
"""The names that lead to a field, the outermost first."""

LABELS = "labels"
"""The first name of a label's path. Labels are not fields of the conversation."""

_NAME = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^\s.,"'](?:[^.,]*[^\s.,])?))\s*""")
_NEEDS_QUOTES = re.compile(r"""[.,]|^["'\s]|\s$""")


def read_paths(text: str) -> tuple[FieldPath, ...]:
    """Parse one or more paths, separated by commas.

    Raises:
        ValueError: The text is not a path; the message describes the syntax.
    """
    found: list[FieldPath] = []
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


def write_path(path: FieldPath) -> str:
    """Return a path as text."""
    return ".".join(map(_quote, path))


def _quote(name: str) -> str:
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


def check_apart(paths: Iterable[tuple[FieldPath, str]]) -> None:
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


def json_types(model: type[BaseModel], path: FieldPath) -> AbstractSet[str]:
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


def _leaves(
    table: Mapping[object, object], at: FieldPath
) -> Iterator[tuple[tuple[FieldPath, ...], object]]:
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


Values: TypeAlias = tuple[JsonValue, ...] | str
"""The values of a field, or the path of a ``.txt``, ``.csv`` or ``.jsonl`` file that contains them.
"""

_VALUES: TypeAdapter[tuple[JsonValue, ...]] = TypeAdapter(tuple[JsonValue, ...])


def _one_or_more(given: object) -> object:
    """Return a single name as a tuple of one name."""
    return given if isinstance(given, list | tuple) else (given,)


class RateLimit(Spec):
    """The maximum rate of calls to one model, over all sessions of a batch."""

    requests_per_minute: PositiveInt | None = None
    """Maximum number of calls in a minute. No limit if None."""
    tokens_per_minute: PositiveInt | None = None
    """Maximum number of tokens in a minute, of prompts and answers. No limit if None."""


class BatchLimits(Spec):
    """Limits over all sessions of a batch. A reached limit pauses the batch; it can be resumed.

    The calls that are then in flight are completed, and can exceed ``max_cost`` and ``max_tokens``.
    """

    max_cost: PositiveFloat | None = None
    """Maximum cost, in the currency of the price table. No limit if None."""
    max_tokens: PositiveInt | None = None
    """Maximum number of tokens, of prompts and answers. No limit if None."""
    max_seconds: PositiveFloat | None = None
    """Maximum running time in seconds, over all runs of the batch. No limit if None."""
    rates: dict[str, RateLimit] = Field(default_factory=dict)
    """The maximum rate of each model, by its name. ``*`` is the rate of each model that has no
    entry.
    """


class Batch(Spec):
    """Many sessions of one conversation: one for each combination of the values that vary.

    Raises:
        SpecError: A field is missing, unknown or not valid; the message names the field, and the
            row if the values come from a file.
    """

    conversation: Accepts[
        dict[str, Any] | str | Conversation, Conversation | Fields | str | Path
    ] = Field(kw_only=False)
    """The conversation of all sessions, apart from the values that vary: a conversation, its
    fields, the fields of a short form, or a file that contains them.
    """
    vary: Accepts[
        dict[str, Values],
        Mapping[str, Sequence[JsonValue | tuple[object, ...]] | Mapping[str, object] | str],
    ] = default({})
    """The values of each field that varies, by the field's path, such as
    ``end_chat.max_iterations`` or ``speakers.Buyer.task``. Every combination of the fields' values
    is used. Fields that are named together, as in ``"user_role, task"``, take their values row by
    row. Quote a name that contains a dot or a comma. Nested tables are read as dotted paths. A text
    in place of a list of values is the path of a file with the values.
    ``labels.NAME`` is not a field of the conversation: it is stored with the session, for scores
    and tables.
    """
    trials: Cap = 1
    """Number of sessions for each combination. Each has a different seed."""
    seed: NonNegativeInt | None = None
    """The seed of the first trial; each further trial adds 1. If None, the first trial has the
    conversation's seed, and each further trial adds 1, starting at 0 if there is no seed.
    """
    limits: Accepts[BatchLimits, BatchLimits | Fields] = default(BatchLimits())
    """Limits over all sessions together."""
    score: Accepts[
        Annotated[DistinctNames, BeforeValidator(_one_or_more)], Thing | Sequence[Thing]
    ] = default(())
    """The names of the functions that score a session that has ended."""
    judge_at_end: bool = False
    """Whether the conversation's separate judge is asked once about each session that has ended,
    before it is scored. It is not asked if it has judged the last message already.
    """

    @model_validator(mode="before")
    @classmethod
    def _by_paths(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        read = {**given}
        if isinstance(read.get("conversation"), Path):
            read["conversation"] = str(read["conversation"])
        if "vary" in read:
            read["vary"] = {
                key: _values(key, values) for key, values in flatten_paths(read["vary"]).items()
            }
            paths = [path for key in read["vary"] for path in read_paths(key)]
            check_apart([(path, write_path(path)) for path in paths])
        return read

    @model_validator(mode="after")
    def _has_score(self) -> Self:
        if self.judge_at_end and not self.score:
            raise ValueError(
                'judge_at_end: no score reads the verdict; add score = ["criteria", "findings"]'
            )
        return self


def _values(key: str, given: object) -> Values:
    """Return the values of a field, or the name of the file that contains them."""
    if isinstance(given, str | Path):
        return str(given)
    if not isinstance(given, list | tuple):
        raise ValueError(f"vary.{key}: must be a list of values or a file's name, not {given!r}")
    if not given:
        raise ValueError(f"vary.{key}: has no values; add at least one")
    try:
        # A row may be a tuple, as in pytest's `parametrize`.
        return _VALUES.validate_python([[*one] if isinstance(one, tuple) else one for one in given])
    except ValidationError as error:
        row = int(error.errors()[0]["loc"][0]) + 1
        raise ValueError(
            f"vary.{key}: row {row}: is not a JSON value; use texts, numbers, true, false, null, "
            "lists and tables"
        ) from error


_OF_CONVERSATIONS: Final = ("kind", "speakers")
"""A conversation has one of these fields; a batch has none of them."""


@hide_frames
def load_batch(source: Mapping[str, Any] | str | Path) -> Batch:
    """Read a batch.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file. Paths in a file are relative
            to the file's folder; paths in a dict are relative to the working folder.

    Returns:
        The batch.

    Raises:
        TypeError: ``source`` is neither a dict nor a path.
        SpecError: The file cannot be read or does not contain a valid batch; the message names the
            file and the field.
    """
    if isinstance(source, Mapping):
        if _is_conversation(source):
            raise SpecError(
                "this is a conversation; make a batch with this conversation in the field "
                "conversation"
            )
        return validate(Batch, source)
    if not isinstance(source, str | Path):
        raise TypeError(f"a batch must be a Batch, a dict or a file, not {name_type(source)}")
    path = Path(source)
    data = read_fields(path, "batch")
    if _is_conversation(data):
        raise SpecError(
            f"{path}: is a conversation; run it with `duologue run {path}`, or make a batch "
            "file whose field conversation names this file"
        )
    batch = validate(Batch, data, f"{path}: ")
    files: dict[str, Any] = {
        "vary": {
            key: str(path.parent / values) if isinstance(values, str) else values
            for key, values in batch.vary.items()
        }
    }
    if isinstance(batch.conversation, str):
        files["conversation"] = str(path.parent / batch.conversation)
    return batch.model_copy(update=files)


def _is_conversation(fields: Mapping[str, Any]) -> bool:
    return "conversation" not in fields and not fields.keys().isdisjoint(_OF_CONVERSATIONS)
