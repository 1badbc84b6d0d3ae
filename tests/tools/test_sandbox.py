"""Running code: its output, the variables kept between calls, and the refusals of each level."""

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from duologue.graphs import Sandbox, SpecError
from support.sandboxes import Session, family, is_running, need, wait_until
from support.tables import read_rows

from .conftest import Start

LEVELS = ("host", "bubblewrap", "monty")
FULL = ("host", "bubblewrap")
ANEW = (
    "[the interpreter was restarted: variables and files of earlier calls are gone, so define them "
    "again if you need them]\n"
)


async def once(level: str, code: str, language: str = "python", **limits: float) -> Any:  # noqa: ANN401
    """Run code in a new interpreter; return its exit code, its output and its level."""
    await need(level)
    session = Session(level, **limits)
    ran = await session(code, language)
    await session.close()
    return ran


CODES = [
    pytest.param(row, level, id=f"{row['name']}-{level}")
    for row in read_rows(__file__, "code_that_runs")
    for level in row["levels"]
]


@pytest.mark.part(25)
@pytest.mark.parametrize(("row", "level"), CODES)
async def test_code_has_its_output_and_exit_code(row: dict[str, Any], level: str) -> None:
    ran = await once(level, row["code"], row.get("language", "python"))
    assert (ran.exit_code, ran.level) == (row.get("exit_code", 0), level)
    assert ran.output == row.get("output", ran.output)
    assert re.search(row.get("matches", ""), ran.output, re.DOTALL), ran.output


@pytest.mark.parametrize("level", LEVELS)
async def test_an_exception_gives_a_traceback_of_the_code_alone(level: str) -> None:
    ran = await once(level, "def f(x):\n    return 1 / x\n\nprint('before')\nf(0)")

    assert ran.exit_code == 1
    lines = [line for line in ran.output.splitlines() if not set(line) <= set(" ~^")]
    assert [line.split("<python")[0] for line in lines] == [
        "before",
        "Traceback (most recent call last):",
        '  File "',
        "    f(0)",
        '  File "',
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
    ]
    assert "line 5, in <module>" in lines[2]
    assert "line 2, in f" in lines[4]


@pytest.mark.parametrize("level", LEVELS)
async def test_variables_are_kept_after_an_exception_too(start: Start, level: str) -> None:
    session = await start(level)
    await session("x = 20\ndef double(n): return 2 * n")
    assert (await session("x += 1\n1 / 0")).exit_code == 1
    assert (await session("double(x)")).output == "42\n"


@pytest.mark.part(4)
@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize(
    ("code", "exit_code", "output"),
    read_rows(__file__, "ends_of_the_code_leave_the_interpreter"),
)
async def test_ends_of_the_code_leave_the_interpreter(
    start: Start, level: str, code: str, exit_code: int, output: str
) -> None:
    session = await start(level)
    await session("x = 1")

    ran = await session(code)

    assert ran.exit_code == exit_code
    assert output in ran.output
    assert (await session("x")).output == "1\n"
    assert "EOFError" in (await session("input()")).output


@pytest.mark.part(3)
@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize(
    ("code", "exit_code"),
    read_rows(__file__, "an_interpreter_that_broke_off_is_started_anew"),
)
async def test_an_interpreter_that_broke_off_is_started_anew(
    start: Start, level: str, code: str, exit_code: int
) -> None:
    session = await start(level)
    await session("x = 1")

    ran = await session(f"print('last words')\n{code}")

    assert ran.exit_code == exit_code
    assert ran.output.startswith("last words\n")
    assert f"[the interpreter crashed with exit code {exit_code}]" in ran.output
    after = await session("print('x' in globals())")
    assert after.output == ANEW + "False\n"
    assert (await session("2")).output == "2\n"


FIND = """
import sys
frame = sys._getframe()
while "mark" not in frame.f_locals:
    frame = frame.f_back
mark, answers = frame.f_locals["mark"], frame.f_locals["answers"]
"""


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("forgery", "exit_code", "output"),
    read_rows(__file__, "a_forged_answer_is_the_own_answer_and_no_more"),
)
async def test_a_forged_answer_is_the_own_answer_and_no_more(
    start: Start, forgery: str, exit_code: int, output: str
) -> None:
    """Output of code is data: forged output can only set an exit code, and blocks no other code."""
    session, other = await start("bubblewrap", seconds=2), await start("bubblewrap")
    await other("x = 'theirs'")

    ran = await session(f"import os\n{FIND}\n_ = None\n{forgery}\nNone")

    assert ran.exit_code == exit_code, ran
    assert output in ran.output
    # Code that falsely reports its end costs the next call its time.
    after = await session("1 + 1")
    assert after.exit_code in (0, 124)
    assert (await session("3")).output.removeprefix(ANEW) == "3\n"
    assert (await other("x")).output == "'theirs'\n"


async def test_orders_that_the_code_has_stolen_cost_their_time_alone(start: Start) -> None:
    session = await start("bubblewrap", seconds=1)
    await session(
        f"import os, threading\n{FIND}\norders = frame.f_locals['orders']\n"
        "def steal():\n    while True: os.read(orders, 99999)\n"
        "threading.Thread(target=steal, daemon=True).start()"
    )
    for _ in range(5):
        stolen = await session("1 + 1")
        assert stolen.exit_code in (0, 124, 1)
        if stolen.exit_code:
            # The thief is gone now; the order that it stole first depends on the machine.
            break
    else:
        return
    assert (await session("1 + 1")).output.removeprefix(ANEW) == "2\n"


async def test_shell_and_python_share_the_folder_work(start: Start) -> None:
    session = await start("bubblewrap")
    assert (await session("pwd; echo $HOME; echo 7 > n", "shell")).output == "/work\n/work\n"
    assert (await session("int(open('n').read())")).output == "7\n"
    await session("open('n', 'w').write('8')")
    assert (await session("cat /work/n", "shell")).output == "8"


async def test_the_host_has_a_folder_of_its_own_that_is_gone_afterwards(start: Start) -> None:
    session = await start("host")
    folder = Path((await session("import os\nprint(os.getcwd())")).output.strip())
    assert (await session("pwd", "shell")).output == f"{folder}\n"
    assert await asyncio.to_thread(folder.is_dir)
    await session.close()
    assert not await asyncio.to_thread(folder.exists)


@pytest.mark.parametrize("level", LEVELS)
async def test_keys_run_side_by_side_and_one_key_one_after_another(
    start: Start, level: str
) -> None:
    # The sessions run at once: neither waits for the other to finish.
    first, second = await start(level), await start(level)
    await asyncio.gather(first("x = 'first'"), second("x = 'second'"))
    found = await asyncio.gather(first("x"), second("x"))
    assert [ran.output for ran in found] == ["'first'\n", "'second'\n"]


@pytest.mark.part(1)
@pytest.mark.parametrize("level", LEVELS)
async def test_an_interpreter_that_has_gone_on_without_its_session_is_not_its_own(
    start: Start,
    level: str,
) -> None:
    """The effects of an unrecorded call, or of another process's call, must not show."""
    session = await start(level)
    await session("x = ['recorded']")
    recorded = session.kept
    await asyncio.gather(session("x.append('one')"), session("x.append('other')"))
    session.kept = recorded
    found = (await session("x")).output
    if level == "monty":
        assert found == "['recorded']\n"
    else:
        assert found.startswith(ANEW)
        assert "NameError" in found


def runs_monty(pid: int) -> bool:
    try:
        return b'"monty": true' in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        # A process of another test has ended meanwhile.
        return False


async def test_an_idle_process_of_monty_that_was_ended_costs_nothing(start: Start) -> None:
    """A machine short of memory may end it."""
    session = await start("monty")
    await session("x = 1")
    children = await asyncio.to_thread(family, os.getpid())
    idle = {pid for pid in children if runs_monty(pid)}
    assert idle
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    # The library knows the end of a process once it has read its exit code.
    known = [Path(f"/proc/{pid}") for pid in idle]
    await asyncio.to_thread(wait_until, "ends are known", lambda: not any(map(Path.exists, known)))
    assert (await session("x + 1")).output == "2\n"


@pytest.mark.exhaustive
async def test_many_sessions_take_turns_and_few_are_kept(start: Start) -> None:
    sessions = [await start("bubblewrap") for _ in range(10)]
    found = await asyncio.gather(*[each("x = 1\nx") for each in sessions])
    assert {ran.output for ran in found} == {"1\n"}
    for each in sessions:
        await each("x = 2")

    again = [(await each("'x' in globals()")).output for each in reversed(sessions)]

    assert again[:8] == ["True\n"] * 8
    assert again[8:] == [f"{ANEW}False\n"] * 2


@pytest.mark.parametrize("level", FULL)
async def test_a_cancelled_call_is_killed(start: Start, level: str) -> None:
    word = f"600.{secrets.randbelow(10**9)}"
    session = await start(level)
    running = asyncio.create_task(session(f"sleep {word}", "shell"))
    await asyncio.to_thread(wait_until, "it begins", lambda: is_running(word))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await asyncio.to_thread(wait_until, "it is gone", lambda: not is_running(word))
    assert (await session("1")).output == "1\n"


async def test_a_cancelled_call_in_monty_leaves_what_was(start: Start) -> None:
    session = await start("monty")
    await session("x = 1")
    running = asyncio.create_task(session("x = 2\nwhile True: pass"))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await session("x")).output == "1\n"


@pytest.mark.parametrize("level", LEVELS)
def test_calls_come_from_any_event_loop(level: str) -> None:
    asyncio.run(need(level))
    session = Session(level)
    asyncio.run(session("x = 1"))
    assert asyncio.run(session("x")).output == "1\n"
    asyncio.run(session.close())


async def test_what_was_closed_is_started_anew(start: Start) -> None:
    session = await start("bubblewrap")
    await session("x = 1")
    await session.close()
    assert (await session("1")).output == f"{ANEW}1\n"
    await session.close()


RESUMES = """
import asyncio, sys
from duologue.graphs.conversation.sandbox import Kept, Sandbox
from duologue.tools.sandbox.sandbox import run
kept = Kept.model_validate_json(sys.stdin.read())
ran = asyncio.run(run(Sandbox(level=sys.argv[1]), "python", "double(x)", kept))
print(ran.output, end="")
"""


@pytest.mark.part(1)
@pytest.mark.parametrize("level", ["monty", "bubblewrap"])
async def test_another_process_goes_on(start: Start, level: str) -> None:
    session = await start(level)
    await session("x = 21\ndef double(n): return 2 * n")

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", RESUMES, level],
        input=session.kept.model_dump_json(),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    if level == "monty":
        assert done.stdout == "42\n"
    else:
        assert done.stdout.startswith(f"{ANEW}Traceback")


async def test_variables_too_large_to_keep_leave_the_former_ones(start: Start) -> None:
    session = await start("monty")
    await session("x = 1")
    ran = await session("x = 'a' * 3_000_000\nlen(x)")
    assert ran.exit_code == 0
    assert ran.output.startswith("3000000\n[the variables take 2")
    assert "values from before this call" in ran.output
    assert (await session("x")).output == "1\n"


@pytest.mark.parametrize(
    "memory", ["!!!not base64", "ä", "Z2FyYmFnZQ==", "half"], ids=["letters", "ä", "bytes", "half"]
)
async def test_variables_that_cannot_be_read_are_gone_and_no_more(
    start: Start, memory: str
) -> None:
    """This happens after an update of the interpreter, or with a damaged file."""
    session = await start("monty")
    await session("x = 1")
    former = session.kept.memory or ""
    half = former[: len(former) // 8 * 4]
    session.kept = session.kept.model_copy(update={"memory": half if memory == "half" else memory})

    lost = await session("y = 2\ny")
    after = await session("y")

    assert (lost.exit_code, lost.output) == (0, f"{ANEW}2\n")
    assert (after.exit_code, after.output) == (0, "2\n")


async def test_variables_survive_a_lack_of_memory(start: Start) -> None:
    session = await start("monty", memory_mib=128)
    await session("keep = 1")

    ran = await session("sorted([str(i) for i in range(10**6)])[0]")

    assert ran.exit_code == 1
    assert "MemoryError" in ran.output
    assert "they have their values from before this call" in ran.output
    assert (await session("keep")).output == "1\n"


async def test_output_is_cut_at_its_exact_size(start: Start) -> None:
    session = await start("host", output_kib=1)
    for size in (0, 1024, 1025, 2048, 10**6):
        whole = "a" * (size // 2) + "z" * (size - size // 2)
        ran = await session(f"print('a' * {size // 2} + 'z' * {size - size // 2}, end='')")
        said = f"[{size - 1024} bytes of output are omitted here; at most 1 KiB are kept]"
        cut = f"{whole[:512]}\n{said}\n{whole[-512:]}"
        assert ran.output == (cut if size > 1024 else whole)


async def test_no_character_is_cut_in_two(start: Start) -> None:
    session = await start("host", output_kib=1)
    for character, shift in product("ä→🙂", range(5)):
        text = "x" * shift + character * 2000
        cut = (await session(f"print({text!r}, end='')")).output
        head, said, tail = cut.split("\n")
        assert "\ufffd" not in cut
        kept = len(head.encode()) + len(tail.encode())
        assert int(said[1:].split()[0]) == len(text.encode()) - kept
        assert set(tail) == {character}


async def test_code_that_is_too_long_is_not_run() -> None:
    ran = await once("monty", f"print(1)\n# {'x' * 102_400}")
    assert ran.exit_code == 126
    assert "bytes; the limit is 102400]" in ran.output


@pytest.mark.parametrize("language", ["python", "shell"])
@pytest.mark.parametrize("code", ["echo = 'a\0b'", "echo = '\ud800'"], ids=["NUL", "surrogate"])
async def test_code_that_is_no_text_is_not_run(start: Start, code: str, language: str) -> None:
    session = await start("host")
    await session("x = 1")
    ran = await session(code, language)
    assert ran.exit_code == 126
    assert "[not run: the code contains a NUL or a lone surrogate" in ran.output
    assert (await session("x")).output == "1\n"


async def test_a_shell_that_does_not_start_leaves_the_interpreter(start: Start) -> None:
    session = await start("bubblewrap")
    await session(
        "import os\nx, held = 1, []\ntry:\n    while True: held.append(os.dup(1))\n"
        "except OSError: pass"
    )
    ran = await session("echo", "shell")
    assert ran.exit_code == 126
    assert "[the shell could not be started: " in ran.output
    assert (await session("x")).output == "1\n"


@pytest.mark.parametrize("level", FULL)
@pytest.mark.parametrize("name", ["answers", "orders"])
async def test_a_channel_that_does_not_wait_is_mended(start: Start, level: str, name: str) -> None:
    session = await start(level, output_kib=1)
    await session(f"import os\n{FIND}\nos.set_blocking(frame.f_locals[{name!r}], False)")
    ran = await session("x = 'x' * 2_000_000\nprint(x)")
    after = await session("len(x)")
    assert ran.exit_code == 0
    assert f"[{2_000_001 - 1024} bytes of output are omitted" in ran.output
    assert after.output == "2000000\n"


@pytest.mark.parametrize(
    "field", read_rows(__file__, "limits_without_sense_are_refused"),
)  # fmt: skip
def test_limits_without_sense_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Sandbox.model_validate(field)


async def test_monty_has_no_shell() -> None:
    with pytest.raises(SpecError, match=r"sandbox\.level: 'monty' has no shell; set the level to"):
        await once("monty", "echo", "shell")


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace bwrap on the path by a program that always fails."""
    # Every user must reach the folder; the tests' own folder does not allow this.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        broken = Path(folder) / "bwrap"
        broken.write_text("#!/bin/sh\necho 'no namespaces for you' >&2; exit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        known: dict[str, str | None] = {}
        monkeypatch.setattr("duologue.tools.sandbox.sandbox._problems", lambda: known)
        yield


@pytest.mark.usefixtures("no_bubblewrap")
async def test_without_bubblewrap_python_runs_in_monty_and_a_shell_nowhere() -> None:
    assert (await once("auto", "1 + 1")).level == "monty"
    with pytest.raises(SpecError, match=r"level: bubblewrap .*no namespaces.* a shell needs it"):
        await Session("auto")("echo", "shell")
    with pytest.raises(SpecError, match=r"to 'monty' for Python without a shell, or, .* to 'host'"):
        await Session("bubblewrap")("1 + 1")


async def test_auto_takes_bubblewrap_where_it_works() -> None:
    await need("bubblewrap")
    for language in ("python", "shell"):
        assert (await once("auto", "", language)).level == "bubblewrap"
