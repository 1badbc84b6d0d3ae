"""A session that runs: what is read of it, its progress and the stream of its steps.

LangGraph stores nothing of a cancelled node. If a model has answered in the node, the call is paid
for, no usage counts it, and the session repeats it. So such a node ends first. A node that waits
for its model is cancelled directly: LangGraph cancels it some turns of the event loop later, when
the model may have answered.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeAlias, TypeVar

from langchain_core.messages import AnyMessage
from langgraph.func import task

from ...graphs.common import threads as background
from ...graphs.conversation.conversation import Conversation, restore_conversation
from ...graphs.log.state import GrowingLog
from ...graphs.rules.log_counter import Reader
from ...graphs.rules.position import Position
from ...graphs.rules.transitions import Decision, decide

_MOST: Final = 256
"""The sessions of one graph that are kept in mind. Others are read from their beginning."""


class RunningSession:
    """One session's state, as its steps read it. The state's values are never changed in place."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.reader = Reader(conversation)
        self.is_checked = False
        """Whether all that the conversation names was found, and its code can be run."""
        self._log = GrowingLog()
        self._position: tuple[object, Position] = (None, Position())
        self._turn: tuple[Position | None, Decision | None] = (None, None)

    def log(self, state: Mapping[str, Any]) -> list[AnyMessage]:
        """Give everything ever said."""
        return self._log.of(state)

    def edited(self, state: Mapping[str, Any]) -> list[int]:
        """Return the places of messages that are still to be read again."""
        self._log.of(state)
        return self._log.edited()

    def position(self, state: Mapping[str, Any]) -> Position:
        """Give where it is."""
        given = state["position"]
        if given is not self._position[0]:
            self._position = (given, Position.model_validate(given))
        return self._position[1]

    def turn(self, position: Position) -> Decision:
        """Give whose turn it is at a position, by the rules."""
        known, turn = self._turn
        if turn is None or known is not position:
            turn = decide(self.conversation, position)
            self._turn = (position, turn)
        return turn


class RunningSessions(threading.local):
    """The sessions that one graph runs; each thread keeps its own in mind.

    Runs without an id share what is kept: in one loop no other step begins while a log is read.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str | None, tuple[object, RunningSession]] = OrderedDict()

    def of(self, session: str | None, state: Mapping[str, Any]) -> RunningSession:
        """Return the session of this id, whose task stands."""
        spec = state["spec"]
        known = self._known.pop(session, None)
        # Compared by value, since LangGraph gives a copy of it to each node. That is quick: what is
        # inside of the copies is the same objects.
        if known is None or known[0] != spec:
            known = (spec, RunningSession(restore_conversation(spec)))
        self._known[session] = known
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return known[1]

    def begin(self, session: str | None, spec: object, running: RunningSession) -> None:
        """Keep a session in mind whose first step is made: the next one need not read its spec."""
        self._known[session] = (spec, running)

    def forget(self, session: str | None) -> None:
        """Forget a session that has ended."""
        self._known.pop(session, None)


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


Work: TypeAlias = Callable[[], Awaitable[Any]]
"""What is done once."""

_IN_THREADS: ContextVar[bool] = ContextVar("_IN_THREADS", default=False)


def runs_in_threads() -> bool:
    """Whether LangGraph runs the graph in threads of its own."""
    return _IN_THREADS.get()


def wait_for(work: Work) -> Any:  # noqa: ANN401  # what the work gives
    """Do some work of a graph, and wait for it in a thread of LangGraph's."""

    async def done() -> Any:  # noqa: ANN401
        _IN_THREADS.set(True)
        return await work()

    return background.run_coroutine(done())


def record_as_task(name: str) -> Callable[[Work], Awaitable[Any]]:
    """Give what begins some work as a task of LangGraph's, which records what it gives.

    A task is known by its name, so that it may begin in a thread and be read in a loop.
    """

    async def in_loop(work: Work) -> Any:  # noqa: ANN401
        return await work()

    def in_thread(work: Work) -> Any:  # noqa: ANN401
        return wait_for(work)

    # It gives its name to the function, so each needs its own.
    make: Any = task(name=name)
    of_loop, of_thread = make(in_loop), make(in_thread)

    def begun(work: Work) -> Awaitable[Any]:
        if runs_in_threads():
            return asyncio.wrap_future(of_thread(work))
        future: Awaitable[Any] = of_loop(work)
        return future

    return begun
