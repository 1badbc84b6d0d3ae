"""In which field two conversations differ first. Pure functions."""

from .conversation import Conversation


def first_difference(known: Conversation, given: Conversation) -> str:
    """Name the first field in which two conversations differ."""
    return _difference(known.model_dump(mode="json"), given.model_dump(mode="json"))


def _difference(one: object, other: object) -> str:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return ""
    for key in [*one, *(key for key in other if key not in one)]:
        if one.get(key) != other.get(key):
            inner = _difference(one.get(key), other.get(key))
            return f"{key}.{inner}" if inner else str(key)
    return ""
