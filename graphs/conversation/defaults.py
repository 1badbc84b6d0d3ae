"""Marks for values that a short form fills in; unset values are not compared with stored values."""

from collections.abc import Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from ..common.data import Kinded, Spec
from ..common.validation import validate

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Default:
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


def mark_by_options(options_set: AbstractSet[str], data: Any) -> Any:  # noqa: ANN401
    """Replace each mark by a `Default` or a plain value, depending on the options that are set."""
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
    """Build a model from marked data.

    A value that the caller did not set is not compared when a session is resumed: the stored value
    applies, even if another release fills in a different one.
    """
    found = validate(model, without_marks(data))
    for path in _default_paths(data):
        _unset(found, path)
    return found


def mark_unset(value: object) -> dict[str, Any]:
    """Return the fields of a model or of data as a dict; fields that were not set are marked."""
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
    """Return whether a value, marked or not, has fields."""
    value = value.value if isinstance(value, Default) else value
    return isinstance(value, Mapping | BaseModel)


def set_fields(value: object) -> Any:  # noqa: ANN401
    """Return the fields that were set in a spec as nested dicts; a `Kinded` value stays whole."""
    if isinstance(value, Spec) and not isinstance(value, Kinded):
        names = (name for name in type(value).model_fields if name in value.model_fields_set)
        return {name: set_fields(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: set_fields(one) for name, one in value.items()}
    return value


def without_marks(value: Any) -> Any:  # noqa: ANN401
    """Return data without marks."""
    match value:
        case Default():
            return without_marks(value.value)
        case Mapping():
            return {name: without_marks(one) for name, one in value.items()}
        case list() | tuple():
            return tuple(map(without_marks, value))
        case _:
            return value


def _default_paths(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the values that the caller did not set."""
    match value:
        case Default(by=None):
            yield path
        case Default():
            yield from _default_paths(value.value, path)
        case Mapping():
            for name, one in value.items():
                yield from _default_paths(one, (*path, name))
        case list() | tuple():
            for place, one in enumerate(value):
                yield from _default_paths(one, (*path, place))


def _unset(model: BaseModel, path: tuple[str | int, ...]) -> None:
    """Record the field at the end of a path as not set."""
    at: Any = model
    for part in path[:-1]:
        at = getattr(at, str(part)) if isinstance(at, BaseModel) else at[part]
    # A dict does not record which keys the caller set, so all are compared.
    if isinstance(at, BaseModel):
        at.model_fields_set.discard(str(path[-1]))
