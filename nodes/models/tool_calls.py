"""Tool calls in a model's answer, read so that the log can store them and a tool can run.

A call is either kept exactly as the server sent it, or becomes an invalid call whose reason the
model sees. A tool may have any printable name, such as ``server.tool`` or ``höchster Wert``.
Providers accept 1 to 64 letters, digits, ``_`` and ``-``. The log contains only registered names.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.tool import ToolCall
from pydantic import ValidationError

from ...graphs.log.messages import storable
from .answers import OPAQUE_OF_CALLS, RAW as RAW, is_cut_off
from .storable_json import TOO_DEEP, TOO_LARGE, why_unstorable

_ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST = 64
_SIGNS = 8
"""Number of hex digits of the digest that makes a sent name unique."""

_MEANT_OTHERWISE = frozenset({"any", "auto", "none", "required"})
"""Names that mean a choice of tools to OpenAI or LangChain."""

Names = dict[str, str]
"""Registered names, each with the name that is sent for it."""


def wire_names(names: Iterable[str]) -> Names:
    """Map the names of a speaker's tools to names that providers accept.

    An accepted name is unchanged. The sent form of any other name depends only on that name. If two
    names have the same form, a digest makes them distinct, whatever their order.
    """
    return _added({}, names)


def add_called_names(names: Names, messages: Iterable[BaseMessage]) -> Names:
    """Return the names, together with those of earlier calls.

    The tools of earlier calls may not be offered now, or may not exist.
    """
    # Most messages of a long log contain no calls.
    callers = (
        message
        for message in messages
        if isinstance(message, ToolMessage)
        or (isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls))
    )
    return _added(names, [name for message in callers for name in _called(message)])


def rename_tools(messages: Iterable[BaseMessage], names: Names) -> list[BaseMessage]:
    """Replace the tool names in a prompt by the names that are sent."""
    if all(sent == name for name, sent in names.items()):
        return [*messages]
    return [
        _renamed(message, names)
        if any(names[name] != name for name in _called(message))
        else message
        for message in messages
    ]


def find_registered(name: str, names: Names) -> str:
    """Return the registered name of a tool that a model has called."""
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
    """Return the name in characters that providers accept, possibly too long."""
    if _is_accepted(name):
        return name
    # Accents are dropped, and so are letters without an ASCII form.
    bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", bare).strip("_") or "tool"
    return f"{plain}_tool" if plain in _MEANT_OTHERWISE else plain


def _told_apart(name: str, plain: str, signs: int) -> str:
    # A name may contain a lone surrogate, which UTF-8 cannot encode.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:signs]
    return f"{plain[: _LONGEST - signs - 1]}_{digest}"


def _called(message: BaseMessage) -> list[str]:
    """Return the names of the tools in a message."""
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


NO_NAME = "The call has no tool name."
NOT_JSON = "The arguments of {name} are not valid JSON: {why}."
CUT_OFF = "The call of {name} was cut off because the answer reached its maximum length."
NO_OBJECT = "The arguments of {name} must be a JSON object, not {what}."
UNFIT = "The arguments of {name} cannot be accepted: {why}."
UNREADABLE_CALL = "The call of {name} cannot be read."

_WORDS: Mapping[type, str] = {
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def raw_calls(found: object) -> list[dict[str, Any]]:
    """Return the calls, or the parts of calls, of a message in OpenAI's form."""
    taken = []
    for call in found if isinstance(found, list) else ():
        fields = call if isinstance(call, Mapping) else {}
        function = fields.get("function")
        inner = function if isinstance(function, Mapping) else {}
        raw = {"id": fields.get("id"), **{key: inner.get(key) for key in ("name", "arguments")}}
        raw |= {
            key: fields[key] for key in ("index", *OPAQUE_OF_CALLS) if fields.get(key) is not None
        }
        taken.append(raw)
    return taken


def read_call(name: object, arguments: object, call_id: object) -> ToolCall | InvalidToolCall:
    """Return a call, or an invalid call with the reason, from the values that the server sent."""
    called = storable(name) if isinstance(name, str) else ""
    key = storable(str(call_id)) if call_id else None
    if not called:
        return _broken(called, arguments, key, NO_NAME)
    read = arguments
    if isinstance(arguments, str):
        try:
            # Line breaks within strings are accepted, as in LangChain's partial reading.
            read = json.loads(arguments, strict=False) if arguments.strip() else {}
        except RecursionError:
            return _broken(called, arguments, key, _unfit(called, TOO_DEEP))
        except json.JSONDecodeError as error:
            why = f"{error.msg}, at character {error.pos + 1}"
            return _broken(called, arguments, key, NOT_JSON.format(name=called, why=why))
        except ValueError:
            # Python refuses numbers of more than some thousand digits.
            return _broken(called, arguments, key, _unfit(called, TOO_LARGE))
    if read is None:
        read = {}
    if not isinstance(read, dict):
        what = _WORDS.get(type(read), f"a {type(read).__name__}")
        return _broken(called, arguments, key, NO_OBJECT.format(name=called, what=what))
    fault = why_unstorable(read)
    if fault is not None:
        return _broken(called, arguments, key, _unfit(called, fault))
    return ToolCall(name=called, args=read, id=key, type="tool_call")


def read_calls(
    raw: Iterable[Mapping[str, Any]], *, cut_off: bool = False
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Read the calls of one answer, and return the valid calls and the invalid calls."""
    whole: list[dict[str, Any]] = []
    for part in raw:
        before = whole[-1] if whole else None
        goes_on = before is not None and not part["name"] and not part["id"]
        if goes_on and before is not None and isinstance(part["arguments"], str):
            before["arguments"] = (before["arguments"] or "") + part["arguments"]
        else:
            whole.append(dict(part))
    read = [read_call(call["name"], call["arguments"], call["id"]) for call in whole]
    if cut_off and read and (not whole[-1]["arguments"] or read[-1]["type"] == "invalid_tool_call"):
        # A call without any arguments may have lost all of them.
        read[-1] = _half(read[-1], whole[-1]["arguments"])
    return split_calls(read)


def split_calls(
    calls: Sequence[ToolCall | InvalidToolCall],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return the valid calls and the invalid calls."""
    good = [call for call in calls if call["type"] == "tool_call"]
    return good, [call for call in calls if call["type"] == "invalid_tool_call"]


def normalise_calls(answer: AIMessage, names: Names) -> AIMessage:
    """Return an answer with its calls in the form that the log stores."""
    raw = answer.additional_kwargs.get(RAW)
    if raw is None and not answer.tool_calls and not answer.invalid_tool_calls:
        return answer
    if raw is not None:
        named = [{**call, "name": _meant(call["name"], names)} for call in raw]
        good, broken = read_calls(named, cut_off=is_cut_off(answer))
    else:
        good, broken = split_calls(
            [
                read_call(_meant(call["name"], names), call["args"], call["id"])
                for call in answer.tool_calls
            ]
        )
        broken += [_still_broken(call, names) for call in answer.invalid_tool_calls]
    kept = {key: value for key, value in answer.additional_kwargs.items() if key != RAW}
    return answer.model_copy(
        update={"tool_calls": good, "invalid_tool_calls": broken, "additional_kwargs": kept}
    )


def without_mended_call(answer: AIMessage) -> AIMessage:
    """Return an answer without its last call if a client may have repaired that call.

    If an answer was cut off, clients that do not keep invalid calls repair its last call.
    """
    *good, last = [None, *answer.tool_calls]
    if last is None or answer.invalid_tool_calls or not is_cut_off(answer):
        return answer
    broken = [_half(last, last["args"])]
    return answer.model_copy(update={"tool_calls": good[1:], "invalid_tool_calls": broken})


def recover_answer(error: ValidationError) -> AIMessage | None:
    """Return an answer that LangChain refused because of its calls, or None.

    LangChain raises on arguments that are JSON but not an object, and drops the rest of the answer.
    """
    if error.title not in ("AIMessage", "AIMessageChunk"):
        return None
    faults = [fault for fault in error.errors() if fault["loc"][:1] == ("tool_calls",)]
    if len(faults) < error.error_count():
        return None
    broken = [read_call("the tool", fault["input"], None) for fault in faults]
    return AIMessage("", invalid_tool_calls=split_calls(broken)[1])


def _meant(name: object, names: Names) -> object:
    return find_registered(name, names) if isinstance(name, str) else name


def _still_broken(call: InvalidToolCall, names: Names) -> InvalidToolCall:
    """Return an invalid call with the reason why it is invalid."""
    name = _meant(call["name"], names)
    read = read_call(name, call["args"], call["id"])
    if read["type"] == "invalid_tool_call":
        return read
    error = storable(call["error"] or UNREADABLE_CALL.format(name=read["name"]))
    return _broken(str(read["name"]), call["args"], read["id"], error)


def _half(call: ToolCall | InvalidToolCall, arguments: object) -> InvalidToolCall:
    error = CUT_OFF.format(name=call["name"] or "a tool")
    return _broken(call["name"] or "", arguments, call["id"], error)


def _broken(name: str, arguments: object, call_id: str | None, error: str) -> InvalidToolCall:
    return InvalidToolCall(
        type="invalid_tool_call", name=name, args=_as_text(arguments), id=call_id, error=error
    )


def _as_text(arguments: object) -> str:
    """Return the arguments as the log stores them."""
    if isinstance(arguments, str):
        return storable(arguments)
    try:
        return json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):
        return f"({type(arguments).__name__})"


def _unfit(name: str, why: str) -> str:
    return UNFIT.format(name=name, why=why)
