"""Tool calls in a model's answer, and the names of tools as models write them.

A call is read so that the log can store it and a tool can run: it is either kept exactly as the
server sent it, or becomes an invalid call whose reason the model sees.

A tool may have any printable name, such as ``server.tool`` or ``höchster Wert``. Providers accept 1
to 64 letters, digits, ``_`` and ``-``. The log contains only registered names.
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
from .answers import RAW, TOO_DEEP, TOO_LARGE, why_unstorable
from .call_pieces import arguments_as_text, decode_arguments, join_calls
from .stops import stop_of

_ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST = 64
_SIGNS = 8
"""Number of hex digits of the digest that makes a sent name unique."""

_MEANT_OTHERWISE = frozenset({"any", "auto", "none", "required"})
"""Names that mean a choice of tools to OpenAI or LangChain."""

Names = dict[str, str]
"""Registered names, each with the name that is sent for it."""


def wire_names(names: Iterable[str], known: Names | None = None) -> Names:
    """Map the names of a speaker's tools to names that providers accept.

    An accepted name is unchanged. The sent form of any other name depends only on that name. If two
    names have the same form, a digest makes them distinct, whatever their order.

    Args:
        names: The names.
        known: The map to extend.
    """
    mapped = dict(known or {})
    new = [name for name in dict.fromkeys(names) if name not in mapped]
    if not new:
        return mapped
    taken = set(mapped.values())
    for name in sorted(new, key=lambda name: (not _is_accepted(name), name)):
        plain = name
        if not _is_accepted(name):
            # Accents are dropped, and so are letters without an ASCII form.
            bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
            plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", bare).strip("_") or "tool"
            plain = f"{plain}_tool" if plain in _MEANT_OTHERWISE else plain
        wire = plain
        # A name may contain a lone surrogate, which UTF-8 cannot encode.
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        signs = _SIGNS
        while len(wire) > _LONGEST or wire in taken:
            wire = f"{plain[: _LONGEST - signs - 1]}_{digest[:signs]}"
            signs += 1
        taken.add(wire)
        mapped[name] = wire
    return {**(known or {}), **{name: mapped[name] for name in new}}


def rename_tools(messages: Sequence[BaseMessage], names: Names) -> list[BaseMessage]:
    """Replace the tool names in a prompt by the names that are sent.

    The tools of earlier calls may not be offered now, or may not exist.
    """
    # Most messages of a long log contain no calls.
    callers = [
        message
        for message in messages
        if isinstance(message, ToolMessage)
        or (isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls))
    ]
    if not callers:
        return [*messages]
    names = wire_names((name for one in callers for name in _list_called(one)), names)
    return [
        _rename_tools(message, names)
        if any(names[name] != name for name in _list_called(message))
        else message
        for message in messages
    ]


def find_registered(name: str, names: Names) -> str:
    """Return the registered name of a tool that a model has called.

    An exact name comes first. Otherwise the name is compared without decoration, and matches if
    exactly one tool fits:

    - Control tokens, and what follows them: ``read<|channel|>commentary``.
    - Arguments, quotes, numbers and other signs at the end or at the beginning: ``"read"``,
      ``read()``, ``read:0``.
    - A namespace, up to a sign other than ``_`` and ``-``, or up to ``__``: ``functions.read``,
      ``tools/read``, ``mcp__files__read``.
    - A word for tools before the name, or after it: ``functions_read``, ``read_tool``.
    - The case, and signs between words: ``Read File`` means ``read_file``.
    - Repetition, as clients join the pieces of a stream: ``readread``.

    Returns the name unchanged if no tool fits, or several do.
    """
    found = {wire: given for given, wire in names.items()}
    for written in (name, name.strip()):
        if written in found:
            return found[written]
        if written in names:
            return written
    for bare in _list_bare_forms(name):
        fits = {given for given, wire in names.items() if bare in (key_of(given), key_of(wire))}
        if fits:
            return fits.pop() if len(fits) == 1 else name
    # Of a name that is all decoration, nothing contradicts the only tool.
    is_empty = "<|" in name and not any(map(key_of, _TOKEN.split(_WITH_VALUE.sub("<|>", name))))
    return next(iter(names)) if is_empty and len(names) == 1 else name


_WORD_BEFORE = re.compile(r"\W*(?:functions?|tools?|default_api)_(?=[^\W_])", re.IGNORECASE)
_WORD_AFTER = re.compile(r"(?:_tool|(?<=[a-z])Tool)\W*\Z")
_WITH_VALUE = re.compile(r"<\|(?:channel|constrain)\|>\s*\w*", re.IGNORECASE)
_TOKEN = re.compile(r"<[|｜][^<>]*>|</?\w+>")  # noqa: RUF001
_AFTER_NAME = re.compile(r"[(\[{]|[:#]\d+\W*\Z")
_SEPARATOR = re.compile(r"[^\w-]+|__+|=")
_REPEATED = re.compile(r"(.+?)\1+")


def _drop_tokens(name: str) -> str:
    """Return the first part of a name that is not a control token."""
    if "<|" in name:
        # A whole header, as in "commentary to=functions.read".
        name = name.rpartition("to=")[2]
    parts = [*_TOKEN.split(_WITH_VALUE.sub("<|>", name)), *_TOKEN.split(name)]
    return next((part for part in parts if key_of(part)), "")


def _list_bare_forms(name: str) -> Iterable[str]:
    """Yield the forms of a name without decoration, for a comparison, longest first."""
    text = _drop_tokens(name)
    end = next(
        (cut.start() for cut in _AFTER_NAME.finditer(text) if key_of(text[: cut.start()])), None
    )
    text = text[:end]
    starts = [0, *(sign.end() for sign in _SEPARATOR.finditer(text))]
    bare = [text[start:] for start in starts]
    bare += [_WORD_AFTER.sub("", _WORD_BEFORE.sub("", one, count=1)) for one in bare]
    forms = [form for one in bare if (form := key_of(one))]
    yield from forms
    yield from (once[1] for form in forms if (once := _REPEATED.fullmatch(form)))


def key_of(name: str) -> str:
    """Return a name for a comparison without case and signs."""
    return "".join(filter(str.isalnum, name.casefold()))


def _is_accepted(name: str) -> bool:
    return _ACCEPTED.fullmatch(name) is not None and name not in _MEANT_OTHERWISE


def _list_called(message: BaseMessage) -> list[str]:
    """Return the names of the tools in a message."""
    if isinstance(message, AIMessage):
        calls = (*message.tool_calls, *message.invalid_tool_calls)
        return [call["name"] or "" for call in calls]
    return [message.name] if isinstance(message, ToolMessage) and message.name else []


def _rename_tools(message: BaseMessage, names: Names) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"name": names[message.name or ""]})
    renamed = {
        kind: [{**call, "name": names[call["name"] or ""]} for call in getattr(message, kind)]
        for kind in ("tool_calls", "invalid_tool_calls")
    }
    return message.model_copy(update=renamed)


NO_NAME = "The call has no tool name."
NOT_JSON = "The arguments of {name} are not valid JSON: {why}."
CUT_OFF = "The call of {name} did not run because the answer was cut off."
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


def read_call(
    name: object, arguments: object, call_id: object, *, cut_off: bool = False
) -> ToolCall | InvalidToolCall:
    """Return a call, or an invalid call with the reason, from the values that the server sent.

    If the answer was cut off, a call without arguments may have lost all of them.
    """
    called = storable(name) if isinstance(name, str) else ""
    key = storable(str(call_id)) if call_id else None

    def refuse(error: str, **words: str) -> InvalidToolCall:
        return make_invalid_call(called, arguments, key, error.format(name=called, **words))

    if not called:
        return refuse(NO_NAME)
    read = arguments
    if isinstance(arguments, str):
        try:
            read = decode_arguments(arguments)
        except RecursionError:
            return refuse(UNFIT, why=TOO_DEEP)
        except json.JSONDecodeError as error:
            why = f"{error.msg}, at character {error.pos + 1}"
            return refuse(CUT_OFF if cut_off else NOT_JSON, why=why)
        except ValueError:
            # Python refuses numbers of more than some thousand digits.
            return refuse(UNFIT, why=TOO_LARGE)
    if read is None and cut_off:
        return refuse(CUT_OFF)
    read = {} if read is None else read
    if not isinstance(read, dict):
        return refuse(NO_OBJECT, what=_WORDS.get(type(read), f"a {type(read).__name__}"))
    if fault := why_unstorable(read):
        return refuse(UNFIT, why=fault)
    return ToolCall(name=called, args=read, id=key, type="tool_call")


def read_calls(
    events: Sequence[Sequence[Mapping[str, Any]]],
    *,
    cut_off: bool = False,
    names: Names | None = None,
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Read the calls of an answer, and return valid and invalid calls.

    Args:
        events: The pieces of calls of each event, in the form of `answers.RAW`.
        cut_off: Whether the answer was cut off: it reached its maximum length, or it has no end. A
            call is then valid only if its arguments arrived, and are whole JSON.
        names: The names of the tools as they were sent. The names of calls are not changed if None.
    """
    if not any(events):
        return [], []
    read = []
    for call in join_calls(events):
        name = call["name"] if names is None else find_registered(call["name"], names)
        read.append(read_call(name, call["arguments"], call["id"], cut_off=cut_off))
    return split_calls(read)


def split_calls(
    calls: Sequence[ToolCall | InvalidToolCall],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return the valid calls and the invalid calls."""
    good = [call for call in calls if call["type"] == "tool_call"]
    return good, [call for call in calls if call["type"] == "invalid_tool_call"]


def normalise_calls(answer: AIMessage, names: Names, *, are_mended: bool = False) -> AIMessage:
    """Return an answer with its calls in the form that the log stores.

    Args:
        answer: The answer.
        names: The names of the tools as they were sent.
        are_mended: Whether the client does not keep invalid calls. If an answer was cut off, such a
            client may have repaired the last call, which is therefore invalid.
    """
    raw = answer.additional_kwargs.get(RAW)
    if raw is None and not answer.tool_calls and not answer.invalid_tool_calls:
        return answer
    is_cut = stop_of(answer) is not None
    if raw is not None:
        good, broken = read_calls(raw, cut_off=is_cut, names=names)
    else:
        read = [
            read_call(find_registered(call["name"], names), call["args"], call["id"])
            for call in answer.tool_calls
        ]
        for call in answer.invalid_tool_calls:
            name = find_registered(call["name"] or "", names)
            one = read_call(name, call["args"], call["id"], cut_off=is_cut)
            if one["type"] == "tool_call":
                error = storable(call["error"] or UNREADABLE_CALL.format(name=one["name"]))
                one = make_invalid_call(one["name"], call["args"], one["id"], error)
            read.append(one)
        good, broken = split_calls(read)
    if are_mended and is_cut and good and not broken:
        last = good.pop()
        error = CUT_OFF.format(name=last["name"])
        broken = [make_invalid_call(last["name"], last["args"], last["id"], error)]
    kept = {key: value for key, value in answer.additional_kwargs.items() if key != RAW}
    return answer.model_copy(
        update={"tool_calls": good, "invalid_tool_calls": broken, "additional_kwargs": kept}
    )


def recover_answer(error: Exception) -> AIMessage | None:
    """Return an answer that LangChain refused because of its calls, or None.

    LangChain raises on arguments that are JSON but not an object, and drops the rest of the answer.
    """
    if not isinstance(error, ValidationError) or not error.title.startswith("AIMessage"):
        return None
    faults = [fault for fault in error.errors() if fault["loc"][:1] == ("tool_calls",)]
    if len(faults) < error.error_count():
        return None
    broken = [read_call("the tool", fault["input"], None) for fault in faults]
    return AIMessage("", invalid_tool_calls=split_calls(broken)[1])


def make_invalid_call(
    name: str, arguments: object, call_id: str | None, error: str
) -> InvalidToolCall:
    """Return an invalid call with the reason why it is invalid."""
    return InvalidToolCall(
        type="invalid_tool_call",
        name=name,
        args=arguments_as_text(arguments),
        id=call_id,
        error=error,
    )
