"""The names of tools: as they are registered, as they are sent, and as models write them.

A tool may have any printable name, such as ``server.tool`` or ``höchster Wert``. Providers accept 1
to 64 letters, digits, ``_`` and ``-``. The log contains only registered names.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

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
    return _extend_names({}, names)


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
    names = _extend_names(names, [name for message in callers for name in _list_called(message)])
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


def _extend_names(known: Names, names: Iterable[str]) -> Names:
    new = [name for name in dict.fromkeys(names) if name not in known]
    if not new:
        return dict(known)
    mapped = dict(known)
    taken = set(known.values())
    wished = {name: _simplify(name) for name in new}
    for name in sorted(new, key=lambda name: (not _is_accepted(name), name)):
        wire = wished[name]
        if len(wire) > _LONGEST:
            wire = _add_digest(name, wire, _SIGNS)
        signs = _SIGNS
        while wire in taken:
            wire = _add_digest(name, wished[name], signs)
            signs += 1
        taken.add(wire)
        mapped[name] = wire
    return {**known, **{name: mapped[name] for name in new}}


def _is_accepted(name: str) -> bool:
    return _ACCEPTED.fullmatch(name) is not None and name not in _MEANT_OTHERWISE


def _simplify(name: str) -> str:
    """Return the name in characters that providers accept, possibly too long."""
    if _is_accepted(name):
        return name
    # Accents are dropped, and so are letters without an ASCII form.
    bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", bare).strip("_") or "tool"
    return f"{plain}_tool" if plain in _MEANT_OTHERWISE else plain


def _add_digest(name: str, plain: str, signs: int) -> str:
    # A name may contain a lone surrogate, which UTF-8 cannot encode.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:signs]
    return f"{plain[: _LONGEST - signs - 1]}_{digest}"


def _list_called(message: BaseMessage) -> list[str]:
    """Return the names of the tools in a message."""
    if isinstance(message, AIMessage):
        calls = (*message.tool_calls, *message.invalid_tool_calls)
        return [call["name"] or "" for call in calls]
    return [message.name] if isinstance(message, ToolMessage) and message.name else []


def _rename_tools(message: BaseMessage, names: Names) -> BaseMessage:
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
