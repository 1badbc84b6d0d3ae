"""One event loop in a thread of its own, for everything that starts processes to run code.

A child that dies with its parent dies with the *thread* that started it, so that thread has to
live as long as the process; and a caller may come from any event loop.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="duologue-sandbox", daemon=True).start()
    return loop


# A child that is forked has the loop, but not the thread that runs it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.cache_clear)


async def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on that loop, from any other one."""
    ended = threading.Event()

    async def watched() -> T:
        try:
            return await work()
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(watched(), _loop())
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.cancel()
        # Cancelled before it began, it never ends: hence the limit.
        await asyncio.shield(asyncio.to_thread(ended.wait, 5))
        raise
