"""A batch as data, and reading one from a dict or a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
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
from ..common.errors import SpecError
from ..common.files import read_fields
from ..common.validation import name_type, validate
from ..conversation.conversation import Conversation
from .paths import check_apart, flatten_paths, read_paths, write_path

Values: TypeAlias = tuple[JsonValue, ...] | str
"""The values of a field, or the path of a ``.txt``, ``.csv`` or ``.jsonl`` file that holds them."""


_VALUES: TypeAdapter[tuple[JsonValue, ...]] = TypeAdapter(tuple[JsonValue, ...])


def _one_or_more(given: object) -> object:
    """Read one name as a list of one."""
    return given if isinstance(given, list | tuple) else (given,)


class RateLimit(Spec):
    """How fast one model may be called, by all sessions of a batch together."""

    requests_per_minute: PositiveInt | None = None
    """The most calls. None: as many as there are."""
    tokens_per_minute: PositiveInt | None = None
    """The most tokens, of prompts and answers. None: as many as there are."""


class BatchLimits(Spec):
    """What holds for all sessions of a batch together. What runs then is paused, and can go on."""

    max_cost: PositiveFloat | None = None
    """The most money, by the price table."""
    max_tokens: PositiveInt | None = None
    """The most tokens, of prompts and answers."""
    max_seconds: PositiveFloat | None = None
    """The longest time that it runs, in seconds, of all runs together."""
    rates: dict[str, RateLimit] = Field(default_factory=dict)
    """How fast each model may be called, by its name; ``*`` stands for all others, one by one."""


class Batch(Spec):
    """Many sessions of one conversation: one for each combination of the values that vary.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it, and the row of a file.
    """

    conversation: Accepts[
        dict[str, Any] | str | Conversation, Conversation | Fields | str | Path
    ] = Field(kw_only=False)
    """What each session holds but for what varies: a conversation, its fields or a short form's,
    or a file with one."""
    vary: Accepts[
        dict[str, Values],
        Mapping[str, Sequence[JsonValue | tuple[object, ...]] | Mapping[str, object] | str],
    ] = default({})
    """The values of each field that varies, by its path, such as ``end_chat.max_iterations`` or
    ``speakers.Buyer.task``. Fields are combined each with each; those that are named together, as
    in ``"user_role, task"``, take their values row by row. A name that holds a dot or a comma is
    put in quotes; tables in tables are read as their dotted paths. ``labels.NAME`` is no field of
    the conversation: it stands beside its session, for scores and tables."""
    trials: Cap = 1
    """How many sessions each combination has; each has a seed of its own."""
    seed: NonNegativeInt | None = None
    """The seed of the first trial; each further one has the next. None: the conversation's; where
    that has none, the first trial has none, and the further ones have 1, 2, and so on."""
    limits: Accepts[BatchLimits, BatchLimits | Fields] = default(BatchLimits())
    """What holds for all sessions together."""
    score: Accepts[
        Annotated[DistinctNames, BeforeValidator(_one_or_more)], Thing | Sequence[Thing]
    ] = default(())
    """Functions that score a session that has ended, by name."""

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


def _values(key: str, given: object) -> Values:
    """Read the values of a field, or the name of their file."""
    if isinstance(given, str | Path):
        return str(given)
    if not isinstance(given, list | tuple):
        raise ValueError(f"vary.{key}: must be a list of values or a file's name, not {given!r}")
    if not given:
        raise ValueError(f"vary.{key}: has no values")
    try:
        # As in pytest, a row may be a tuple.
        return _VALUES.validate_python([[*one] if isinstance(one, tuple) else one for one in given])
    except ValidationError as error:
        row = int(error.errors()[0]["loc"][0]) + 1
        raise ValueError(f"vary.{key}: row {row}: is no value that JSON has") from error


_OF_CONVERSATIONS: Final = ("kind", "speakers")
"""Fields of which a conversation has one, and a batch none."""


def load_batch(source: Mapping[str, Any] | str | Path) -> Batch:
    """Read a batch.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file. Files that it names are
            looked for in its own folder; those that a dict names, in the working folder.

    Returns:
        The batch.

    Raises:
        TypeError: It is neither a dict nor a path.
        SpecError: The file can't be read or does not hold a valid batch; names the file and the
            field.
    """
    if isinstance(source, Mapping):
        if _is_conversation(source):
            raise SpecError("it is a conversation: put it into the field conversation of a batch")
        return validate(Batch, source)
    if not isinstance(source, str | Path):
        raise TypeError(f"a batch must be a Batch, a dict or a file, not {name_type(source)}")
    path = Path(source)
    data = read_fields(path, "batch")
    if _is_conversation(data):
        raise SpecError(
            f"{path}: is a conversation: run it by `duologue run {path}`, or name the file in a "
            "batch's conversation"
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
