"""The escape list: resources out of reach; each exists, for code on the bare host.

The same code runs at each level; at the level ``host`` it has to succeed, or it proves nothing.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.sandboxes import answerer, bystander, listener
from support.tables import read_rows

from .conftest import Start

pytestmark = pytest.mark.process

SECRET = "s3cret-" + os.urandom(4).hex()
LEVELS: tuple[str, ...] = ("host", "bubblewrap", "monty")


def loopback(folder: Path, stack: ExitStack) -> str:
    port = stack.enter_context(listener(SECRET.encode()))
    return f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 2).recv(99))"


def udp(folder: Path, stack: ExitStack) -> str:
    where = stack.enter_context(answerer(SECRET.encode(), socket.AF_INET, ("127.0.0.1", 0)))
    return f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.5)
    s.sendto(b"anything at all", {where})
    print(s.recv(99))
"""


def dns(folder: Path, stack: ExitStack) -> str:
    where = stack.enter_context(answerer(SECRET.encode(), socket.AF_INET, ("127.0.0.1", 0)))
    return f"""
import socket, struct
name = b"".join(bytes([len(part)]) + part for part in b"told.example.org".split(b".")) + b"\\0"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.5)
    s.connect({where})
    s.send(struct.pack(">6H", 1, 256, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1))
    print(s.recv(99)[12:])
"""


def abstract_socket(folder: Path, stack: ExitStack) -> str:
    name = "\0told-" + SECRET[7:]
    stack.enter_context(answerer(SECRET.encode(), socket.AF_UNIX, name))
    return f"""
import socket
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.settimeout(0.5)
    s.bind("\\0asks-{SECRET[7:]}")
    s.sendto(b"anything at all", {name!r})
    print(s.recv(99)[12:])
"""


def vsock(folder: Path, stack: ExitStack) -> str:
    """Return code that opens a socket from a virtual machine to its host, beyond all namespaces."""
    return f"""
import socket
socket.socket(40, socket.SOCK_STREAM).close()
print({SECRET[::-1]!r}[::-1])
"""


def passwd(folder: Path, stack: ExitStack) -> str:
    line = Path("/etc/passwd").read_text().splitlines()[0]
    # A traceback would show the word in the code.
    return f"print(open('/etc/passwd').read().replace({line!r}, {SECRET[::-1]!r}[::-1]))"


def home(folder: Path, stack: ExitStack) -> str:
    (folder / "home").mkdir()
    (folder / "home/notes").write_text(SECRET)
    return f"""
import os
for path in (os.path.expanduser("~/notes"), {str(folder / "home/notes")!r}):
    try:
        print(open(path).read())
    except OSError as error:
        print(error)
"""


def project(folder: Path, stack: ExitStack) -> str:
    own = str(Path(__file__).resolve())
    return f"print(open({own!r}).read().replace('the bare host', {SECRET[::-1]!r}[::-1]))"


def dotenv(folder: Path, stack: ExitStack) -> str:
    (folder / ".env").write_text(f"OPENAI_API_KEY={SECRET}")
    return f"""
for path in (".env", {str(folder / ".env")!r}):
    try:
        print(open(path).read())
    except OSError as error:
        print(error)
"""


def environment(folder: Path, stack: ExitStack) -> str:
    return "import os; print(dict(os.environ))"


def environ_of_others(folder: Path, stack: ExitStack) -> str:
    stack.enter_context(bystander({"TOKEN": SECRET}))
    return """
import glob
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        found = open(path).read()
    except OSError as error:
        continue
    # Of all that a busy machine runs: what is printed is cut where it gets long.
    print([part for part in found.split(chr(0)) if part.startswith("TOKEN=")])
"""


def descriptors(folder: Path, stack: ExitStack) -> str:
    (folder / "open").write_text(SECRET)
    # It is deliberately left open to children.
    number = os.open(folder / "open", os.O_RDONLY)
    stack.callback(os.close, number)
    os.set_inheritable(number, True)
    return f"""
import os
for number in range(3, 64):
    try:
        print(os.pread(number, 99, 0))
    except OSError as error:
        pass
print(open("/proc/{os.getpid()}/fd/{number}").read())
"""


REACHES: tuple[Callable[[Path, ExitStack], str], ...] = (
    *(loopback, udp, dns, abstract_socket, vsock, passwd, home, project, dotenv),
    *(environment, environ_of_others, descriptors),
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reach", REACHES, ids=lambda reach: reach.__name__)
async def test_what_is_outside_is_not_reached(
    start: Start,
    level: str,
    reach: Callable[[Path, ExitStack], str],
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reach is environment:
        # Even if cleared inside, the environment of the sandbox's parent may still contain it.
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    if reach is home:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    session = await start(level)

    ran = await session("print('tries')\n" + reach(tmp_path, stack))

    # Monty may refuse the code as a whole.
    assert ran.output.startswith("tries") or (level == "monty" and "import" in ran.output)
    assert (SECRET in ran.output) is (level == "host"), ran.output


def straight(path: Path) -> str:
    return f"open({str(path)!r}, 'w').write('x')"


def by_dots(path: Path) -> str:
    return f"open('../' * 30 + {str(path)!r}[1:], 'w').write('x')"


def by_link(path: Path) -> str:
    return (
        f"import os\nos.symlink({str(path.parent)!r}, 'a')\nopen('a/{path.name}', 'w').write('x')"
    )


def by_link_to_dots(path: Path) -> str:
    return (
        f"import os\nos.symlink('../' * 30 + {str(path.parent)!r}[1:], 'a')\n"
        f"open('a/{path.name}', 'w').write('x')"
    )


def by_root_of_another(path: Path) -> str:
    return f"open('/proc/{os.getppid()}/root{path}', 'w').write('x')"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "write",
    [straight, by_dots, by_link, by_link_to_dots, by_root_of_another],
    ids=lambda write: write.__name__,
)
async def test_nothing_is_written_outside(
    start: Start, level: str, write: Callable[[Path], str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)  # noqa: ASYNC240  quick
    path = tmp_path / "written"
    session = await start(level)

    ran = await session(f"print('tries')\n{write(path)}")

    assert ran.output.startswith("tries")
    assert path.exists() is (level == "host"), ran.output


@pytest.mark.parametrize("place", ["/", "/usr/bin", "/dev", "/packages/0", "{python}"])
async def test_what_is_shown_of_the_system_cannot_be_written(start: Start, place: str) -> None:
    session = await start("bubblewrap")

    ran = await session(
        f"import sys\nplace = {place!r}.format(python=sys.base_prefix)\n"
        "import os\nprint(len(os.listdir(place)) > 0)\nopen(place + '/x', 'w')"
    )

    assert ran.output.startswith("True")
    assert "Read-only file system" in ran.output


@pytest.mark.parametrize("level", LEVELS)
async def test_another_process_gets_no_signal(start: Start, level: str) -> None:
    """The code signals its parent, or every process."""
    session = await start(level)
    with bystander() as process:
        ran = await session(f"print('tries')\nimport os\nos.kill({process.pid}, 9)\nprint('did')")
        assert "tries" in ran.output
        assert ("did" in ran.output) is (level == "host"), ran.output
        if level == "host":
            # On a busy machine, the process ends a moment after the signal.
            assert await asyncio.to_thread(process.wait, 60) == -9
        else:
            assert process.poll() is None


@pytest.mark.parametrize("whom", ["1", "-1", "os.getppid()", "0"])
async def test_killing_pid_1_and_everyone_ends_but_the_own_sandbox(start: Start, whom: str) -> None:
    session, other = await start("bubblewrap"), await start("bubblewrap")
    await session("x = 1")
    await other("y = 2")

    # If this ever ran outside the sandbox, the assertion would prevent the kill.
    ran = await session(
        "import os, socket\nassert socket.gethostname() == 'sandbox' and os.getpid() < 50\n"
        f"print('tries')\ntry: os.kill({whom}, 9)\nexcept OSError: pass\nprint(x)"
    )

    assert ran.output.startswith("tries")
    assert (ran.exit_code, ran.output) == (0, "tries\n1\n") or ran.exit_code == 137
    assert (await session("1 + 1")).output.endswith("2\n")
    assert (await other("y")).output == "2\n"


@pytest.mark.parametrize("level", ["host", "monty"])
@pytest.mark.parametrize(
    "way",
    read_rows(__file__, "a_shell_that_was_never_given_is_not_had"),
)
async def test_a_shell_that_was_never_given_is_not_had(
    start: Start, level: str, way: str, tmp_path: Path
) -> None:
    """LazyLLM's agent adds a host shell by default; duologue adds no such tool."""
    session = await start(level)

    await session(way.format(command=f"echo > {tmp_path}/made"))

    assert (tmp_path / "made").exists() is (level == "host")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_second_session_has_no_variables_of_the_first(start: Start, level: str) -> None:
    first, second = await start(level), await start(level)
    await first(f"word = {SECRET!r}")
    assert SECRET in (await first("word")).output

    found = [
        (await second(code)).output
        for code in ("word", "globals()", "[v for v in list(globals().values())]")
    ]

    assert SECRET not in "".join(found)
    assert "NameError" in found[0]


async def test_a_second_session_has_no_files_or_memory_of_the_first(start: Start) -> None:
    first, second = await start("bubblewrap"), await start("bubblewrap")
    places = ("/work/note", "/tmp/note", "/dev/shm/note")  # noqa: S108
    for place in places:
        await first(f"print(open({place!r}, 'w').write({SECRET!r}))")
        assert SECRET in (await first(f"open({place!r}).read()")).output

    found = [(await second(f"open({place!r}).read()")).output for place in places]
    ids = await second("import os\n[p for p in os.listdir('/proc') if p.isdigit()]")

    assert all("FileNotFoundError" in output for output in found)
    # The sandbox has two processes; one of them is bubblewrap.
    assert ids.output == "['1', '2']\n"
