"""A thread of its own for each call that may wait."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


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

    Thread(target=work, name="duologue-call", daemon=True).start()
    return await answer
