"""One event loop in a thread of its own, for the synchronous entry points.

It lives as long as the process, so that connections are kept between calls, and it makes the
synchronous functions work where a loop is already running, as in a notebook.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

from .errors import DuologueError
from .threads import in_thread

T = TypeVar("T")

_END = object()

_Errand = Callable[[], None]

_CALLER: ContextVar[SimpleQueue[_Errand | None] | None] = ContextVar("_CALLER", default=None)
"""What the thread that waits for a coroutine is to do meanwhile; None: it is done."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="duologue", daemon=True).start()
    return loop


# A child that is forked has the loop, but not the thread that runs it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


def _is_here() -> bool:
    """Whether the caller runs on this loop, which would then wait for itself."""
    try:
        return asyncio.get_running_loop() is _loop()
    except RuntimeError:
        return False


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    if _is_here():
        work.close()
        raise DuologueError(
            "a coroutine that duologue runs, such as a tool, can't wait for another one in it: "
            "await the asynchronous function (aconverse, aresume, …) instead"
        )
    ended = threading.Event()
    errands: SimpleQueue[_Errand | None] = SimpleQueue()

    async def watched() -> T:
        _CALLER.set(errands)
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:
            # On the loop it would end the thread of all.
            errands.put(partial(_raise, error))
            raise asyncio.CancelledError from error
        finally:
            ended.set()
            errands.put(None)

    future = asyncio.run_coroutine_threadsafe(watched(), _loop())
    try:
        while (errand := errands.get()) is not None:
            errand()
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            # The future is cancelled at once, the work only when the loop gets to it.
            ended.wait()
        raise


def _raise(error: BaseException) -> None:
    raise error


async def in_caller(function: Callable[..., T], *given: object) -> T:
    """Call a function that may wait long, such as for a person, from a coroutine."""
    errands = _CALLER.get()
    if errands is None:
        return await in_thread(_called, function, *given)
    answer: Future[T] = Future()

    def errand() -> None:
        try:
            answer.set_result(_called(function, *given))
        except Exception as error:
            answer.set_exception(error)

    errands.put(errand)
    return await asyncio.wrap_future(answer)


def _called(function: Callable[..., T], *given: object) -> T:
    try:
        return function(*given)
    except StopIteration as error:
        # No coroutine can raise it.
        raise RuntimeError("it has no further answer (StopIteration)") from error


def iterate(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over an asynchronous generator from synchronous code."""
    try:
        while (item := run(_next(source))) is not _END:
            yield item  # type: ignore[misc]  # anything but the end is an item
    finally:
        run(source.aclose())


async def _next(source: AsyncGenerator[T, None]) -> T | object:
    return await anext(source, _END)
