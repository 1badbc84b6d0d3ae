"""Words that a speaker says by an argument of its calls of tools (Agere's ``to_user``).

The argument is offered with every tool, read while the call arrives, told at once, and taken out of
the call before anything else sees it. `graphs.log.heard_text` reads the words from the log.
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
from .listeners import Listener
from .tool_calls import RAW

_WHOLE = re.compile(
    r'(?:[^"\\\ud800-\udfff]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""What of a JSON string can be read as it stands: whole characters, surrogate pairs together."""

_BEGUN = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?"
)
"""A character of which more has to come."""

_SIGN = re.compile(r'[{}\[\]",:]')
_IN_STRING = re.compile(r'[^"\\]*')


class Argument:
    """Reads ``to_user`` out of a call's arguments while they arrive.

    Each character is looked at once, whatever stands before or after the argument; only what
    stands before it is read a second time, to know that it is JSON. Where it is not, or the text
    holds half a character, the call is a broken one, and no more of it is told.

    pydantic's reading of partial JSON is no way to do it: it refuses line breaks within strings,
    which our reading of calls takes, does not say whether a string has ended, and begins anew with
    each piece.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether no more can come."""
        self._is_silent = False
        self._came: list[str] = []
        """All that has come before the text."""
        self._where = self._between
        self._depth = 0
        self._key = ""
        """The latest key of the outermost object."""
        self._is_key = False
        """Whether the next string of that object is a key."""
        self._left = ""
        """The end of what came, of which more is needed."""

    def read(self, piece: str) -> str:
        """Take the next piece of the arguments' JSON."""
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
        """Outside of strings: look for the next sign that means something."""
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
        """Go into the string that begins here."""
        if self._depth != 1:
            self._where = self._in_another
        elif self._is_key:
            self._key, self._where = "", self._in_key
        elif self._key == TO_USER and self._is_value("".join(self._came).removesuffix(text)):
            self._where = self._in_text
        else:
            self._where = self._in_another

    def _is_value(self, before: str) -> bool:
        """Return whether a value can come after this; where it can't, the call is a broken one."""
        try:
            json.loads(f"{before}null}}", strict=False)
        except (ValueError, RecursionError):
            self._is_silent = True
        return not self._is_silent

    def _in_another(self, text: str, at: int) -> tuple[int, str]:
        """Within a string that is neither a key nor the text: look for its end alone."""
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
    """Return the index at which a string ends, or None if it does not end here."""
    while True:
        found = _IN_STRING.match(text, at)
        at = found.end() if found is not None else at
        if at >= len(text):
            return None
        if text[at] == '"':
            return at
        # What comes after a backslash ends nothing.
        at += 2


def _half(text: str) -> str:
    """Return the backslash at the end of a part of a string, if it escapes the next character."""
    return "\\" if (len(text) - len(text.rstrip("\\"))) % 2 else ""


def _unescaped(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        # An odd key is no key of ours; in the text there is none.
        return ""


ABOUT = "A message to the others, sent at once while the tool runs. Optional."
"""The description of the argument, for models."""


def add_to_user(tool: BaseTool) -> BaseTool:
    """Return a tool as it is offered to a speaker who may say something beside a call."""
    parameters = parameters_of(tool)
    said = {"type": "string", "description": ABOUT}
    properties = {TO_USER: said, **(parameters.get("properties") or {})}
    schema = {"type": "object", **parameters, "properties": properties}
    return tool.model_copy(update={"args_schema": schema})


@dataclass(eq=False)
class _Call:
    """A call that is being streamed."""

    id: str | None
    index: object
    argument: Argument = field(default_factory=Argument)
    waits: str = ""
    """What was read and is not told yet."""
    told: str = ""


class Speaking(Listener):
    """Listens to a model, and tells at once what is said beside its calls.

    Words that were told stay: of a call that turns out to be broken, or names the argument twice,
    they are what is said. Where an answer breaks off and is asked for again, they are told again.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        super().begin()
        self._content = ""
        self._told = ""
        self.late = ""
        """What came of the content when something was told already."""
        self.calls: list[_Call] = []

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Take a piece of the message."""
        before = self._told
        self._take(piece, told)
        if self._told is not before:
            # LangGraph hands it on in the loop's next turn, and it must stay in front.
            await asyncio.sleep(0)

    def rest(self, whole: str, content: str) -> None:
        """Tell what is not told yet of a message that is complete."""
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
        for part in _parts(message):
            call = self._call_of(part)
            if isinstance(part["arguments"], str):
                call.waits += call.argument.read(part["arguments"])
        for call in self.calls:
            if call.told or call.waits.strip():
                gap = GAP if not call.told and (self._told or self._content.strip()) else ""
                self._say(call, gap)
            if not call.argument.is_over:
                # The next one's words follow.
                break

    def _say(self, call: _Call, gap: str) -> None:
        if call.waits:
            self._tell(gap + call.waits)
            self._told += gap + call.waits
            call.told += call.waits
            call.waits = ""

    def _call_of(self, part: Mapping[str, Any]) -> _Call:
        """Return the call that a part belongs to, as LangChain and `read_calls` find it."""
        call_id = str(part["id"]) if part["id"] else None
        index = part.get("index")
        for call in self.calls:
            if (
                index is not None
                and call.index == index
                and not (call_id and call.id and call.id != call_id)
            ):
                call.id = call.id or call_id
                return call
        if self.calls and not part["name"] and not call_id:
            return self.calls[-1]
        self.calls.append(_Call(call_id, index))
        return self.calls[-1]


def _parts(message: AIMessageChunk) -> Sequence[Mapping[str, Any]]:
    """Return the parts of calls in a piece of a message, in the form of `raw_calls`."""
    raw: Sequence[Mapping[str, Any]] | None = message.additional_kwargs.get(RAW)
    if raw is not None:
        return raw
    return [{**part, "arguments": part["args"]} for part in message.tool_call_chunks]


def take_out_to_user(answer: AIMessage, speaking: Speaking | None = None) -> AIMessage:
    """Take ``to_user`` out of the calls of an answer."""
    late = speaking.late if speaking is not None else ""
    content = str(answer.text).removesuffix(late)
    texts = [_text_of(call) for call in answer.tool_calls]
    left = [*speaking.calls] if speaking is not None else []
    # Of a broken call what was told is all there is.
    said: dict[object, str | None] = {came: came.told for came in left}
    for place, call in enumerate(answer.tool_calls):
        text = texts[place] or ""
        alike = [came for came in left if came.id == call["id"]]
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
    """Return the words that an answer says by each of its calls."""
    texts = message.additional_kwargs.get(TO_USER) or ()
    return {str(call["id"]): text for call, text in zip(calls, texts, strict=False) if text}
