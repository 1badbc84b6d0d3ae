"""The escape list: limits on a call's time, memory and processes, and the rest it leaves."""

import asyncio
import secrets

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


HIDES = """
import ctypes, os, platform, threading, time
def hidden():
    time.sleep(0.1)
    held = b"x" * (100 << 20)
    time.sleep(600)
def hide():
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=hidden).start()
        ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
    return pid
"""
"""A process whose first thread has ended looks like a process that has ended."""


@pytest.mark.parametrize("level", FULL)
async def test_a_process_without_its_first_thread_is_not_left_behind(
    start: Start, level: str
) -> None:
    session = await start(level)
    tasks = "print(len(os.listdir(f'/proc/{pid}/task')))"

    ran = await session(f"{HIDES}\npid = hide()\ntime.sleep(0.3)\n{tasks}")
    after = await session(tasks)

    assert (ran.output, after.output) == ("2\n", "1\n")


@pytest.mark.parametrize(("mib", "code"), [(250, 137), (2000, 0)])
async def test_memory_of_a_process_without_its_first_thread_counts(
    start: Start, mib: int, code: int
) -> None:
    session = await start("bubblewrap", memory_mib=mib)
    ran = await session(f"{HIDES}\nfor _ in range(3): hide()\ntime.sleep(1.5)")
    assert ran.exit_code == code


@pytest.mark.parametrize("level", FULL)
async def test_processes_are_few(start: Start, level: str) -> None:
    """The fork bomb is limited; on the bare host it gets all the processes it asks for."""
    session = await start(level)

    ran = await session(
        "import os, time\nn = 0\ntry:\n    for _ in range(150):\n"
        "        if os.fork() == 0:\n            time.sleep(600)\n        n += 1\n"
        "except BlockingIOError:\n    pass\nprint(n)"
    )
    again = await session("1 + 1")

    count = int(ran.output)
    assert count == 150 if level == "host" else 20 < count < 64
    assert again.output == "2\n"


@pytest.mark.parametrize(
    ("code", "language"),
    read_rows(__file__, "a_fork_bomb_ends_with_its_time"),
)
async def test_a_fork_bomb_ends_with_its_time(start: Start, code: str, language: str) -> None:
    session = await start("bubblewrap", seconds=1)

    ran = await session(code, language)

    assert ran.exit_code in (124, 137)
    assert (await session("1 + 1")).output.endswith("2\n")


@pytest.mark.parametrize("level", ["bubblewrap", "monty"])
@pytest.mark.parametrize(("mib", "is_had"), [(64, False), (512, True)])
async def test_memory_is_limited(start: Start, level: str, mib: int, is_had: bool) -> None:
    session = await start(level, memory_mib=mib)

    ran = await session("x = 'a' * (100 << 20)\nx = len(x)\nprint(x)")

    assert ("MemoryError" in ran.output) is not is_had
    assert (ran.output == f"{100 << 20}\n") is is_had


@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize(("mib", "code"), [(100, 137), (2000, 0)])
async def test_memory_of_all_processes_together_is_limited(
    start: Start, level: str, mib: int, code: int
) -> None:
    session = await start(level, memory_mib=mib)

    ran = await session(
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n"
        "        held = b'x' * (60 << 20)\n        time.sleep(2)\n        os._exit(0)\n"
        "for _ in range(5): os.wait()"
    )

    assert ran.exit_code == code, ran.output
    assert ("more than 100 MiB of memory" in ran.output) is (code == 137)


@pytest.mark.parametrize(
    "holds",
    read_rows(__file__, "memory_that_no_process_seems_to_hold_is_limited"),
)
@pytest.mark.parametrize(("mib", "code"), [(64, 137), (1000, 0)])
async def test_memory_that_no_process_seems_to_hold_is_limited(
    start: Start, holds: str, mib: int, code: int
) -> None:
    session = await start("bubblewrap", memory_mib=mib)
    ran = await session(f"import os, time\n{holds}\ntime.sleep(0.7)")
    assert ran.exit_code == code, ran.output


async def test_memory_in_files_is_limited(start: Start) -> None:
    session = await start("bubblewrap")

    ran = await session(
        """
import os
total = 0
for place in ("/work", "/tmp", "/dev/shm", "/dev", "/", "/packages", "/usr", "/run"):
    for number in range(40):
        try:
            with open(f"{place}/f{number}", "wb") as file:
                while True:
                    total += file.write(bytes(1 << 20))
        except OSError:
            pass
print(total >> 20)
"""
    )
    assert 100 < int(ran.output) <= 3 * 64


@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize("code", read_rows(__file__, "memory_without_a_process"))
async def test_memory_without_a_process_is_for_the_bare_host(
    start: Start, level: str, code: str
) -> None:
    session = await start(level)

    ran = await session(f"import os\n{code}\nprint('had')")

    assert ("PermissionError" if level == "bubblewrap" else "had\n") in ran.output


@pytest.mark.parametrize("level", FULL)
async def test_a_sockets_buffers_grow_on_the_bare_host_alone(start: Start, level: str) -> None:
    session = await start(level)
    ran = await session(
        "import socket\ns, _ = socket.socketpair()\nkind = socket.SOL_SOCKET\n"
        "before = s.getsockopt(kind, socket.SO_SNDBUF)\n"
        "s.setsockopt(kind, socket.SO_KEEPALIVE, 1)\n"
        "s.setsockopt(kind, socket.SO_SNDBUF, before // 4)\n"
        "s.getsockopt(kind, socket.SO_KEEPALIVE), s.getsockopt(kind, socket.SO_SNDBUF) == before"
    )
    assert ran.output == f"(1, {level == 'bubblewrap'})\n"


async def test_sockets_that_a_network_of_its_own_keeps_apart_can_be_had(start: Start) -> None:
    session = await start("bubblewrap")
    ran = await session(
        "import socket\nfor pair in ((1, 1), (2, 1), (2, 2), (10, 1), (16, 3)):\n"
        "    socket.socket(*pair).close()\nlen(socket.socketpair())"
    )
    assert ran.output == "2\n"


@pytest.mark.parametrize("level", LEVELS)
async def test_100_mb_of_output_are_cut(start: Start, level: str) -> None:
    session = await start(level, output_kib=2)

    ran = await session("for _ in range(1000): print('x' * 99_999)\nprint('end')")

    again = await session("1 + 1")
    left_out = 100_000_004 - 2048
    assert ran.exit_code == 0
    assert ran.output == (
        f"{'x' * 1024}\n[{left_out} bytes of output are omitted here; at most 2 KiB are kept]\n"
        f"{'x' * 1019}\nend\n"
    )
    assert again.output == "2\n"


@pytest.mark.parametrize("level", FULL)
async def test_endless_output_is_ended(start: Start, level: str) -> None:
    session = await start(level, output_kib=1)

    ran = await session("yes", "shell")

    assert ran.exit_code == 137
    assert ran.output.endswith("[ended: more than 128 MiB of output]\n")
    assert len(ran.output) < 1200


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
