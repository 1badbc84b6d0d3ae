"""A batch as data, and reading it from a dict or a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias

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
from ..common.errors import SpecError, name_type, validate
from ..common.files import read_fields
from ..conversation.conversation import Conversation
from .paths import check_apart, flatten_paths, read_paths, write_path

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
