"""Event loops and blocking calls in threads, for synchronous callers.

One background loop runs the coroutines of all synchronous functions. It keeps connections between
calls, and it works even if another loop is already running, as in a notebook.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from inspect import signature, unwrap
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar, get_args

from .errors import DuologueError, hide_frames

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, started at the first use and alive as long as the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beginning = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._beginning:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = partial(_run, self._loop)
                threading.Thread(target=run, name=self._name, daemon=True).start()
            return self._loop

    def start(
        self, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[Future[T], threading.Event]:
        """Run a coroutine; return its future, and an event that is set when it has ended.

        A cancelled future is done at once, but its coroutine ends only when the loop cancels it.
        """
        ended = threading.Event()

        async def run_work() -> T:
            try:
                return await work()
            finally:
                ended.set()

        return asyncio.run_coroutine_threadsafe(run_work(), self.loop), ended

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop from any other loop.

        A cancelled call waits until the coroutine has ended.
        """
        future, ended = self.start(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.cancel()
            # A task that is cancelled before it starts never sets the event, hence the timeout.
            await asyncio.shield(in_thread(ended.wait, 5))
            raise

    def _forget(self) -> None:
        """Forget the loop in a forked child, which has no thread that runs it."""
        self._loop = None
        self._beginning = threading.Lock()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop, and run it again if one of its tasks exits the program."""
    while not loop.is_closed():
        # A task that exits the program stops the loop; its caller gets the exception as well.
        with suppress(SystemExit, KeyboardInterrupt):
            return loop.run_forever()


async def in_thread(function: Callable[..., T], *given: object) -> T:
    """Call a function that may block, for example until another program ends, in its own thread.

    `asyncio.to_thread` shares a few threads: a few blocking functions would delay the files and
    locks of every session. A closing loop and an ending program also wait for those shared threads,
    but not for the function's own thread. When the function has returned, another call may use its
    thread: a new thread costs more than many functions.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def settle(found: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)  # type: ignore[arg-type]  # set if there is no error

    def work() -> _Job:
        found, error = None, None
        try:
            found = context.run(function, *given)
        except BaseException as raised:
            error = raised
        return partial(settle, found, error)

    try:
        calls = _idle.pop()
    except IndexError:
        calls = SimpleQueue()
        serve = partial(_serve, calls)
        threading.Thread(target=serve, name="duologue-call", daemon=True).start()
    calls.put((work, loop))
    return await answer


_Job = Callable[[], None]

_Calls = SimpleQueue[tuple[Callable[[], _Job], asyncio.AbstractEventLoop]]
"""Functions to call in a thread. Each returns the work for the loop that waits for it."""

_idle: Final[list[_Calls]] = []
"""The queues of the threads that have nothing to call. The newest is used first."""

if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads.
    os.register_at_fork(after_in_child=_idle.clear)

_PATIENCE: Final = 5.0
"""The time in seconds after which a thread without calls ends."""


def _serve(calls: _Calls) -> None:
    """Call functions in this thread until none comes for a while."""
    while True:
        try:
            work, loop = calls.get(timeout=_PATIENCE)
        except Empty:
            try:
                _idle.remove(calls)
            except ValueError:
                # A caller has just taken this thread.
                continue
            return
        settle = work()
        # Before the caller continues, because its next call can use this thread.
        _idle.append(calls)
        # If the loop is closed, the result is not needed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)
        # A waiting thread keeps no function alive.
        del work, loop, settle


P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

_END = object()

_LOOP = LoopThread("duologue")

_CALLER_JOBS: ContextVar[SimpleQueue[_Job | None] | None] = ContextVar("_CALLER_JOBS", default=None)
"""The work for the thread that waits for a coroutine. None in the queue means that the coroutine
has ended."""


def in_background(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the synchronous twin of an async function, such as ``converse`` of ``aconverse``."""
    # The function without `hide_frames`, which would report wrong arguments only in the coroutine.
    start: Callable[P, Coroutine[Any, Any, T]] = unwrap(function)

    @wraps(function)
    @hide_frames
    def call_twin(*args: P.args, **kwargs: P.kwargs) -> T:
        with _name_of_twin(function):
            work = start(*args, **kwargs)
        return run_coroutine(work)

    return _name_as_twin(call_twin, function)


def iterate_in_background(
    function: Callable[P, AsyncGenerator[T, None]],
) -> Callable[P, Iterator[T]]:
    """Return the synchronous twin of an async generator function, such as ``stream``."""

    @wraps(function)
    def iterate_twin(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with _name_of_twin(function):
            items = function(*args, **kwargs)
        return iterate(items)

    _name_as_twin(iterate_twin, function)
    found = signature(function)
    (item, _) = get_args(found.return_annotation)
    iterate_twin.__signature__ = found.replace(return_annotation=Iterator[item])  # type: ignore[attr-defined,valid-type]
    return iterate_twin


@contextmanager
def _name_of_twin(function: Callable[..., Any]) -> Iterator[None]:
    """Report wrong arguments under the name of the function's synchronous twin.

    Only the call that creates the coroutine belongs in this block: no code of the function runs in
    it.
    """
    name = function.__name__
    try:
        yield
    except TypeError as error:
        raise TypeError(str(error).replace(name, name.removeprefix("a"), 1)) from None


def _name_as_twin(twin: F, function: Callable[..., Any]) -> F:
    """Set a wrapper's name to that of the twin, and copy the wrapped function's signature."""
    owner = function.__qualname__.removesuffix(function.__name__)
    twin.__name__ = function.__name__.removeprefix("a")
    twin.__qualname__ = owner + twin.__name__
    # `inspect` would follow `__wrapped__` and report a coroutine function.
    twin.__signature__ = signature(function)  # type: ignore[attr-defined]  # any function's
    del twin.__wrapped__  # type: ignore[attr-defined]  # set by `wraps`
    return twin


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its result.

    Raises:
        DuologueError: The caller is itself a coroutine on the background loop.
    """
    if _is_on_background_loop():
        work.close()
        raise DuologueError(
            "an asynchronous function that duologue runs, such as a tool, can't call a blocking "
            "function of duologue; await the asynchronous one (aconverse, Session.aresume, …) "
            "instead"
        )
    errands: SimpleQueue[_Job | None] = SimpleQueue()
    begin: Future[None] = Future()

    async def run_work() -> T:
        _CALLER_JOBS.set(errands)
        try:
            # Start only when the caller waits: an interrupt before that would leave the coroutine
            # running.
            errands.put(partial(begin.set_result, None))
            await asyncio.wrap_future(begin)
            return await work
        except (KeyboardInterrupt, SystemExit) as error:
            # Such an exception would end the loop that all callers share.
            errands.put(partial(_raise, error))
            raise asyncio.CancelledError from error
        finally:
            work.close()
            errands.put(None)

    try:
        future, ended = _LOOP.start(run_work)
        while (errand := _wait_for_errand(errands)) is not None:
            errand()
        return future.result()
    except BaseException:
        has_begun = not begin.cancel()
        if has_begun and not future.done():
            future.cancel()
            while not ended.wait(_HEARING):
                pass
        raise


_HEARING: Final = 1.0
"""The time in seconds after which a waiting thread looks for Ctrl-C.

A signal does not end the wait if another thread receives it, or if it comes just before the wait.
"""


def _wait_for_errand(errands: SimpleQueue[_Job | None]) -> _Job | None:
    while True:
        with suppress(Empty):
            return errands.get(timeout=_HEARING)


def _is_on_background_loop() -> bool:
    """Return whether the caller runs on the background loop, which would then wait for itself."""
    try:
        return asyncio.get_running_loop() is _LOOP.loop
    except RuntimeError:
        return False


def _raise(error: BaseException) -> None:
    raise error


async def in_caller(function: Callable[..., T], *given: object) -> T:
    """Call a function that may block for long, such as one that asks a person, from a coroutine.

    It runs in the thread that waits for this coroutine, or else in its own thread.
    """
    errands = _CALLER_JOBS.get()
    if errands is None:
        return await in_thread(_call, function, *given)
    answer: Future[T] = Future()

    def errand() -> None:
        try:
            answer.set_result(_call(function, *given))
        except Exception as error:
            answer.set_exception(error)

    errands.put(errand)
    return await asyncio.wrap_future(answer)


def _call(function: Callable[..., T], *given: object) -> T:
    try:
        return function(*given)
    except StopIteration as error:
        # A coroutine can't raise StopIteration.
        raise RuntimeError("it raised StopIteration: it has no more answers") from error


def iterate(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over an asynchronous generator from synchronous code."""
    try:
        with hide_frames:
            while (item := run_coroutine(_next(source))) is not _END:
                yield item  # type: ignore[misc]  # anything but the end is an item
    finally:
        run_coroutine(source.aclose())


class TaskIterator(Generic[T]):
    """An iterator over an asynchronous generator that a task of its own runs, step by step.

    If a reader leaves a generator, `asyncio.run` closes all its inner generators at once and in any
    order at its end. But before that it cancels the task, which closes them from the inside.
    """

    def __init__(self, source: AsyncGenerator[T, None]) -> None:
        self._source = source
        # The background loop never ends, and each step belongs to another call of the reader.
        self._is_direct = _CALLER_JOBS.get() is not None
        self._items: asyncio.Queue[T | object] = asyncio.Queue()
        self._wanted = asyncio.Semaphore(0)
        self._task: asyncio.Task[None] | None = None

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> T:
        """Return the generator's next item."""
        if self._is_direct:
            return await anext(self._source)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        else:
            self._wanted.release()
        if (found := await self._items.get()) is _END:
            await self._task
            raise StopAsyncIteration
        return found  # type: ignore[return-value]  # anything but the end is an item

    async def aclose(self) -> None:
        """Close the generator."""
        if self._task is None:
            await self._source.aclose()
            return
        if not self._task.done() and not self._task.cancelling():
            self._task.cancel()
        await asyncio.wait([self._task])
        # Read here, so that asyncio does not report an exception that nobody retrieves.
        _ = self._task.cancelled() or self._task.exception()

    async def _run(self) -> None:
        try:
            async with aclosing(self._source):
                async for item in self._source:
                    self._items.put_nowait(item)
                    await self._wanted.acquire()
        finally:
            self._items.put_nowait(_END)


async def _next(source: AsyncGenerator[T, None]) -> T | object:
    return await anext(source, _END)
