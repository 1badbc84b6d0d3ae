"""Text that a speaker sends by an argument of a tool call (Agere's ``to_user``).

The argument is offered with every tool. It is read while the call arrives, shown at once, and
removed from the call. `graphs.log.heard_text` reads the text from the log.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool

from ...graphs.log.heard_text import GAP, together
from ...graphs.speakers.speaker import TO_USER
from ...graphs.text.thoughts import Told
from ...tools.registry.functions import parameters_of
from .answers import RAW
from .call_pieces import CallJoiner, StreamedCall
from .listeners import Listener

_WHOLE = re.compile(
    r'(?:[^"\\\ud800-\udfff]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The complete characters of a JSON string, with surrogate pairs kept together."""

_BEGUN = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?"
)
"""The beginning of a character whose rest has not arrived."""

_SIGN = re.compile(r'[{}\[\]",:]')
_IN_STRING = re.compile(r'[^"\\]*')


class Argument:
    """A parser that reads ``to_user`` out of a call's arguments while they arrive.

    It reads each character once, and then checks that the text before the argument is valid JSON.
    If that text is invalid, or if the argument contains half a surrogate pair, the call is invalid
    and no more of the argument is shown.

    pydantic's partial JSON parser is not suitable: it refuses line breaks within strings, which
    `read_call` accepts, it does not report whether a string has ended, and it starts again with
    each piece.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether the argument is complete, so that no more text can follow."""
        self._is_silent = False
        self._came: list[str] = []
        """The pieces read so far."""
        self._where = self._between
        self._depth = 0
        self._key = ""
        """The latest key of the outermost object."""
        self._is_key = False
        """Whether the next string of the outermost object is a key."""
        self._left = ""
        """The incomplete end of the last piece, such as half of an escape sequence."""

    def read(self, piece: str) -> str:
        """Read the next piece of the arguments' JSON, and return the new text."""
        if self.is_over or self._is_silent:
            return ""
        self._came.append(piece)
        text, self._left = self._left + piece, ""
        at, told = 0, ""
        while at < len(text) and not self.is_over and not self._is_silent:
            at, new = self._where(text, at)
            told += new
        return told

    def _between(self, text: str, at: int) -> tuple[int, str]:
        """Find the next structural character outside of strings."""
        found = _SIGN.search(text, at)
        if found is None:
            return len(text), ""
        sign = found.group()
        if sign in "{[":
            self._depth += 1
            self._is_key = self._depth == 1
            self._is_silent = self._is_key and sign == "["
        elif sign in "}]":
            self._depth -= 1
            self.is_over = self._depth == 0
        elif sign == '"':
            self._open(text[found.start() :])
        elif self._depth == 1:
            self._is_key = sign == ","
        return found.end(), ""

    def _open(self, text: str) -> None:
        """Enter the string that begins here."""
        if self._depth != 1:
            self._where = self._in_another
        elif self._is_key:
            self._key, self._where = "", self._in_key
        elif self._key == TO_USER and self._is_value("".join(self._came).removesuffix(text)):
            self._where = self._in_text
        else:
            self._where = self._in_another

    def _is_value(self, before: str) -> bool:
        """Return whether the text before this place is valid JSON. If not, the call is invalid."""
        try:
            json.loads(f"{before}null}}", strict=False)
        except (ValueError, RecursionError):
            self._is_silent = True
        return not self._is_silent

    def _in_another(self, text: str, at: int) -> tuple[int, str]:
        """Find the end of a string that is neither an outermost key nor ``to_user``."""
        ends = _end_of_string(text, at)
        if ends is None:
            self._left = _half(text)
            return len(text), ""
        self._where = self._between
        return ends + 1, ""

    def _in_key(self, text: str, at: int) -> tuple[int, str]:
        ends = _end_of_string(text, at)
        if ends is None:
            self._left = _half(text)
            self._key += text[at : len(text) - len(self._left)]
            return len(text), ""
        self._key = _unescaped(self._key + text[at:ends])
        self._where = self._between
        return ends + 1, ""

    def _in_text(self, text: str, at: int) -> tuple[int, str]:
        found = _WHOLE.match(text, at)
        assert found is not None  # noqa: S101  # it may be empty
        self._left = text[found.end() :]
        if self._left.startswith('"'):
            self.is_over = True
        elif self._left:
            self._is_silent = _BEGUN.fullmatch(self._left) is None
        return len(text), _unescaped(found.group())


def _end_of_string(text: str, at: int) -> int | None:
    """Return the index of a string's end, or None if the string continues."""
    while True:
        found = _IN_STRING.match(text, at)
        at = found.end() if found is not None else at
        if at >= len(text):
            return None
        if text[at] == '"':
            return at
        # An escaped character does not end the string.
        at += 2


def _half(text: str) -> str:
    """Return the backslash at the end of a partial string, if it escapes the next character."""
    return "\\" if (len(text) - len(text.rstrip("\\"))) % 2 else ""


def _unescaped(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        # An invalid key can't be ``to_user``, and the text has been checked before.
        return ""


ABOUT = "A message to the others, sent at once while the tool runs. Optional."
"""The description of the argument, for models."""


def add_to_user(tool: BaseTool) -> BaseTool:
    """Return a copy of a tool that also accepts the argument ``to_user``."""
    parameters = parameters_of(tool)
    said = {"type": "string", "description": ABOUT}
    properties = {TO_USER: said, **(parameters.get("properties") or {})}
    schema = {"type": "object", **parameters, "properties": properties}
    return tool.model_copy(update={"args_schema": schema})


@dataclass(eq=False)
class _Call:
    """The text in a call that is being streamed."""

    call: StreamedCall
    argument: Argument = field(default_factory=Argument)
    waits: str = ""
    """Text that was read and is not shown yet."""
    told: str = ""


class Speaking(Listener):
    """A listener that shows the text of tool calls while it arrives.

    Text that was shown is kept, even if the call turns out to be invalid or contains the argument
    twice. If an interrupted answer is requested again, its text is shown again.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.begin()

    def begin(self) -> None:
        """Reset for a new answer."""
        super().begin()
        self._content = ""
        self._told = ""
        self.late = ""
        """The part of the content that arrived after the first shown text."""
        self.calls: list[_Call] = []
        self._joiner = CallJoiner()

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Handle a piece of the message."""
        before = self._told
        self._take(piece, told)
        if self._told is not before:
            # LangGraph sends the shown text in the loop's next cycle, and it must come first.
            await asyncio.sleep(0)

    def rest(self, whole: str, content: str) -> None:
        """Show the part of a complete message that was not shown yet."""
        told = content.rstrip() + self._told if content.strip() else self._told
        if whole[len(told) :]:
            self._tell(whole[len(told) :])

    def _take(self, message: AIMessageChunk, told: Told) -> None:
        if told.anew:
            self._content = self.late = ""
        if self._told:
            self.late += told.speech
        else:
            self._content += told.speech
        for event in _parts(message):
            for streamed, arguments in self._joiner.add(event):
                call = self._text_of(streamed)
                call.waits += call.argument.read(arguments)
        for call in self.calls:
            if call.told or call.waits.strip():
                gap = GAP if not call.told and (self._told or self._content.strip()) else ""
                self._say(call, gap)
            if not call.argument.is_over:
                # The text of the next call must come after the whole text of this call.
                break

    def _say(self, call: _Call, gap: str) -> None:
        if call.waits:
            self._tell(gap + call.waits)
            self._told += gap + call.waits
            call.told += call.waits
            call.waits = ""

    def _text_of(self, streamed: StreamedCall) -> _Call:
        """Return the text in a call. It is empty if the call is new."""
        for call in self.calls:
            if call.call is streamed:
                return call
        self.calls.append(_Call(streamed))
        return self.calls[-1]


def _parts(message: AIMessageChunk) -> Sequence[Sequence[Mapping[str, Any]]]:
    """Return the pieces of calls in a piece of a message, in the form of `raw_calls`, by events."""
    raw: Sequence[Sequence[Mapping[str, Any]]] | None = message.additional_kwargs.get(RAW)
    if raw is not None:
        return raw
    return [[{**part, "arguments": part["args"]} for part in message.tool_call_chunks]]


def take_out_to_user(answer: AIMessage, speaking: Speaking | None = None) -> AIMessage:
    """Move ``to_user`` from the calls of an answer to its text."""
    late = speaking.late if speaking is not None else ""
    content = str(answer.text).removesuffix(late)
    texts = [_text_of(call) for call in answer.tool_calls]
    left = [*speaking.calls] if speaking is not None else []
    # Of an invalid call, only the shown text is kept.
    said: dict[object, str | None] = {came: came.told for came in left}
    for place, call in enumerate(answer.tool_calls):
        text = texts[place] or ""
        alike = [came for came in left if came.call.id == call["id"]]
        came = min(alike, key=lambda one: not text.startswith(one.told), default=None)
        if came is not None:
            left.remove(came)
            texts[place] = text if text.startswith(came.told) else came.told
        said[came or place] = texts[place]
    spoken = [text for text in said.values() if text and text.strip()]
    calls = [_without(call) for call in answer.tool_calls]
    if not spoken:
        return answer.model_copy(update={"tool_calls": calls})
    whole = together(content, spoken, late)
    if speaking is not None:
        speaking.rest(whole, content)
    extra = {**answer.additional_kwargs, TO_USER: texts}
    return answer.model_copy(
        update={"content": whole, "tool_calls": calls, "additional_kwargs": extra}
    )


def _text_of(call: ToolCall) -> str | None:
    text = call["args"].get(TO_USER)
    return text if isinstance(text, str) and text.strip() else None


def _without(call: ToolCall) -> ToolCall:
    args = {name: value for name, value in call["args"].items() if name != TO_USER}
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")


def texts_by_id(message: AIMessage, calls: Iterable[ToolCall]) -> dict[str, str]:
    """Return the texts that an answer sends by ``to_user``, by the ids of the calls."""
    texts = message.additional_kwargs.get(TO_USER) or ()
    return {str(call["id"]): text for call, text in zip(calls, texts, strict=False) if text}
