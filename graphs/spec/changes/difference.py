"""In which field two specs differ first. Pure functions."""

from pydantic import BaseModel


def first_difference(known: BaseModel, given: BaseModel) -> str:
    """Name the first field that was set in a spec and differs from a known one, if any.

    What was not set, at any depth, is left to the known one: a default may have changed since.
    """
    return _path(known, given) or ""


def _path(one: object, other: object) -> str | None:
    """Where two values differ: the fields that lead there. None: nowhere."""
    if isinstance(other, BaseModel) and type(one) is type(other):
        set_ = other.model_fields_set
        parts = {
            name: (getattr(one, name), getattr(other, name))
            for name in type(other).model_fields
            if name in set_
        }
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        parts = {str(place): pair for place, pair in enumerate(zip(one, other, strict=True))}
    elif isinstance(one, dict) and isinstance(other, dict):
        parts = {str(key): (one.get(key), other.get(key)) for key in [*one, *other]}
    else:
        return None if one == other else ""
    for name, pair in parts.items():
        inner = _path(*pair)
        if inner is not None:
            return f"{name}.{inner}" if inner else name
    return None
