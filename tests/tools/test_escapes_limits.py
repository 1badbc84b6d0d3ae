"""The escape list: limits on a call's time, memory and processes, and the rest it leaves."""

import asyncio
import re
import secrets
from typing import Any

import pytest

from support.sandboxes import (
    Session,
    are_gone,
    family,
    is_running,
    need,
    program,
    wait_until,
)
from support.tables import read_rows

from .conftest import Start

pytestmark = pytest.mark.process

LEVELS: tuple[str, ...] = ("host", "bubblewrap", "monty")
FULL: tuple[str, ...] = ("host", "bubblewrap")
HIDES = read_rows(__file__, "hides")
"""Code for a process that looks like an ended process, because its first thread has ended."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "code",
    read_rows(__file__, "time_is_limited"),
)
async def test_time_is_limited(start: Start, level: str, code: str) -> None:
    session = await start(level, seconds=1)
    await session("x = 1")

    ran = await session(f"print('begins')\n{code}")

    assert ran.exit_code == 124
    assert "begins\n" in ran.output
    assert "[ended: it ran longer than 1 s]" in ran.output
    # Monty keeps its variables; a process loses them.
    after = await session("x")
    assert after.output.startswith("1\n" if level == "monty" else "[the interpreter was restarted")


@pytest.mark.parametrize("level", FULL)
async def test_time_of_a_shell_and_all_it_started_is_limited(start: Start, level: str) -> None:
    word = f"600.{secrets.randbelow(10**9)}"
    session = await start(level, seconds=1)

    running = asyncio.create_task(
        session(f"echo begins; (setsid sleep {word} &) ; sleep {word} & sleep {word}", "shell")
    )
    await asyncio.to_thread(wait_until, "it begins", lambda: is_running(word))
    ran = await running

    assert (ran.exit_code, ran.output.splitlines()[0]) == (124, "begins")
    await asyncio.to_thread(wait_until, "it is gone", lambda: not is_running(word))


@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize(
    "command",
    read_rows(__file__, "no_daemon_is_left_behind"),
)
async def test_no_daemon_is_left_behind(start: Start, level: str, command: str) -> None:
    word = f"600.{secrets.randbelow(10**9)}"
    session = await start(level)

    running = asyncio.create_task(session(command.format(word=word), "shell"))
    await asyncio.to_thread(wait_until, "it begins", lambda: is_running(word))
    ran = await running

    assert (ran.exit_code, ran.output) == (0, "")
    assert not is_running(word)
    assert (await session("1 + 1")).output == "2\n"


async def test_threads_rest_between_calls(start: Start) -> None:
    session = await start("bubblewrap")
    counts = """
import threading, time
n = 0
def count():
    global n
    while True:
        n += 1
        time.sleep(0.02)
threading.Thread(target=count, daemon=True).start()
time.sleep(0.3)
"""
    before = int((await session(f"{counts}print(n)")).output)
    await asyncio.sleep(2)
    after = int((await session("print(n)")).output)
    await session.close()

    assert before > 3
    assert after - before < 50


async def goes_on(session: Session, *pauses: float) -> bool:
    """Return whether the interpreter still answers after pauses of these seconds."""
    said = "2\n"
    for pause in pauses or (1,):
        await asyncio.sleep(pause)
        said = (await session("1 + 1")).output
        if said != "2\n":
            break
    await session.close()
    return said == "2\n"


TIMER = """
import ctypes, os, signal, time
woken = 0
def count(*_):
    global woken
    woken += 1
    if woken > 20:
        {then}
signal.signal(signal.SIGCONT, count)
event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
timer = ctypes.c_void_p()
libc = ctypes.CDLL(None)
assert libc.timer_create(0, event, ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 20_000_000, 0, 20_000_000), None) == 0
time.sleep(0.1)
print(woken > 1)
"""


@pytest.mark.parametrize("then", ["pass", "os.kill(os.getpid(), signal.SIGSTOP)"])
async def test_no_timer_wakes_what_was_stopped(start: Start, then: str) -> None:
    """The same applies if the code stops itself again at each look."""
    session = await start("bubblewrap", seconds=5)

    ran = await session(TIMER.format(then=then))

    assert ran.output == "True\n"
    # On a busy machine it may take several looks to find it running.
    assert not await goes_on(session, 1, 3, 9)


async def test_what_rests_is_left_alone(start: Start) -> None:
    session = await start("bubblewrap")
    await session(TIMER.format(then="pass").replace("20_000_000", "0"))
    assert await goes_on(session)


@pytest.mark.parametrize("level", FULL)
async def test_a_process_without_its_first_thread_is_not_left_behind(
    start: Start, level: str
) -> None:
    session = await start(level)
    tasks = "print(len(os.listdir(f'/proc/{pid}/task')))"

    ran = await session(f"{HIDES}\npid = hide()\ntime.sleep(0.3)\n{tasks}")
    after = await session(tasks)

    assert (ran.output, after.output) == ("2\n", "1\n")


CODES = [
    pytest.param(row, level, id=f"{row['name']}-{level}")
    for row in read_rows(__file__, "code_within_limits")
    for level in row["levels"]
]


@pytest.mark.parametrize(("row", "level"), CODES)
async def test_code_stays_within_its_limits(start: Start, row: dict[str, Any], level: str) -> None:
    """Each limit has a row in which it is large enough, or the same code runs on the bare host."""
    session = await start(level, **row.get("limits", {}))

    code = row["code"].replace("{hides}", HIDES)
    ran = await session(code, row.get("language", "python"))
    again = await session("1 + 1")

    assert ran.exit_code in row.get("exit_codes", [0]), ran.output
    assert re.search(row.get("output", ""), ran.output, re.DOTALL), ran.output
    assert again.output.endswith("2\n")
    # Code that stayed within its limits leaves its interpreter.
    assert again.output == "2\n" or ran.exit_code != 0


async def levels() -> list[str]:
    """Return the levels that work on this machine, at least two."""
    await need("bubblewrap")
    return list(LEVELS)


async def test_nothing_outlives_a_killed_program() -> None:
    busy = "x = 1\nprint(x)", "while True: x += 1"
    with program(*[(level, busy) for level in await levels()]) as process:
        assert process.stdout is not None
        for _ in range(2 * len(LEVELS)):
            assert await asyncio.to_thread(process.stdout.readline) == "runs\n"
        await asyncio.sleep(0.5)
        children = await asyncio.to_thread(family, process.pid)
        process.kill()

    assert len(children) >= 2 * len(LEVELS)
    await asyncio.to_thread(wait_until, "they are gone", lambda: are_gone(children))


async def test_nothing_outlives_a_program_that_ends() -> None:
    with program(*[(level, ("x = 1", "x", "input()")) for level in await levels()]) as process:
        assert process.stdout is not None
        said = await asyncio.to_thread(process.stdout.readline)
        children: set[int] = set()
        while said == "runs\n":
            children |= await asyncio.to_thread(family, process.pid)
            said = await asyncio.to_thread(process.stdout.readline)
        assert (said, await asyncio.to_thread(process.wait)) == ("", 0)

    assert len(children) >= 2 * len(LEVELS)
    await asyncio.to_thread(wait_until, "they are gone", lambda: are_gone(children))
