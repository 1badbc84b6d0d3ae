"""The loop that runs coroutines for the synchronous functions.

It keeps connections between calls, and makes these functions work where a loop is already running,
as in a notebook.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from inspect import signature
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar, get_args

from .errors import DuologueError
from .threads import LoopThread, in_thread

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_END = object()

_LOOP = LoopThread("duologue")

_Errand = Callable[[], None]

_CALLER: ContextVar[SimpleQueue[_Errand | None] | None] = ContextVar("_CALLER", default=None)
"""What the thread that waits for a coroutine is to do meanwhile; None: it is done."""


def in_background(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make the synchronous twin of an async function, such as ``converse`` of ``aconverse``."""

    @wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
        with _name_of_twin(function):
            work = function(*args, **kwargs)
        return run(work)

    return _named_as_twin(waiting, function)


def iterating(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, Iterator[T]]:
    """Make the synchronous twin of an async generator function, such as ``stream``."""

    @wraps(function)
    def following(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with _name_of_twin(function):
            items = function(*args, **kwargs)
        return iterate(items)

    _named_as_twin(following, function)
    found = signature(function)
    (item, _) = get_args(found.return_annotation)
    following.__signature__ = found.replace(return_annotation=Iterator[item])  # type: ignore[attr-defined,valid-type]
    return following


@contextmanager
def _name_of_twin(function: Callable[..., Any]) -> Iterator[None]:
    """Name the twin where Python refuses the arguments: nothing of the function runs inside."""
    name = function.__name__
    try:
        yield
    except TypeError as error:
        raise TypeError(str(error).replace(name, name.removeprefix("a"), 1)) from None


def _named_as_twin(twin: F, function: Callable[..., Any]) -> F:
    """Set a wrapper's name to the twin's, and its signature to that of the wrapped function."""
    owner = function.__qualname__.removesuffix(function.__name__)
    twin.__name__ = function.__name__.removeprefix("a")
    twin.__qualname__ = owner + twin.__name__
    # `inspect` would follow `__wrapped__` and report a coroutine function.
    twin.__signature__ = signature(function)  # type: ignore[attr-defined]  # any function's
    del twin.__wrapped__  # type: ignore[attr-defined]  # set by `wraps`
    return twin


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    if _is_here():
        work.close()
        raise DuologueError(
            "a coroutine that duologue runs, such as a tool, can't wait for another one in it: "
            "await the asynchronous function (aconverse, Session.aresume, …) instead"
        )
    errands: SimpleQueue[_Errand | None] = SimpleQueue()
    begin: Future[None] = Future()

    async def helped() -> T:
        _CALLER.set(errands)
        try:
            # Not before the caller waits: an interrupt until then would leave it running.
            errands.put(partial(begin.set_result, None))
            await asyncio.wrap_future(begin)
            return await work
        except (KeyboardInterrupt, SystemExit) as error:
            # It would end the loop that all share.
            errands.put(partial(_raise, error))
            raise asyncio.CancelledError from error
        finally:
            work.close()
            errands.put(None)

    try:
        future, ended = _LOOP.start(helped)
        while (errand := errands.get()) is not None:
            errand()
        return future.result()
    except BaseException:
        has_begun = not begin.cancel()
        if has_begun and not future.done():
            future.cancel()
            ended.wait()
        raise


def _is_here() -> bool:
    """Whether the caller runs on this loop, which would then wait for itself."""
    try:
        return asyncio.get_running_loop() is _LOOP.loop
    except RuntimeError:
        return False


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
