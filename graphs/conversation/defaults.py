"""Values that a short form fills in, marked: a value that nobody set is not compared."""

from collections.abc import Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from ..common.data import Kinded, Spec
from ..common.validation import validate

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Default:
    """A value that a short form fills in, or all parts of one."""

    value: object
    by: str | None = None
    """The short form's field by which the caller set it. None: nobody set it."""


@dataclass(frozen=True)
class _FromOptions:
    """A value that follows from options of a short form."""

    value: object
    options: tuple[str, ...]
    is_shared: bool = False


def mark_default(value: object, *options: str) -> object:
    """Mark a value that a short form fills in unless the caller sets one of these options.

    If the caller sets the first of them, the value can't be set in full, too.
    """
    return _FromOptions(value, options)


def mark_shared_default(value: object, *options: str) -> object:
    """Mark a value of several speakers in this way; each of them may be given another value."""
    return _FromOptions(value, options, is_shared=True)


def mark_by_options(options_set: AbstractSet[str], data: Any) -> Any:  # noqa: ANN401
    """Mark what a short form has filled in, by the options that the caller has set."""
    match data:
        case _FromOptions(value, options):
            found = mark_by_options(options_set, value)
            if options and options[0] in options_set and not data.is_shared:
                return Default(found, options[0])
            return Default(found) if options_set.isdisjoint(options) else found
        case Mapping():
            return {name: mark_by_options(options_set, one) for name, one in data.items()}
        case list() | tuple():
            return tuple(mark_by_options(options_set, one) for one in data)
        case _:
            return data


def build_model(model: type[M], data: Mapping[str, Any]) -> M:
    """Make a model out of marked data.

    What the caller did not set is not compared when a session goes on: another release may fill in
    something else, and what is stored holds.
    """
    found = validate(model, without_marks(data))
    for path in _paths(data):
        _unset(found, path)
    return found


def mark_unset(value: object) -> dict[str, Any]:
    """Return the fields of a model, or of data, one by one; those that nobody set are marked."""
    match value:
        case Default():
            return {
                name: one if isinstance(one, Default) else Default(one, value.by)
                for name, one in mark_unset(value.value).items()
            }
        case BaseModel():
            is_set = value.model_fields_set | {"kind"}
            fields = type(value).model_fields
            return {
                name: one if name in is_set else Default(one)
                for name, one in value
                if name in is_set or one != fields[name].get_default(call_default_factory=True)
            }
        case Mapping():
            return dict(value)
        case _:
            return {}


def has_fields(value: object) -> bool:
    """Whether there are fields in it."""
    value = value.value if isinstance(value, Default) else value
    return isinstance(value, Mapping | BaseModel)


def set_fields(value: object) -> Any:  # noqa: ANN401
    """Give what was set of the parts of a spec as data; one of several kinds stays whole."""
    if isinstance(value, Spec) and not isinstance(value, Kinded):
        names = (name for name in type(value).model_fields if name in value.model_fields_set)
        return {name: set_fields(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: set_fields(one) for name, one in value.items()}
    return value


def without_marks(value: Any) -> Any:  # noqa: ANN401
    """Data without marks."""
    match value:
        case Default():
            return without_marks(value.value)
        case Mapping():
            return {name: without_marks(one) for name, one in value.items()}
        case list() | tuple():
            return tuple(map(without_marks, value))
        case _:
            return value


def _paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in data there is what nobody set."""
    match value:
        case Default(by=None):
            yield path
        case Default():
            yield from _paths(value.value, path)
        case Mapping():
            for name, one in value.items():
                yield from _paths(one, (*path, name))
        case list() | tuple():
            for place, one in enumerate(value):
                yield from _paths(one, (*path, place))


def _unset(model: BaseModel, path: tuple[str | int, ...]) -> None:
    """Take the field at the end of a path for one that was not set."""
    at: Any = model
    for part in path[:-1]:
        at = getattr(at, str(part)) if isinstance(at, BaseModel) else at[part]
    # What stands in a dict has no note of who set it: then all of the dict is compared.
    if isinstance(at, BaseModel):
        at.model_fields_set.discard(str(path[-1]))
