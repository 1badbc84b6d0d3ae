"""Specs of older releases, brought to the shape of this one.

Sessions store their spec, so every change of its shape comes with a step here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..common.errors import SpecError
from ..common.validation import check_depth, validated
from .conversation import Conversation
from .fields import SPEC_VERSION


class NewerError(SpecError):
    """A newer release wrote it."""


def _ends_of_their_own(data: dict[str, Any]) -> dict[str, Any]:
    """From 1 to 2: the done token is one end of many, the cap on role flips one guard of many."""
    end_chat = data.get("end_chat")
    if not isinstance(end_chat, dict):
        return data
    moved = {key: value for key, value in end_chat.items() if key not in _MOVED}
    if isinstance(end_chat.get("done_token"), dict):
        moved["when"] = {"kind": "done_token"} | end_chat["done_token"]
    if "max_role_flips" in end_chat:
        moved["guards"] = {"role_flips": end_chat["max_role_flips"]}
    return data | {"end_chat": moved}


_MOVED = ("done_token", "max_role_flips")


def _formats_of_many_kinds(data: dict[str, Any]) -> dict[str, Any]:
    """From 2 to 3: marks are one format of many."""
    return _each_speaker(data, _with_kind_of_format)


def _each_speaker(data: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Change what is said of each speaker; what is no list of them is told of later."""
    speakers = data.get("speakers")
    if not isinstance(speakers, list | tuple):
        return data
    return data | {"speakers": [change(speaker) for speaker in speakers]}


def _with_kind_of_format(speaker: Any) -> Any:  # noqa: ANN401
    found = speaker.get("format") if isinstance(speaker, dict) else None
    return speaker | {"format": {"kind": "lines"} | found} if isinstance(found, dict) else speaker


def _tools_named_once(data: dict[str, Any]) -> dict[str, Any]:
    """From 3 to 4: no tool may stand among a speaker's twice."""
    return _each_speaker(data, _with_each_tool_once)


def _with_each_tool_once(speaker: Any) -> Any:  # noqa: ANN401
    found = speaker.get("tools") if isinstance(speaker, dict) else None
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        return speaker
    return speaker | {"tools": list(dict.fromkeys(found))}


def _nothing(data: dict[str, Any]) -> dict[str, Any]:
    """From 4 to 5: what is new, such as people, was not there."""
    return data


Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes data of the next version out of data of one."""

MIGRATIONS: dict[int, Migration] = {
    1: _ends_of_their_own,
    2: _formats_of_many_kinds,
    3: _tools_named_once,
    4: _nothing,
}
"""For each older version the function that makes a spec of the next one out of it."""


def migrated(data: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Bring a spec to the version of this release."""
    return upgraded(data, SPEC_VERSION, MIGRATIONS, where)


def upgraded(
    data: dict[str, Any], newest: int, steps: Mapping[int, Migration], where: str
) -> dict[str, Any]:
    """Bring versioned data to the newest version."""
    version = data.get("version", newest)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SpecError(f"{where}version: must be a whole number from 1 on, not {version!r}")
    if version > newest:
        raise NewerError(
            f"{where}version: {version} is newer than this release understands "
            f"({newest}); upgrade duologue"
        )
    for step in range(version, newest):
        data = steps[step](data) | {"version": step + 1}
    return data


def restored(data: dict[str, Any], where: str = "") -> Conversation:
    """Make a conversation out of a stored spec, of this or an older version."""
    check_depth(data, where)
    return validated(Conversation, migrated(data, where), where)
