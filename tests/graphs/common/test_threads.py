"""Blocking calls run in a thread each, and no caller waits in vain."""

import asyncio
from contextvars import ContextVar
from threading import Barrier, Event

import pytest

from duologue.graphs.common.threads import in_thread
from duologue.tools.registry.functions import call

# More than the threads of asyncio, which has at most 32.
MANY = 40
PATIENCE = 30
"""Seconds until a test fails."""

WHERE: ContextVar[str] = ContextVar("WHERE", default="nowhere")


async def test_functions_that_wait_for_each_other_run_at_once() -> None:
    """L7: no number of waiting calls blocks another one."""
    meeting = Barrier(MANY)

    def meet(number: int) -> int:
        meeting.wait(PATIENCE)
        return number

    calls = (call("function", "meet", meet, number) for number in range(MANY))
    assert await asyncio.gather(*calls) == [*range(MANY)]


async def test_files_are_read_while_functions_wait() -> None:
    read = Event()
    waiting = [asyncio.create_task(in_thread(read.wait, PATIENCE)) for _ in range(MANY)]
    await asyncio.sleep(0)
    await asyncio.to_thread(read.set)
    assert all(await asyncio.gather(*waiting))


def test_a_program_that_is_interrupted_does_not_wait_for_a_function() -> None:
    begun, gate = Event(), Event()
    ended: list[bool] = []

    def wait() -> None:
        begun.set()
        ended.append(gate.wait(PATIENCE))

    async def interrupted() -> None:
        waiting = asyncio.create_task(in_thread(wait))
        await asyncio.to_thread(begun.wait, PATIENCE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(interrupted())
    assert ended == []
    gate.set()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
async def test_what_a_function_raises_is_raised_where_it_is_awaited(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await in_thread(fail)
    assert caught.value is error


async def test_a_function_knows_the_context_of_its_caller() -> None:
    WHERE.set("here")
    assert await in_thread(WHERE.get) == "here"
