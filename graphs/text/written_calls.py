"""Tool calls that a model writes into its text. Pure functions.

If a server does not read the calls of its model, they arrive as text in the form of the model's
template: JSON, tags, or Python, between marks. The forms are those that vLLM's tool parsers read.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from .structures import CodeFinder


class WrittenCall(NamedTuple):
    """A tool call in a text."""

    name: str
    """The tool's name, as the model wrote it."""
    arguments: object
    """The arguments: an object, a text that contains JSON, or None."""
    is_text: bool = False
    """Whether all values of the arguments are texts, as in tags."""


class WrittenCalls(NamedTuple):
    """The calls in a text that contains nothing else."""

    calls: tuple[WrittenCall, ...]
    is_marked: bool
    """Whether marks of a template surround them, so that they are no data."""


# A prefix may name the model, as in "<minimax:tool_call>".
_TAG: Final = r"(?:[\w.-]+:)?(?:tool_?calls?|function_?calls?|functions?|invoke|tools?)"
_OPENING: Final = re.compile(
    r"<[|｜][^<>\n]{0,40}(?:tool|python|action|call)[^<>\n]{0,40}>"  # noqa: RUF001  # DeepSeek's
    rf"|<{_TAG}(?![\w-])[^<>\n]*>|\[TOOL_CALLS?\]|\bfunctools(?=\s*\[)",
    re.IGNORECASE,
)
"""Marks that begin calls, in the templates of models."""

_MARK: Final = re.compile(
    rf"<[|｜][^<>\n]{{1,60}}>|</{_TAG}\s*>|\[/?(?:TOOL_CALLS?|ARGS)\]|\[CALL_ID\]\s*\w+",  # noqa: RUF001
    re.IGNORECASE,
)
"""Further marks around calls and their parts."""

_NAMED: Final = re.compile(
    rf"<{_TAG}(?:=|\s+name\s*=)\s*[\"']?(?P<name>[^\"'<>\s]+)[\"']?\s*>", re.IGNORECASE
)
"""A tag that contains the tool's name, such as ``<function=look>`` or ``<invoke name="look">``."""

_VALUE: Final = re.compile(
    r"<(?P<tag>param(?:eter)?)(?:=|\s+name\s*=)\s*[\"']?(?P<key>[^\"'<>\s]+)[\"']?[^<>]*>"
    r"(?P<value>.*?)(?:</(?P=tag)>|(?=<param|</function|</invoke)|\Z)"
    r"|<arg_key>(?P<key2>.*?)</arg_key>\s*<arg_value>(?P<value2>.*?)(?:</arg_value>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_BETWEEN: Final = re.compile(r"\s+|`{3,}(?:json|xml|text|tool_\w+)?(?!\w)|[\[\],;]")
_WORD: Final = re.compile(r"[\w.:/-]+")
_CALLED: Final = re.compile(r"[\w.]+\(")

_NAMES: Final = ("name", "tool_name", "function_name", "tool", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "params", "input", "tool_input")
_FURTHER: Final = frozenset({"id", "type", "index", "call_id", "tool_call_id"})
_LISTS: Final = ("tool_calls", "tool_call", "function_call")
_KINDS: Final = ("function", "tool", "tool_call")
"""Words before a tool's name."""

_DECODER: Final = json.JSONDecoder(strict=False)
_MOST_TRIES: Final = 50
_LONGEST_MARK: Final = 30
_NEAR: Final = 200
"""Number of characters after a mark in which a tool's name is searched."""

_CLOSED: Final = ("}", "]", ")", "```")
_CLOSING: Final = re.compile(rf"</{_TAG}\s*>|<[|｜][^<>\n]*end[^<>\n]*>", re.IGNORECASE)  # noqa: RUF001
_BEGUN: Final = re.compile(
    rf"(?:{_OPENING.pattern})\s*(?:[{{\[<]|[\w.:/-]+(?:\(|\s*[{{\[<]))", re.IGNORECASE
)
"""A mark and the beginning of a call."""


class _NoCallError(ValueError):
    """A text that contains more than calls."""


class _Reader:
    """A reader of a text that may contain calls and nothing else."""

    def __init__(self, text: str) -> None:
        # DeepSeek's namespace of tags.
        self._text = text.replace("｜DSML｜", "")  # noqa: RUF001
        self.calls: list[WrittenCall] = []
        self.is_marked = False
        self._name = ""
        self._values: dict[str, Any] = {}
        self._is_open = False
        """Whether a mark has begun a call whose arguments have not arrived."""

    def read(self) -> None:
        """Read the whole text.

        Raises:
            _NoCallError: The text contains more than calls.
        """
        at = 0
        while at < len(self._text):
            at = self._read_next(at)
        self._finish()

    def _read_next(self, at: int) -> int:
        text = self._text
        if text[at] in "{[" and (end := self._read_json(at)):
            return end
        if tag := _NAMED.match(text, at):
            self._finish()
            self._name, self.is_marked, self._is_open = tag["name"], True, True
            return tag.end()
        if opening := _OPENING.match(text, at):
            self.is_marked = self._is_open = True
            return opening.end()
        if mark := _MARK.match(text, at) or _BETWEEN.match(text, at):
            return mark.end()
        if value := _VALUE.match(text, at):
            key, found = value["key"] or value["key2"], value["value"] or value["value2"] or ""
            self._values[key.strip()] = found.removeprefix("\n").removesuffix("\n")
            return value.end()
        if end := self._read_python(at):
            return end
        if word := _WORD.match(text, at):
            if self._name not in ("", *_KINDS):
                raise _NoCallError
            self._name = word[0]
            return word.end()
        raise _NoCallError

    def _finish(self) -> None:
        """Complete the call whose name was read."""
        name, values = self._name, self._values
        self._name, self._values = "", {}
        if name and (values or self._is_open):
            self._is_open = False
            self.calls.append(WrittenCall(name, values, is_text=True))
        elif name or values:
            raise _NoCallError

    def _read_json(self, at: int) -> int | None:
        try:
            value, end = _DECODER.raw_decode(self._text, at)
        except (ValueError, RecursionError):
            return None
        if self._name and isinstance(value, dict) and not self._values:
            self.calls.append(WrittenCall(self._name, value))
            self._name, self._is_open = "", False
        else:
            self._finish()
            self.calls += _calls_in(value, is_marked=self.is_marked)
        return end

    def _read_python(self, at: int) -> int | None:
        """Read a call in Python with literal keyword arguments, as Llama 4 writes it."""
        if self._name or not _CALLED.match(self._text, at):
            return None
        ends = (sign.end() for sign in re.finditer(r"\)", self._text[at:]))
        for _, end in zip(range(_MOST_TRIES), ends, strict=False):
            try:
                node = ast.parse(self._text[at : at + end], mode="eval").body
                if not isinstance(node, ast.Call) or node.args:
                    return None
                values = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            self.calls.append(WrittenCall(ast.unparse(node.func), values))
            return at + end
        return None


def _calls_in(value: object, *, is_marked: bool) -> Iterator[WrittenCall]:
    """Yield the calls in a JSON value."""
    if isinstance(value, list) and value:
        for one in value:
            yield from _calls_in(one, is_marked=is_marked)
        return
    if not isinstance(value, dict):
        raise _NoCallError
    inner = next((value[key] for key in (*_LISTS, "function") if key in value), None)
    if isinstance(inner, dict | list) and value.keys() <= {*_LISTS, "function", *_FURTHER}:
        yield from _calls_in(inner, is_marked=is_marked)
        return
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    key = next((key for key in _ARGUMENTS if key in value), None)
    # Another field, such as a description, means that the object is data.
    is_call = value.keys() <= {*_NAMES, *_ARGUMENTS, *_FURTHER}
    arguments = value[key] if key else None
    has_arguments = isinstance(arguments, dict | str) or (is_marked and arguments is None)
    if name is None or not is_call or not has_arguments:
        raise _NoCallError
    yield WrittenCall(name, arguments)


def read_written_calls(text: str) -> WrittenCalls | None:
    """Return the calls in a text that contains only calls, in a code block or not; or None."""
    reader = _Reader(text.strip())
    try:
        reader.read()
    except _NoCallError:
        return None
    return WrittenCalls(tuple(reader.calls), reader.is_marked) if reader.calls else None


def may_begin_call(text: str) -> bool:
    """Return whether a text that has not ended may contain only calls."""
    bare = re.sub(r"\A\s*(?:`{1,3}\w*\s*)?", "", text)
    is_open = re.match(r"\{\s*\"|\[\s*\{", bare) is not None or _OPENING.match(bare) is not None
    return is_open or (len(bare) < _LONGEST_MARK and bare[:1] in ("", "<", "[", "{"))


def ends_with_call(text: str, is_tool: Callable[[str], bool], *, plain: bool) -> bool:
    """Return whether a text ends with a call of a tool, outside of a code example.

    A call that can't be read counts if a mark begins it and the name of a tool is in it.

    Args:
        text: The text.
        is_tool: Returns whether a name is the name of a tool.
        plain: Whether JSON without marks counts, too.
    """
    text, code = text.rstrip(), CodeFinder()
    for at in _begins_of_calls(text, plain=plain):
        if code.contains(text, at, 0, is_over=True):
            continue
        rest = text[at:]
        found = read_written_calls(rest)
        if found is not None and any(is_tool(call.name) for call in found.calls):
            return True
        begun = _BEGUN.match(rest) if found is None else None
        if begun and _is_closed(rest) and any(map(is_tool, _WORD.findall(rest[:_NEAR]))):
            return True
    return False


def _is_closed(text: str) -> bool:
    """Return whether no prose follows a call that can't be read."""
    ends = [mark.end() for mark in _CLOSING.finditer(text)]
    return ends[-1] == len(text) if ends else text.endswith(_CLOSED)


def _begins_of_calls(text: str, *, plain: bool) -> Iterator[int]:
    """Yield the places of a text at which a call may begin, in order, and its last JSON."""
    yield from [mark.start() for mark in _OPENING.finditer(text)][-_MOST_TRIES:]
    at = text.find("{") if plain else -1
    for _ in range(_MOST_TRIES):
        if at < 0:
            return
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        if end == len(text):
            yield at
        at = text.find("{", end)
