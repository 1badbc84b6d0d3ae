"""Listening to a model while it answers, by LangChain's callbacks."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult

from ...graphs.log.heard_text import HeardText
from ...graphs.log.messages import storable
from ...graphs.text.thoughts import ThoughtReader, Told
from .answers import thought_beside


class Listener(AsyncCallbackHandler):
    """Takes the pieces of an answer as they come, with what it says told from what it thinks.

    LangChain asks a model to stream where one like it listens, and makes the message itself.
    """

    run_inline = True
    raise_error = True

    is_unopened = False
    """Whether its thoughts are expected to be closed by a tag that none has opened."""

    def begin(self) -> None:
        """Begin anew: a model is asked, or asked once more where its answer broke off."""
        self.reader = ThoughtReader(is_unopened=self.is_unopened)
        self._streams = False

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Take a piece of the message, and what is said by what has come so far."""

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Begin anew."""
        self.begin()

    async def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        **kwargs: Any,  # as in the class above
    ) -> None:
        """Take a piece of the message."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._streams = True
            told = self.reader.take(storable(str(chunk.message.text)))
            await self.take(chunk.message, told, is_over=False)

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Take what was held back, or the message where it did not come in pieces."""
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
        """The same where nothing is async."""
        return output


class Tokens(Listener):
    """Tells an answer piece by piece, as others hear it, and its thought whole, before that.

    Args:
        tell: Takes what it is, ``token`` or ``thought``, a piece of it, and what tells the answer
            from that of another try.
        heard: Makes what finds out what others hear of it.
        is_unopened: Whether its thoughts are expected to be closed by a tag that none has opened.
    """

    def __init__(
        self,
        tell: Callable[[str, str, str], None],
        heard: Callable[[], HeardText],
        *,
        is_unopened: bool = False,
    ) -> None:
        self._tell = tell
        self._make = heard
        self.is_unopened = is_unopened
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        super().begin()
        self._beside = ""
        self._said()

    def _said(self) -> None:
        """Begin what is said anew."""
        self._answer = uuid4().hex
        self._heard = self._make()
        self._has_thought = False

    async def take(self, piece: AIMessageChunk, told: Told, *, is_over: bool) -> None:
        """Tell a piece."""
        self._beside += thought_beside(piece)
        if told.anew:
            self._said()
        if told.speech and not self._has_thought:
            self._has_thought = True
            parts = (self._beside.strip(), self.reader.thought)
            self._told("thought", "\n\n".join(filter(None, parts)))
        self._told("token", self._heard.take(told.speech, is_over=is_over))

    def _told(self, what: str, text: str) -> None:
        if text:
            self._tell(what, text, self._answer)
