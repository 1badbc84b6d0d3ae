"""The pieces of a streamed answer, which LangChain keeps and joins when the stream has ended.

It joins fields piece by piece, and copies all that came before each time. To mend broken arguments
of a call it tries every shorter text. Both take quadratic time: half a megabyte of broken arguments
held up the event loop for many minutes.
"""

from typing import Final

from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

_BLOCK: Final = 500
"""How many pieces are joined at a time."""

_LONGEST_ARGUMENTS: Final = 4000
"""The most characters of arguments, over all calls, that LangChain may mend: 0.1 s of work."""


class KeptPieces:
    """Makes pieces cheap to join once whoever listens to the stream has taken them.

    Listeners keep the messages and LangChain the pieces around them, so each piece gets another
    message, and the messages stay as they are.
    """

    def __init__(self) -> None:
        self._joined: list[ChatGenerationChunk] = []
        self._block: list[ChatGenerationChunk] = []
        self._arguments = 0

    def add(self, piece: ChatGenerationChunk) -> None:
        """Add a piece that listeners have taken."""
        message = piece.message
        if not isinstance(message, AIMessageChunk):
            return
        self._block.append(piece)
        before = self._arguments
        self._arguments += sum(len(part["args"] or "") for part in message.tool_call_chunks)
        if self._arguments > _LONGEST_ARGUMENTS:
            is_first = before <= _LONGEST_ARGUMENTS
            for one in (*self._joined, *self._block) if is_first else (piece,):
                _remove_calls(one)
        if len(self._block) == _BLOCK:
            first, *others = self._block
            first.message = first.message + [one.message for one in others]
            for one in others:
                one.message = AIMessageChunk(content="")
            self._joined.append(first)
            self._block.clear()


def _remove_calls(piece: ChatGenerationChunk) -> None:
    """Remove the calls as LangChain reads them; ours stay in the additional fields."""
    none: dict[str, object] = {"tool_call_chunks": [], "tool_calls": [], "invalid_tool_calls": []}
    piece.message = piece.message.model_copy(update=none)
