"""Coroutines in LangGraph's threads, as where `graph.invoke` runs a graph without a loop.

They run in the loop in the background, and the thread waits for them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeAlias

from langgraph.func import task

from ...graphs.common import background

Work: TypeAlias = Callable[[], Awaitable[Any]]
"""What is done once."""

_IN_THREADS: ContextVar[bool] = ContextVar("_IN_THREADS", default=False)


def runs_in_threads() -> bool:
    """Whether LangGraph runs the graph in threads of its own."""
    return _IN_THREADS.get()


def waited_for(work: Work) -> Any:  # noqa: ANN401  # what the work gives
    """Do some work of a graph, and wait for it in a thread of LangGraph's."""

    async def done() -> Any:  # noqa: ANN401
        _IN_THREADS.set(True)
        return await work()

    return background.run(done())


def recorded(name: str) -> Callable[[Work], Awaitable[Any]]:
    """Give what begins some work as a task of LangGraph's, which records what it gives.

    A task is known by its name, so that it may begin in a thread and be read in a loop.
    """

    async def in_loop(work: Work) -> Any:  # noqa: ANN401
        return await work()

    def in_thread(work: Work) -> Any:  # noqa: ANN401
        return waited_for(work)

    # It gives its name to the function, so each needs its own.
    make: Any = task(name=name)
    of_loop, of_thread = make(in_loop), make(in_thread)

    def begun(work: Work) -> Awaitable[Any]:
        if runs_in_threads():
            return asyncio.wrap_future(of_thread(work))
        future: Awaitable[Any] = of_loop(work)
        return future

    return begun
