"""Listening to a model while it answers, by LangChain's callbacks."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult

from ...graphs.log.messages import storable


class Listener(AsyncCallbackHandler):
    """Takes the pieces of an answer as they come.

    LangChain asks a model to stream where one like it listens, and makes the message itself.
    """

    run_inline = True
    raise_error = True

    def begin(self) -> None:
        """Begin anew: a model is asked, or asked once more where its answer broke off."""

    async def take(self, piece: AIMessageChunk) -> None:
        """Take a piece of the message."""

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
            await self.take(chunk.message)

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass the stream on; having this method makes LangChain stream."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """The same where nothing is async."""
        return output


class Tokens(Listener):
    """Tells the content of an answer piece by piece, or whole where the model does not stream.

    Args:
        tell: Takes a piece, and what tells the answer from that of another try.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        self._answer = uuid4().hex
        self._streams = False

    async def take(self, piece: AIMessageChunk) -> None:
        """Tell a piece."""
        self._streams = True
        if text := storable(str(piece.text)):
            self._tell(text, self._answer)

    async def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Tell what did not come in pieces."""
        found = next((one for each in response.generations for one in each), None)
        if not self._streams and isinstance(found, ChatGeneration):
            self._tell(storable(str(found.message.text)), self._answer)
