"""Blocking calls run in a thread each; synchronous functions run on a background loop."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Iterator
from contextvars import ContextVar
from inspect import signature
from pathlib import Path
from threading import Barrier

import pytest

from duologue.graphs import (
    DuologueError,
    Session,
    SessionError,
    astream,
    converse,
    load_conversation,
    stream,
)
from duologue.graphs.common.threads import in_background, in_thread, iterate, run_coroutine
from duologue.graphs.events import Event, MessageSaid
from duologue.nodes.testing import ScriptedChatModel
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
    read = threading.Event()
    waiting = [asyncio.create_task(in_thread(read.wait, PATIENCE)) for _ in range(MANY)]
    await asyncio.sleep(0)
    await asyncio.to_thread(read.set)
    assert all(await asyncio.gather(*waiting))


def test_a_program_that_is_interrupted_does_not_wait_for_a_function() -> None:
    begun, gate = threading.Event(), threading.Event()
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


# The background loop: results, errors, interrupts and nesting of the synchronous functions.


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_all_calls_share_one_loop_from_any_thread() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    found: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: found.append(run_coroutine(loop())))
    thread.start()
    thread.join()
    assert found == [run_coroutine(loop())]


async def test_it_works_where_a_loop_is_already_running() -> None:
    assert run_coroutine(double(4)) == 8
    assert list(iterate(counted(2, []))) == [0, 1]


def test_a_coroutine_that_waits_for_another_on_its_own_loop_is_refused_not_stuck() -> None:
    async def outer() -> int:
        return run_coroutine(double(1))

    with pytest.raises(DuologueError, match="await the asynchronous one"):
        run_coroutine(outer())
    assert run_coroutine(double(1)) == 2


def test_a_synchronous_twin_looks_like_its_async_function_but_for_the_name() -> None:
    async def adouble(number: int, *, times: int = 1) -> int:
        """Double a number several times."""
        return number if times == 0 else await adouble(2 * number, times=times - 1)

    twin = in_background(adouble)
    assert twin(3, times=2) == 12
    assert twin.__name__ == "double"
    assert inspect.signature(twin) == inspect.signature(adouble)
    assert twin.__doc__ == adouble.__doc__
    with pytest.raises(TypeError, match=r" double\(\) missing 1 required|\.double\(\) missing 1"):
        twin()  # type: ignore[call-arg]
    # Frameworks look behind wrappers for coroutine functions.
    assert not inspect.iscoroutinefunction(inspect.unwrap(twin))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes can't be forked")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    program = """
        import os
        from duologue.graphs.common.threads import run_coroutine

        async def double(number):
            return 2 * number

        run_coroutine(double(1))
        child = os.fork()
        if child == 0:
            os._exit(run_coroutine(double(21)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "42\n"


async def counted(end: int, closed: list[bool]) -> AsyncGenerator[int, None]:
    try:
        for number in range(end):
            await asyncio.sleep(0)
            yield number
    finally:
        await asyncio.sleep(0)
        closed.append(True)


def test_an_iteration_that_is_left_closes_the_generator_at_once() -> None:
    closed: list[bool] = []
    items = iterate(counted(3, closed))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]  # an iterator made by a generator
    assert closed == [True]


def test_the_signature_of_the_synchronous_stream_returns_an_iterator() -> None:
    for function in (stream, Session.stream):
        assert signature(function).return_annotation == Iterator[Event]
    assert signature(astream).return_annotation == AsyncGenerator[Event, None]


def test_what_a_generator_raises_is_raised_where_it_happens() -> None:
    async def source() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError("lost")

    items = iterate(source())
    assert next(items) == 1
    with pytest.raises(LookupError, match="lost"):
        next(items)


TALK = load_conversation(
    {
        "task": "Plan.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
)


def test_a_stream_that_is_left_frees_its_session_and_loses_nothing(tmp_path: Path) -> None:
    model = ScriptedChatModel(script=["Dig.", "Dug."])
    store = tmp_path / "sessions.db"
    events = stream(TALK, session="s", model=model, store=store)
    for event in events:
        if isinstance(event, MessageSaid):
            break
    with pytest.raises(SessionError, match="'s'"):
        converse(TALK, session="s", model=model, store=store)
    events.close()  # type: ignore[attr-defined]  # an iterator made by a generator
    result = Session("s", store=store).resume(model=model)
    assert result.transcript == [("Ann", "Dig."), ("Bob", "Dug.")]


CHILD = """
    import asyncio
    from duologue.graphs.common.threads import run_coroutine

    async def work():
        print("working", flush=True)
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.2)
            print("in order", flush=True)

    try:
        run_coroutine(work())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


OTHER_THREAD_HEARS = """
    import signal, threading

    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
"""


@pytest.mark.parametrize("before", ["", OTHER_THREAD_HEARS], ids=["main", "another thread"])
def test_an_interrupt_cancels_the_work_and_waits_until_it_is_in_order(before: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(before) + textwrap.dedent(CHILD)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        os.kill(child.pid, signal.SIGINT)
        out, errors = child.communicate(timeout=60)
    assert out == "in order\ninterrupted\n"
    assert errors == ""
    assert child.returncode == 0
