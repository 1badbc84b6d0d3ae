"""Options of a conversation: the types that callers may pass, marked defaults, merged changes.

A short form marks the values that it fills in. Values that the caller did not set are not compared
with stored values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel
from typing_extensions import TypedDict

from ..common.data import Fields, Kinded, Name, Named, Spec, Thing
from ..common.errors import SpecError, name_type, suggest_near_or_all
from ..common.validation import validate
from ..ends.end_chat import AnyEndChat, end_chat_fields
from ..speakers.call_settings import InterruptOn, Rule
from ..speakers.formats import TELLING
from ..speakers.speaker import Speaker, SpeakerFields
from .fields import Opening, TaskSpecification, Wording
from .judges import AnyJudge, TurnOrder
from .sandbox import Sandbox, read_level
from .usage import Price

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class FilledIn:
    """A value that a short form fills in, completely or in part."""

    value: object
    by: str | None = None
    """The short form's field through which the caller set the value. None if the caller did not set
    it."""


@dataclass(frozen=True)
class _FromOptions:
    """A value that depends on options of a short form."""

    value: object
    options: tuple[str, ...]
    is_shared: bool = False


def mark_default(value: object, *options: str) -> object:
    """Mark a value that a short form fills in, and the options on which it depends.

    The value is a default unless the caller sets one of the options. The first option is another
    way to set the value's field, so setting both is an error.
    """
    return _FromOptions(value, options)


def mark_shared_default(value: object, *options: str) -> object:
    """Mark a default that several speakers share; each speaker may still have its own value."""
    return _FromOptions(value, options, is_shared=True)


def _change_parts(change: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    """Apply a function to the parts of a dict or list, and return any other value unchanged."""
    if isinstance(value, Mapping):
        return {name: change(one) for name, one in value.items()}
    return tuple(map(change, value)) if isinstance(value, list | tuple) else value


def mark_by_options(options_set: AbstractSet[str], data: Any) -> Any:  # noqa: ANN401
    """Replace each mark by a `FilledIn` or a plain value, depending on the options that are set."""
    if not isinstance(data, _FromOptions):
        return _change_parts(partial(mark_by_options, options_set), data)
    found, options = mark_by_options(options_set, data.value), data.options
    if options and options[0] in options_set and not data.is_shared:
        return FilledIn(found, options[0])
    return FilledIn(found) if options_set.isdisjoint(options) else found


def build_model(model: type[M], data: Mapping[str, Any]) -> M:
    """Build a model from marked data.

    A value that the caller did not set is not compared when a session is resumed: the stored value
    applies, even if another release fills in a different one.
    """
    found = validate(model, remove_marks(data))
    for *parts, last in _default_paths(data):
        at: Any = found
        for part in parts:
            at = getattr(at, str(part)) if isinstance(at, BaseModel) else at[part]
        # A dict does not record which keys the caller set, so all are compared.
        if isinstance(at, BaseModel):
            at.model_fields_set.discard(str(last))
    return found


def mark_unset(value: object) -> dict[str, Any]:
    """Return the fields of a model or of data as a dict; fields that were not set are marked."""
    match value:
        case FilledIn():
            return {
                name: one if isinstance(one, FilledIn) else FilledIn(one, value.by)
                for name, one in mark_unset(value.value).items()
            }
        case BaseModel():
            is_set = value.model_fields_set | {"kind"}
            fields = type(value).model_fields
            return {
                name: one if name in is_set else FilledIn(one)
                for name, one in value
                if name in is_set or one != fields[name].get_default(call_default_factory=True)
            }
        case Mapping():
            return dict(value)
        case _:
            return {}


def set_fields(value: object) -> Any:  # noqa: ANN401
    """Return the fields that were set in a spec as nested dicts; a `Kinded` value stays whole."""
    if isinstance(value, Spec) and not isinstance(value, Kinded):
        names = (name for name in type(value).model_fields if name in value.model_fields_set)
        return {name: set_fields(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: set_fields(one) for name, one in value.items()}
    return value


def remove_marks(value: Any) -> Any:  # noqa: ANN401
    """Return data without marks."""
    is_marked = isinstance(value, FilledIn)
    return remove_marks(value.value) if is_marked else _change_parts(remove_marks, value)


def _default_paths(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the values that the caller did not set."""
    match value:
        case FilledIn(by=None):
            yield path
        case FilledIn():
            yield from _default_paths(value.value, path)
        case Mapping():
            for name, one in value.items():
                yield from _default_paths(one, (*path, name))
        case list() | tuple():
            for place, one in enumerate(value):
                yield from _default_paths(one, (*path, place))


AnySpeaker: TypeAlias = Speaker | SpeakerFields | Fields
"""A speaker or its fields."""

Role: TypeAlias = str | AnySpeaker
"""A speaker in the arguments of a short form: its name or its fields."""


@dataclass(frozen=True)
class ReadAs:
    """The type of an option's value after validation, if callers may pass other types."""

    type: Any


SpeakerName: TypeAlias = Annotated[Role, ReadAs(Name)]
"""A speaker's name, or the speaker's fields."""

Names: TypeAlias = Annotated[Sequence[str], ReadAs(tuple[Name, ...])]

Things: TypeAlias = Annotated[Sequence[Thing], ReadAs(tuple[Named, ...])]
"""Names of registered objects, or in Python the objects themselves."""

Approvals: TypeAlias = Annotated[
    Mapping[Any, bool | InterruptOn | Fields], ReadAs(dict[Named, Rule])
]
"""The tools, or their names, that need approval before they run, each with its approval rule."""

NO_APPROVALS: Final[Mapping[Any, bool]] = {}


class OptionsBesideEndChat(TypedDict, total=False):
    """The fields of a conversation that no short form declares as its own parameters."""

    title: str | None
    turn_order: TurnOrder | str | Fields
    task_specification: TaskSpecification | Fields | None
    opening: Opening | Fields
    judge: AnyJudge | str | Fields
    model: str | None
    prices: Mapping[str, Price | Fields]
    max_tool_rounds: int
    max_call_errors: int
    max_tool_errors: int
    tool_timeout: float
    sandbox: Sandbox | str | Fields
    seed: int | None
    prompts: Mapping[str, str | Wording | Fields]


class CommonOptions(OptionsBesideEndChat, total=False):
    """The fields of a conversation, for forms that do not declare ``end_chat`` as a parameter."""

    end_chat: AnyEndChat


class TaskOptions(CommonOptions, total=False):
    """The fields of a conversation, for forms that declare neither ``end_chat`` nor ``task``."""

    task: str | None


class ConversationOptions(CommonOptions, total=False):
    """The fields of a `Conversation` that are accepted by keyword only."""

    version: Literal[16]


class Changes(TaskOptions, total=False):
    """The fields that `Conversation.replace` accepts."""

    speakers: Mapping[str, Fields] | Sequence[AnySpeaker]


BY_WORD: Final = {"end_chat": end_chat_fields, "sandbox": read_level}
"""The parts of a conversation in which a plain string sets one field, each with its reader."""


def merge_changes(
    base: object, changes: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Merge changes into data; a dict changes only the fields that it names.

    A dict that states a kind, or contains a field that identifies a format, replaces the old value.

    Raises:
        SpecError: A short form's field has already set the same value; the message names both
            fields.
    """
    merged = mark_unset(base)
    for field, value in changes.items():
        before, at = merged.get(field), (*path, field)
        known = before.value if isinstance(before, FilledIn) else before
        has_fields = isinstance(known, Mapping | BaseModel) and isinstance(value, Mapping)
        if has_fields and not _is_whole(field, value):
            merged[field] = merge_changes(before, value, at)
            continue
        if isinstance(before, FilledIn) and before.by is not None:
            raise duplicate_field_error(before.by, ".".join(at))
        merged[field] = value
    return merged


def duplicate_field_error(one: str, other: str) -> SpecError:
    """Build the error for two fields that set the same value."""
    return SpecError(f"{one} and {other} set the same value; use only one of them")


def _is_whole(field: str, value: Mapping[str, Any]) -> bool:
    """Return whether a dict replaces the old value completely."""
    return "kind" in value or (field == "format" and not TELLING.keys().isdisjoint(value))


def read_bare_words(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain strings to fields, in the parts of a conversation that accept them."""
    words = {name: read(changes[name]) for name, read in BY_WORD.items() if name in changes}
    return {**changes, **words}


def merge_speaker(
    base: object, changes: Mapping[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """Merge changes into a speaker's fields.

    Raises:
        SpecError: A field is wrong; its path contains the speaker's name instead of its number.
    """
    found = merge_changes(base, changes, path)
    if "system_prompt" in changes and "small_model_prompt" not in changes:
        # The short prompt for small models repeats the old system prompt.
        found.pop("small_model_prompt", None)
    validate(Speaker, remove_marks(found), ".".join((*path, "")))
    return found


def merge_speakers(speakers: tuple[Speaker, ...], changes: object) -> tuple[object, ...]:
    """Change the speakers that a dict names."""
    found: dict[str, object] = {speaker.name: speaker for speaker in speakers}
    for name, given in require_fields(
        changes, "speakers", "from speakers' names to changes"
    ).items():
        if name not in found:
            raise SpecError(
                f"speakers: no speaker is called {name!r}{suggest_near_or_all(name, [*found])}"
            )
        path = ("speakers", name)
        found[name] = merge_speaker(
            found[name], require_fields(given, ".".join(path), "of the speaker's fields"), path
        )
    return tuple(found.values())


def require_fields(given: object, field: str, what: str) -> Mapping[str, Any]:
    """Return a change, or raise an error if it is not a dict."""
    if not isinstance(given, Mapping):
        shown = repr(given) if isinstance(given, str | int | float) else name_type(given)
        raise SpecError(f"{field}: must be a dict {what}, not {shown}")
    return given


def first_difference(known: object, given: object) -> str:
    """Return the path of the first field that is set in `given` and differs from `known`.

    Both are models or plain values. The path is empty if no field differs. Fields of models that
    are not set, at any depth, are not compared, because a default may have changed since.
    """
    return _difference_path(known, given) or ""


def _difference_path(one: object, other: object) -> str | None:
    """Return the path at which two values differ, or None if they are equal."""
    if isinstance(other, BaseModel) and type(one) is type(other):
        set_ = other.model_fields_set
        parts = {
            name: (getattr(one, name), getattr(other, name))
            for name in type(other).model_fields
            if name in set_
        }
    elif isinstance(one, tuple | list) and type(one) is type(other) and len(one) == len(other):
        parts = {str(place): pair for place, pair in enumerate(zip(one, other, strict=True))}
    elif isinstance(one, dict) and isinstance(other, dict):
        parts = {str(key): (one.get(key), other.get(key)) for key in [*one, *other]}
    else:
        return None if one == other else ""
    for name, pair in parts.items():
        inner = _difference_path(*pair)
        if inner is not None:
            return f"{name}.{inner}" if inner else name
    return None
