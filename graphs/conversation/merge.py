"""Changes merged into a spec, and the first field in which two specs differ."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ..common.errors import SpecError
from ..common.validation import near_or_all, validated
from ..ends.end_chat import end_chat_fields
from ..speakers.formats import TELLING
from ..speakers.speaker import Speaker
from .defaults import Own, has_fields, marked, plain
from .sandbox import by_level

_BY_WORD = {"end_chat": end_chat_fields, "sandbox": by_level}
"""The parts of a conversation of which a bare word changes one field."""


def laid_over(
    base: object, changes: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Put changes into data; a dict changes only the fields it names, save one of another kind.

    Raises:
        SpecError: A short form's field has set the same; names both.
    """
    merged = marked(base)
    for field, value in changes.items():
        before, at = merged.get(field), (*path, field)
        if isinstance(value, Mapping) and has_fields(before) and not _is_whole(field, value):
            merged[field] = laid_over(before, value, at)
            continue
        if isinstance(before, Own) and before.by is not None:
            raise given_twice(before.by, ".".join(at))
        merged[field] = value
    return merged


def given_twice(one: str, other: str) -> SpecError:
    """Make the error for two fields that set the same."""
    return SpecError(f"{one} and {other} set the same: give only one of them")


def _is_whole(field: str, value: Mapping[str, Any]) -> bool:
    """Whether a dict stands for a kind by itself, whatever was there."""
    return "kind" in value or (field == "format" and not TELLING.keys().isdisjoint(value))


def by_words(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parts of a conversation that are given as bare words."""
    words = {name: read(changes[name]) for name, read in _BY_WORD.items() if name in changes}
    return {**changes, **words}


def speaker_laid_over(
    base: object, changes: Mapping[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """Change a speaker's fields.

    Raises:
        SpecError: A field is wrong; the path in front names the speaker, and not its number.
    """
    found = laid_over(base, changes, path)
    if "system_prompt" in changes and "small_model_prompt" not in changes:
        # The few words for a tiny model say the old prompt's part.
        found.pop("small_model_prompt", None)
    validated(Speaker, plain(found), ".".join((*path, "")))
    return found


def speakers_laid_over(speakers: tuple[Speaker, ...], changes: object) -> tuple[object, ...]:
    """Change the speakers that a dict names."""
    found: dict[str, object] = {speaker.name: speaker for speaker in speakers}
    for name, given in fields_in(changes, "speakers", "from names to what changes").items():
        if name not in found:
            raise SpecError(f"speakers: nobody is called {name!r}{near_or_all(name, [*found])}")
        path = ("speakers", name)
        found[name] = speaker_laid_over(
            found[name], fields_in(given, ".".join(path), "of its fields"), path
        )
    return tuple(found.values())


def fields_in(given: object, field: str, what: str) -> Mapping[str, Any]:
    """See that a change is a dict."""
    if not isinstance(given, Mapping):
        raise SpecError(f"{field}: must be a dict {what}, not {given!r}")
    return given


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
