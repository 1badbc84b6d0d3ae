"""Reading stored specs. Sessions store theirs, so each change of its shape comes with a step."""

from collections.abc import Mapping
from typing import Any, Final

from ..common.validation import check_depth, validated
from ..common.versions import Migration, Versions, upgraded
from .conversation import Conversation


def _alone(data: dict[str, Any]) -> dict[str, Any]:
    """Before version 7 a done token counted only alone on a line."""
    end_chat = data.get("end_chat")
    if not isinstance(end_chat, Mapping) or "when" not in end_chat:
        return data
    return data | {"end_chat": {**end_chat, "when": _tokens_alone(end_chat["when"])}}


def _tokens_alone(when: object) -> object:
    """Ends as the spec has them: a list means any of them, and what is no end is told later."""
    if isinstance(when, list | tuple):
        return [*map(_tokens_alone, when)]
    if not isinstance(when, Mapping):
        return when
    if when.get("kind") == "done_token":
        return {"match": "alone", **when}
    return {**when, "of": _tokens_alone(when["of"])} if "of" in when else when


def _as_before(data: dict[str, Any]) -> dict[str, Any]:
    """Before version 8 there was none of what is switched off here."""
    judge = data.get("judge")
    if isinstance(judge, Mapping) and (judge.get("kind") == "separate" or "criteria" in judge):
        data = data | {"judge": {"final_verdict": False, **judge}}
    speakers = data.get("speakers")
    if isinstance(speakers, list | tuple):
        data = data | {"speakers": [*map(_input_optional, speakers)]}
    data = _with(data, ("end_chat", "announce_last_words"), False)
    for guard in ("standstill", "echo"):
        data = _with(data, ("end_chat", "guards", guard), 0)
    return data


def _ends_and_rounds_before(data: dict[str, Any]) -> dict[str, Any]:
    """Add the values that version 9 has changed.

    Before it a done token or a separate judge ended a conversation at any message, three equal
    calls in a row ended it, and a turn had five rounds of tools.
    """
    data = _with(data, ("end_chat", "allow_unanswered_end"), True)
    data = _with(data, ("end_chat", "guards", "same_tool_calls"), 3)
    return _with(data, ("max_tool_rounds",), 5)


def _input_optional(speaker: object) -> object:
    """A role-play's instructor as it is made now, so that it still resumes what it has begun."""
    if not isinstance(speaker, Mapping) or not isinstance(speaker.get("format"), Mapping):
        return speaker
    form: dict[str, Any] = {"optional": ["Input:"], **speaker["format"]}
    is_one = form.get("lines") in (["Instruction:", "Input:"], ("Instruction:", "Input:"))
    return {**speaker, "format": form} if is_one else speaker


def _with(data: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Set a field that is not set; what is no mapping is told of later."""
    name, *inner = path
    if not inner:
        return {name: value, **data}
    found = data.get(name, {})
    set_ = _with(found, tuple(inner), value) if isinstance(found, Mapping) else found
    return {**data, name: set_}


SPEC_VERSIONS: Final = Versions[Migration](
    oldest=6, steps=(_alone, _as_before, _ends_and_rounds_before)
)
"""The versions of a spec; the newest is `SPEC_VERSION`."""


def migrated(data: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Bring a spec to the version of this release."""
    return upgraded(data, SPEC_VERSIONS, where)


def restored(data: dict[str, Any], where: str = "") -> Conversation:
    """Make a conversation out of a stored spec, of this or an older version."""
    check_depth(data, where)
    return validated(Conversation, migrated(data, where), where)
