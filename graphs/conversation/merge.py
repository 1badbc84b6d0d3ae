"""Changes merged into a spec, and the first field in which two specs differ."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ..common.errors import SpecError
from ..common.validation import suggest_near_or_all, validate
from ..ends.end_chat import end_chat_fields
from ..speakers.formats import TELLING
from ..speakers.speaker import Speaker
from .defaults import Default, has_fields, mark_unset, without_marks
from .sandbox import read_level

_BY_WORD = {"end_chat": end_chat_fields, "sandbox": read_level}
"""The parts of a conversation in which a plain string sets one field."""


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
        if isinstance(value, Mapping) and has_fields(before) and not _is_whole(field, value):
            merged[field] = merge_changes(before, value, at)
            continue
        if isinstance(before, Default) and before.by is not None:
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
    words = {name: read(changes[name]) for name, read in _BY_WORD.items() if name in changes}
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
    validate(Speaker, without_marks(found), ".".join((*path, "")))
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
        raise SpecError(f"{field}: must be a dict {what}, not {given!r}")
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
