"""A running session: its state as read so far, its progress, and the stream of steps.

LangGraph stores nothing of a cancelled node. If a model has answered in the node, the call is paid
for, but not counted in the usage, and the session repeats it. Therefore such a node may finish
first. duologue itself cancels a node that still waits for its model. LangGraph would cancel it some
turns of the event loop later, when the model may have answered.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from copy import copy
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.config import get_config
from langgraph.func import task

from ...graphs.common import threads as background
from ...graphs.common.threads import in_thread
from ...graphs.conversation.conversation import Conversation, restore_conversation
from ...graphs.conversation.served import continue_served
from ...graphs.conversation.usage import Usage, read_usage
from ...graphs.log.state import GrowingLog
from ...graphs.rules.log_counter import Reader
from ...graphs.rules.position import Position
from ...graphs.rules.transitions import Decision, Node, decide
from ...graphs.rules.turns import Dialogue
from ..models.settings import CallSettings

_MOST: Final = 256
"""The maximum number of sessions that one graph caches. Others are read from their beginning."""


class RunningSession:
    """A session's state as its steps read it. The state's values are never changed in place."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.reader = Reader(conversation)
        self.is_checked = False
        """Whether everything that the conversation names was found, and its code can be run."""
        self.warned: set[str] = set()
        """The warnings about the session's models that were sent."""
        self.call_settings: dict[str, CallSettings] = {}
        """The settings of the calls for each speaker's replies, once they are known."""
        self._log = GrowingLog()
        self._position: tuple[object, Position] = (None, Position())
        self._usage: tuple[object, dict[str, Usage]] = (None, {})
        self._turn: tuple[Position | None, Decision | None] = (None, None)
        self._is_decided = False

    def log(self, state: Mapping[str, Any]) -> list[AnyMessage]:
        """Return the whole log."""
        return self._log.read(state)

    def find_edited(self) -> list[int]:
        """Return the indexes of edited messages, which must be read again, in the log read last."""
        return self._log.find_edited()

    def position(self, state: Mapping[str, Any]) -> Position:
        """Return the stored position."""
        given = state["position"]
        if given is not self._position[0]:
            self._position = (given, Position.model_validate(given))
        return self._position[1]

    def usage(self, state: Mapping[str, Any]) -> dict[str, Usage]:
        """Return the usage of each model so far. Do not change it."""
        given = state.get("usage")
        if given is not self._usage[0]:
            self._usage = (given, read_usage(state))
        return self._usage[1]

    def turn(self, position: Position) -> Decision:
        """Return the next step at a position, according to the rules."""
        known, turn = self._turn
        if turn is None or known is not position:
            turn = decide(Dialogue(self.conversation, position))
            self._turn = (position, turn)
        return turn

    def keep_step(
        self,
        update: Mapping[str, Any],
        position: Position,
        turn: Decision,
        usage: dict[str, Usage],
    ) -> None:
        """Keep the values of a step's update. Its edge and the next step need not read them."""
        self._position, self._turn = (update["position"], position), (position, turn)
        self._usage = (update["usage"], usage)
        self._is_decided = True

    def take_decision(self, stored: object) -> Decision | None:
        """Return the decision of the step that has just stored this position, only once.

        None if another step has stored it.
        """
        is_decided, self._is_decided = self._is_decided, False
        return self._turn[1] if is_decided and stored is self._position[0] else None


class RunningSessions(threading.local):
    """The sessions that one graph runs. Each thread has its own cache.

    Runs without a session id share an entry. In one event loop, no other step begins while a log is
    read, so this is safe.
    """

    def __init__(
        self,
        served: Conversation | None = None,
        limit: Callable[[Conversation], Conversation] | None = None,
    ) -> None:
        self.served = served
        """The conversation of every session, if the graph has its own. None if runs choose it."""
        self._limit = limit
        self._known: OrderedDict[str | None, tuple[object, RunningSession]] = OrderedDict()

    def find(self, session: str | None, state: Mapping[str, Any]) -> RunningSession:
        """Return the session with this id. Its spec must be stored."""
        spec = state["spec"]
        known = self._known.pop(session, None)
        # Compared by value, because LangGraph passes a copy to each node. The comparison is quick:
        # the copies contain the same objects.
        if known is None or known[0] != spec:
            known = (spec, self.make_session(self.restore(spec)))
        self._known[session] = known
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return known[1]

    def take_decision(self, session: str | None, update: object) -> Node | None:
        """Return the node that the step with this update has decided on, if it is known."""
        known = self._known.get(session)
        if known is None or not isinstance(update, dict):
            return None
        decided = known[1].take_decision(update.get("position"))
        if decided is None:
            return None
        if decided.node is Node.END:
            self.forget(session)
        return decided.node

    def restore(self, spec: dict[str, Any]) -> Conversation:
        """Return the conversation of a session from its stored spec, which clients can write."""
        stored = restore_conversation(spec)
        return stored if self.served is None else continue_served(self.served, stored)

    def make_session(self, conversation: Conversation) -> RunningSession:
        """Return a session that runs, with the limits of an outer conversation if there is one."""
        return RunningSession(conversation if self._limit is None else self._limit(conversation))

    def begin(self, session: str | None, spec: object, running: RunningSession) -> None:
        """Cache a session after its first step, so that the next step need not read its spec."""
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
        """Allow nodes to begin."""
        self._node: asyncio.Task[object] | None = None
        self._is_answered = False
        self._is_stopped = False

    @property
    def is_under_way(self) -> bool:
        """True while a node waits for a model, or its result has not reached the checkpointer."""
        return self._is_answered or self._node is not None

    async def run(self, node: Callable[[], Awaitable[T]]) -> T:
        """Run a node and return its result."""
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
        """Record that the running node is about to call a model."""
        self._node = asyncio.current_task()

    def note_answer(self) -> None:
        """Record that a model has answered in the running node."""
        self._is_answered = True

    def note_written(self) -> None:
        """Record that the checkpointer has the node's result."""
        self._is_answered = False

    def stop(self) -> None:
        """Prevent further nodes, and cancel a node whose model has not answered.

        A node that calls no model is left to LangGraph. Otherwise its tasks, such as tool calls,
        would be cancelled twice, and leave their processes running.
        """
        self._is_stopped = True
        if self._node is not None and not self._is_answered:
            self._node.cancel()


Part: TypeAlias = tuple[str, Any]
"""A part of LangGraph's stream: the stream mode, and the streamed value."""

_PATIENCE: Final = 10.0
"""The longest time that a cancelled run waits for its step to end, in seconds.

After an answer a step only reads the store, unless the answer was cut off at the context limit and
the model is called again.
"""


class StepStream:
    """A reader of LangGraph's stream in the modes ``updates`` and ``custom``.

    Args:
        stream: The stream.
        progress: The progress of the run's newest step.
    """

    def __init__(self, stream: AsyncGenerator[Part, None], progress: StepProgress) -> None:
        self._stream = stream
        self._progress = progress
        self._next: asyncio.Task[Part | None] | None = None
        # A shared context for all tasks, as if a single task read the stream.
        self._context = copy_context()

    async def read(self) -> AsyncGenerator[Part, None]:
        """Yield the parts of the stream, then close it.

        If the run is cancelled, or its reader stops, the current step ends before the stream is
        closed.
        """
        self._progress.begin()
        try:
            while (part := await self._read_part()) is not None:
                yield part
        finally:
            self._progress.stop()
            try:
                # The run ends anyway, so an error of the step does not matter.
                with suppress(Exception):
                    async with asyncio.timeout(_PATIENCE):
                        while self._progress.is_under_way and await self._read_part() is not None:
                            pass
            finally:
                await self._close()

    async def _read_part(self) -> Part | None:
        """Return the next part, or None at the end."""
        if self._next is None:
            # In a separate task, because LangGraph cancels the node if this read is cancelled.
            self._next = asyncio.create_task(self._advance(), context=self._context)
        await asyncio.wait([self._next])
        done, self._next = self._next, None
        part = done.result()
        if part is None or part[0] == "updates":
            # LangGraph streams a node's update when it passes it to the checkpointer.
            self._progress.note_written()
        return part

    async def _advance(self) -> Part | None:
        return await anext(self._stream, None)

    async def _close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            # Read here, so that asyncio does not report an exception that was never retrieved.
            _ = self._next.cancelled() or self._next.exception()
        await self._stream.aclose()


Work: TypeAlias = Callable[[], Awaitable[Any]]
"""A function whose result is recorded once."""

_IN_THREADS: ContextVar[bool] = ContextVar("_IN_THREADS", default=False)


def runs_in_threads() -> bool:
    """Return whether LangGraph runs the graph in threads."""
    return _IN_THREADS.get()


def wait_for(work: Work) -> Any:  # noqa: ANN401  # the result of the work
    """Run a coroutine function of the graph, and wait for it in LangGraph's thread."""

    async def run_work() -> Any:  # noqa: ANN401
        _IN_THREADS.set(True)
        return await work()

    return background.run_coroutine(run_work())


def record_as_task(name: str) -> Callable[[Work], Awaitable[Any]]:
    """Return a function that runs some work as a LangGraph task, which records the result.

    LangGraph finds the record by the task's name, so a task can run in a thread and its record can
    be read in an event loop.
    """

    async def run_in_loop(work: Work) -> Any:  # noqa: ANN401
        return await work()

    def run_in_thread(work: Work) -> Any:  # noqa: ANN401
        return wait_for(work)

    # `task` sets the function's name, so each task needs a separate function.
    make: Any = task(name=name)
    of_loop, of_thread = make(run_in_loop), make(run_in_thread)

    def record(work: Work) -> Awaitable[Any]:
        if runs_in_threads():
            return asyncio.wrap_future(of_thread(work))
        future: Awaitable[Any] = of_loop(work)
        return future

    return record


_PROGRESS: Final = "__pregel_scratchpad"
"""The key under which LangGraph passes a node the numbers of the present and of the last step."""


def may_repeat_step() -> bool:
    """Return whether an earlier run of the graph may have begun this step.

    Only the first step of a run can be such a step, and tasks of that earlier run are recorded.
    """
    config = get_config()
    progress = config["configurable"].get(_PROGRESS)
    limit = config.get("recursion_limit")
    # The configuration of a thread has no limit.
    return progress is None or limit is None or progress.stop - progress.step > limit


_LENT = "__pregel_checkpointer"
"""The key under which LangGraph lends a subgraph the checkpointer."""


def use_saver_in_threads(config: RunnableConfig) -> RunnableConfig:
    """Return a configuration whose checkpointer uses only its methods for threads."""
    configurable = config.get("configurable", {})
    saver = configurable.get(_LENT)
    if not isinstance(saver, BaseCheckpointSaver):
        return config
    lent = copy(saver)
    # LangGraph may copy the checkpointer again, so none of its methods may be bound to this
    # instance.
    lent.__class__ = type(type(saver).__name__, (_InThreads, type(saver)), {})
    return {**config, "configurable": {**configurable, _LENT: lent}}


class _InThreads(BaseCheckpointSaver[Any]):
    """The methods of a checkpointer that a run needs, executed in threads."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await in_thread(self.get_tuple, config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Any:  # noqa: ANN401  # the type that LangGraph uses
        found = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await in_thread(found)
