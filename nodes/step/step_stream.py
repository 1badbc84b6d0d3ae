"""The stream of a graph's steps, which loses no answered model call if the run is cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeAlias

from .progress import StepProgress

Part: TypeAlias = tuple[str, Any]
"""A mode of LangGraph's stream, and what is streamed in it."""

_PATIENCE: Final = 10.0
"""Seconds that a cancelled run waits, at most, until its step has ended.

After an answer a step only reads the store, unless the answer was cut off for lack of room and is
asked for again.
"""


class StepStream:
    """Reads LangGraph's stream in the modes ``updates`` and ``custom``.

    Args:
        stream: The stream.
        progress: The progress of the run's newest step.
    """

    def __init__(self, stream: AsyncGenerator[Part, None], progress: StepProgress) -> None:
        self._stream = stream
        self._progress = progress
        self._next: asyncio.Task[Part | None] | None = None
        # One for all tasks, as if the stream were read in a single task.
        self._context = copy_context()

    async def read(self) -> AsyncGenerator[Part, None]:
        """Yield the parts of the stream, then close it.

        If the run is cancelled, or its reader leaves, the step ends first.
        """
        self._progress.begin()
        try:
            while (part := await self._read_part()) is not None:
                yield part
        finally:
            try:
                await self._end_step()
            finally:
                await self._close()

    async def _read_part(self) -> Part | None:
        """Return the next part, or None at the end."""
        if self._next is None:
            # In a task, since LangGraph cancels the node if it is cancelled itself.
            self._next = asyncio.create_task(self._advance(), context=self._context)
        await asyncio.wait([self._next])
        done, self._next = self._next, None
        part = done.result()
        if part is None or part[0] == "updates":
            # LangGraph streams the update of a node as it passes it to the checkpointer.
            self._progress.note_written()
        return part

    async def _advance(self) -> Part | None:
        return await anext(self._stream, None)

    async def _end_step(self) -> None:
        self._progress.stop()
        # An error of the step is of no use any more, since the run ends.
        with suppress(Exception):
            async with asyncio.timeout(_PATIENCE):
                while self._progress.is_under_way and await self._read_part() is not None:
                    pass

    async def _close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            # Read here, so that asyncio does not report an exception that nobody waits for.
            _ = self._next.cancelled() or self._next.exception()
        await self._stream.aclose()
