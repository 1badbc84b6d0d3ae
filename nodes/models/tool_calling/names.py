"""The names of tools as providers take them.

A tool may be called anything that can be printed, ``server.tool`` or ``höchster Wert``; providers
take 1 to 64 letters, digits, ``_`` and ``-``. The log knows registered names only.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

_ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST = 64
_SIGNS = 8
"""How much of a name's digest tells it from another."""

_MEANT_OTHERWISE = frozenset({"any", "auto", "none", "required"})
"""What a choice of tools means by itself, in OpenAI's terms or LangChain's."""

Names = dict[str, str]
"""Registered names, each with the name that is sent for it."""


def wire_names(names: Iterable[str]) -> Names:
    """Map the names of a speaker's tools to names that providers accept.

    A name that is accepted stays as it is. Another one depends on nothing but itself, unless two
    would come out the same: then a digest tells one from the other, whatever their order.
    """
    return _added({}, names)


def with_called(names: Names, messages: Iterable[BaseMessage]) -> Names:
    """Add the names of earlier calls, for tools that are not offered or do not exist."""
    # Of a long log most are neither.
    callers = (
        message
        for message in messages
        if isinstance(message, ToolMessage)
        or (isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls))
    )
    return _added(names, [name for message in callers for name in _called(message)])


def renamed(messages: Iterable[BaseMessage], names: Names) -> list[BaseMessage]:
    """Call the tools in a prompt by the names that are sent."""
    if all(sent == name for name, sent in names.items()):
        return [*messages]
    return [
        _renamed(message, names)
        if any(names[name] != name for name in _called(message))
        else message
        for message in messages
    ]


def registered(name: str, names: Names) -> str:
    """Give the registered name of a tool that a model has called."""
    found = {wire: given for given, wire in names.items()}
    for written in (name, name.strip()):
        if written in found:
            return found[written]
        if written in names:
            return written
    return name


def _added(known: Names, names: Iterable[str]) -> Names:
    new = [name for name in dict.fromkeys(names) if name not in known]
    if not new:
        return dict(known)
    mapped = dict(known)
    taken = set(known.values())
    wished = {name: _plain(name) for name in new}
    for name in sorted(new, key=lambda name: (not _is_accepted(name), name)):
        wire = wished[name]
        if len(wire) > _LONGEST:
            wire = _told_apart(name, wire, _SIGNS)
        signs = _SIGNS
        while wire in taken:
            wire = _told_apart(name, wished[name], signs)
            signs += 1
        taken.add(wire)
        mapped[name] = wire
    return {**known, **{name: mapped[name] for name in new}}


def _is_accepted(name: str) -> bool:
    return _ACCEPTED.fullmatch(name) is not None and name not in _MEANT_OTHERWISE


def _plain(name: str) -> str:
    """The name in characters that providers accept, possibly too long."""
    if _is_accepted(name):
        return name
    # Letters lose their accents; what has no plain form is left out.
    bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", bare).strip("_") or "tool"
    return f"{plain}_tool" if plain in _MEANT_OTHERWISE else plain


def _told_apart(name: str, plain: str, signs: int) -> str:
    # A lone surrogate has no encoding, and a call may be written with one.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:signs]
    return f"{plain[: _LONGEST - signs - 1]}_{digest}"


def _called(message: BaseMessage) -> list[str]:
    """The names of the tools in a message."""
    if isinstance(message, AIMessage):
        calls = (*message.tool_calls, *message.invalid_tool_calls)
        return [call["name"] or "" for call in calls]
    return [message.name] if isinstance(message, ToolMessage) and message.name else []


def _renamed(message: BaseMessage, names: Names) -> BaseMessage:
    if isinstance(message, AIMessage):
        return message.model_copy(
            update={
                "tool_calls": [
                    {**call, "name": names[call["name"]]} for call in message.tool_calls
                ],
                "invalid_tool_calls": [
                    {**call, "name": names[call["name"] or ""]}
                    for call in message.invalid_tool_calls
                ],
            }
        )
    return message.model_copy(update={"name": names[message.name or ""]})
