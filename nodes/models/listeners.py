"""LangChain callbacks that listen to a model's answer while it is streamed."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult

from ...graphs.log.heard_text import HeardText
from ...graphs.log.messages import storable
from ...graphs.text.thoughts import ThoughtReader, Told
from ...graphs.text.written_calls import may_begin_call
from .answers import thought_beside


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
        self._beside += thought_beside(piece)
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
