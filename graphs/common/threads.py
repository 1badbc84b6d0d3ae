"""Threads: one that runs an event loop, and one for each blocking call."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread that lives as long as the process; it begins with the first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beginning = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        with self._beginning:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = partial(_run, self._loop)
                threading.Thread(target=run, name=self._name, daemon=True).start()
            return self._loop

    def start(
        self, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[Future[T], threading.Event]:
        """Run a coroutine there; the event says when it has really ended.

        A future that is cancelled is done at once, its work only when the loop gets to it.
        """
        ended = threading.Event()

        async def watched() -> T:
            try:
                return await work()
            finally:
                ended.set()

        return asyncio.run_coroutine_threadsafe(watched(), self.loop), ended

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine there from any other loop; cancelled, it waits until that has ended."""
        future, ended = self.start(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.cancel()
            # A task that is cancelled before it starts never sets the event, hence the timeout.
            await asyncio.shield(asyncio.to_thread(ended.wait, 5))
            raise

    def _forget(self) -> None:
        """A child that is forked has the loop, but not the thread that runs it."""
        self._loop = None
        self._beginning = threading.Lock()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop, whatever its tasks raise."""
    while not loop.is_closed():
        # A task that wants the program to end ends the loop; whoever awaits it is told, too.
        with suppress(SystemExit, KeyboardInterrupt):
            return loop.run_forever()


async def in_thread(function: Callable[..., T], *given: object) -> T:
    """Call a function that may wait, such as for another program, in a thread of its own.

    `asyncio.to_thread` has a few threads for all: as many functions that wait would hold up the
    files and locks of every session. And a loop that closes, or a program that ends, waits for
    those; for this one nobody does.
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
            answer.set_result(found)  # type: ignore[arg-type]  # without an error it is found

    def work() -> None:
        found, error = None, None
        try:
            found = context.run(function, *given)
        except BaseException as raised:
            error = raised
        # Where the loop is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=work, name="duologue-call", daemon=True).start()
    return await answer
