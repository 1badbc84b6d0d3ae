"""How far the step of a run is, for whoever cancels the run.

LangGraph stores nothing of a node that is cancelled. If a model has answered in it, the call is
paid for, no usage counts it, and the session makes it again. So such a node ends. A node that waits
for its model is cancelled directly: LangGraph cancels it some turns of the event loop later, when
the model may have answered.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class StepProgress:
    """The progress of a run's newest step. A run has one step at a time."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Let nodes begin."""
        self._node: asyncio.Task[object] | None = None
        self._is_answered = False
        self._is_stopped = False

    @property
    def is_under_way(self) -> bool:
        """Whether a node asks a model, or has ended and is not passed to the checkpointer."""
        return self._is_answered or self._node is not None

    async def run(self, node: Callable[[], Awaitable[T]]) -> T:
        """Run a node, and return its result."""
        if self._is_stopped:
            raise asyncio.CancelledError
        try:
            written = await node()
        except BaseException:
            self._is_answered = False
            raise
        finally:
            self._node = None
        self._is_answered = True
        return written

    def note_asking(self) -> None:
        """Note that the node that runs is about to ask a model."""
        self._node = asyncio.current_task()

    def note_answer(self) -> None:
        """Note that a model has answered in the node that runs."""
        self._is_answered = True

    def note_written(self) -> None:
        """Note that the checkpointer has the result of the node."""
        self._is_answered = False

    def stop(self) -> None:
        """Let no further node begin, and cancel a node whose model has not answered.

        A node that asks no model is left to LangGraph: its tasks, such as calls of tools, would be
        cancelled twice, and leave their processes behind.
        """
        self._is_stopped = True
        if self._node is not None and not self._is_answered:
            self._node.cancel()
