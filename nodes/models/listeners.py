"""LangChain callbacks that listen to a model's answer while it is streamed.

They report its thought, its text, and the text that a speaker sends by an argument of a tool call
(Agere's ``to_user``). The argument is offered with every tool. It is read while the call arrives,
shown at once, and removed from the call. `graphs.log.heard_text` reads the text from the log.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import ToolCall
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult
from langchain_core.tools import BaseTool
from pydantic_core import from_json

from ...graphs.log.heard_text import GAP, HeardText, join_texts
from ...graphs.log.messages import storable
from ...graphs.speakers.speaker import TO_USER
from ...graphs.text.thoughts import ThoughtReader, Told
from ...graphs.text.written_calls import may_begin_call
from ...tools.registry.functions import parameters_of
from .answers import RAW, read_outer_thought
from .call_pieces import CallJoiner, StreamedCall


class Listener(AsyncCallbackHandler):
    """A callback that listens to a streamed answer, and separates its speech from its thought.

    If such a listener is present, LangChain streams the answer and assembles the whole message
    itself.
    """

    run_inline = True
    raise_error = True

    is_unopened = False
    """Whether the thought may end with a closing tag that has no opening tag."""

    def begin(self) -> None:
        """Reset for a new answer, or for the next attempt at an interrupted answer."""
        self.reader = ThoughtReader(is_unopened=self.is_unopened)
        self._streams = False

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Handle a piece of the message, and the speech that it adds."""

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Reset for a new answer."""
        self.begin()

    async def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        **kwargs: Any,  # as in the base class
    ) -> None:
        """Handle a piece of the message."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._streams = True
            told = self.reader.take(storable(str(chunk.message.text)))
            await self.take(chunk.message, told, is_over=False)

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Handle the rest of the answer, or the whole answer if it was not streamed."""
        whole, text = AIMessageChunk(content=""), ""
        found = next((one for each in response.generations for one in each), None)
        if not self._streams and isinstance(found, ChatGeneration):
            text = storable(str(found.message.text))
            content, extra = found.message.content, found.message.additional_kwargs
            whole = AIMessageChunk(content=content, additional_kwargs=extra)
        await self.take(whole, self.reader.take(text, is_over=True), is_over=True)

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass the stream on; having this method makes LangChain stream."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """Pass the stream on, for sync calls."""
        return output


class OrderedListeners(Listener):
    """Listeners that are called one after another.

    LangChain merges callbacks as sets, so that separate ones would be called in a random order.

    Args:
        listeners: The listeners, in their order.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Reset for a new answer."""
        for listener in self._listeners:
            await listener.on_chat_model_start(*args, **kwargs)

    async def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        """Handle a piece of the message."""
        for listener in self._listeners:
            await listener.on_llm_new_token(*args, **kwargs)

    async def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        """Handle the rest of the answer, or the whole answer if it was not streamed."""
        for listener in self._listeners:
            await listener.on_llm_end(*args, **kwargs)


class Tokens(Listener):
    """A listener that reports, piece by piece, the text of an answer that other speakers hear.

    The thought is reported first, in one piece.

    Args:
        tell: Called with the kind of the piece (``token`` or ``thought``), its text, and an id of
            the answer, which differs between attempts.
        heard: Returns a new reader that extracts the text that other speakers hear.
        is_unopened: Whether the thought may end with a closing tag that has no opening tag.
        is_call: Returns whether a whole text is a tool call. Text that begins like a call is
            withheld until it has ended. None if the speaker has no tools.
    """

    def __init__(
        self,
        tell: Callable[[str, str, str], None],
        heard: Callable[[], HeardText],
        *,
        is_unopened: bool = False,
        is_call: Callable[[str], bool] | None = None,
    ) -> None:
        self._tell = tell
        self._make = heard
        self.is_unopened = is_unopened
        self._is_call = is_call
        self.begin()

    def begin(self) -> None:
        """Reset for a new answer."""
        super().begin()
        self._beside = ""
        self._begin_speech()

    def _begin_speech(self) -> None:
        """Reset the speech of the answer."""
        self._answer = uuid4().hex
        self._heard = self._make()
        self._has_thought = False
        self._withheld = ""
        self._may_be_call = self._is_call is not None

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Report a piece of the answer."""
        self._beside += read_outer_thought(piece)
        if told.anew:
            self._begin_speech()
        if told.speech and not self._has_thought:
            self._has_thought = True
            parts = (self._beside.strip(), self.reader.thought)
            self._report("thought", "\n\n".join(filter(None, parts)))
        speech = self._release(told.speech, is_over=is_over)
        self._report("token", self._heard.take(speech, is_over=is_over))

    def _release(self, speech: str, *, is_over: bool) -> str:
        """Return the speech that is certainly no tool call."""
        if self._is_call is None or not self._may_be_call:
            return speech
        self._withheld += speech
        if not is_over and may_begin_call(self._withheld):
            return ""
        self._may_be_call = False
        return "" if is_over and self._is_call(self._withheld) else self._withheld

    def _report(self, kind: str, text: str) -> None:
        if text:
            self._tell(kind, text, self._answer)


_SHORT = 10_000
"""Arguments of at most this length, in characters, are parsed with each piece.

Longer ones are parsed when they have grown by a 500th of the further characters, so that the work
grows with the length and not with its square.
"""


class Argument:
    """A reader of ``to_user`` in a call's arguments while their JSON arrives.

    After a fault in the JSON, it reads no more. Text that it has returned is never changed: if the
    argument comes twice, the second text is ignored unless it continues the first.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether the argument is complete, so that no more text can follow."""
        self._pieces: list[str] = []
        self._length = 0
        self._parsed = 0
        """The length of the arguments when they were last parsed, in characters."""
        self._read = ""

    def read(self, piece: str) -> str:
        """Read the next piece of the arguments' JSON, and return the new text."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self.is_over or (self._length - self._parsed) * 500 < self._length - _SHORT:
            return ""
        self._parsed = self._length
        self._pieces = ["".join(self._pieces)]
        try:
            arguments = from_json(self._pieces[0], allow_partial="trailing-strings")
        except ValueError:
            return ""
        if not isinstance(arguments, dict):
            return ""
        text = arguments.get(TO_USER)
        has_next = text is not None and next(reversed(arguments)) != TO_USER
        self.is_over = has_next or self._is_complete()
        if not isinstance(text, str) or not text.startswith(self._read):
            return ""
        new, self._read = text.removeprefix(self._read), text
        return new

    def _is_complete(self) -> bool:
        """Return whether the object has ended. Most pieces need not be parsed again for that."""
        if not self._pieces[0].rstrip().endswith("}"):
            return False
        try:
            from_json(self._pieces[0])
        except ValueError:
            return False
        return True


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
        self.calls: dict[StreamedCall, _Call] = {}
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
        # The pieces of calls in the form of `answers.RAW`, by events.
        raw = message.additional_kwargs.get(RAW)
        if raw is None:
            raw = [[{**part, "arguments": part["args"]} for part in message.tool_call_chunks]]
        for event in raw:
            for streamed, arguments in self._joiner.add(event):
                call = self.calls.setdefault(streamed, _Call(streamed))
                call.waits += call.argument.read(arguments)
        for call in self.calls.values():
            if call.told or call.waits.strip():
                gap = GAP if not call.told and (self._told or self._content.strip()) else ""
                if call.waits:
                    self._tell(gap + call.waits)
                    self._told += gap + call.waits
                    call.told, call.waits = call.told + call.waits, ""
            if not call.argument.is_over:
                # The text of the next call must come after the whole text of this call.
                break


def take_out_to_user(answer: AIMessage, speaking: Speaking | None = None) -> AIMessage:
    """Move ``to_user`` from the calls of an answer to its text."""
    late = speaking.late if speaking is not None else ""
    content = str(answer.text).removesuffix(late)
    texts = [_text_of(call) for call in answer.tool_calls]
    left = [*speaking.calls.values()] if speaking is not None else []
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
    calls: list[ToolCall] = [
        {**call, "args": {name: one for name, one in call["args"].items() if name != TO_USER}}
        for call in answer.tool_calls
    ]
    if not spoken:
        return answer.model_copy(update={"tool_calls": calls})
    whole = join_texts(content, spoken, late)
    if speaking is not None:
        speaking.rest(whole, content)
    extra = {**answer.additional_kwargs, TO_USER: texts}
    return answer.model_copy(
        update={"content": whole, "tool_calls": calls, "additional_kwargs": extra}
    )


def _text_of(call: ToolCall) -> str | None:
    text = call["args"].get(TO_USER)
    return text if isinstance(text, str) and text.strip() else None


def texts_by_id(message: AIMessage, calls: Iterable[ToolCall]) -> dict[str, str]:
    """Return the texts that an answer sends by ``to_user``, by the ids of the calls."""
    texts = message.additional_kwargs.get(TO_USER) or ()
    return {str(call["id"]): text for call, text in zip(calls, texts, strict=False) if text}
