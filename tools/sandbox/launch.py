"""Starting the process of an interpreter: on the host, for Monty, and with bubblewrap.

With bubblewrap, the interpreter is full Python and a shell, isolated from the machine. It sees the
system's programs, Python with its packages, and empty folders. It sees no network, no other
processes and no environment variables. A filter refuses system calls that allocate memory outside
of processes, reach into other processes, make sockets outside of its network, or serve only system
tools. `tools.sandbox.workers` enforces the limits of a call.
"""

import asyncio
import json
import os
import platform
import shutil
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ...graphs.conversation.sandbox import Sandbox

START_SECONDS: Final = 15
"""Seconds an interpreter may take to start. They do not count as the code's time."""

LIMITS: Final = {"CORE": 0, "FSIZE": 16 << 20, "NOFILE": 256, "NPROC": 64}
"""Limits of each process in a sandbox: size of a core dump and of a file in bytes, open files,
processes.
"""


class StartError(Exception):
    """An interpreter did not start. The message names the reason."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of an interpreter's process."""

    command: Sequence[str]
    """A Python interpreter and its arguments, without those of the worker."""
    environment: Mapping[str, str]
    """The complete environment of the process."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of each process, by their names in `resource` without ``RLIMIT_``."""
    packages: Sequence[str] = ()
    """Package folders from which Python code may import, in addition to the standard library."""
    shell: str = "/bin/sh"
    """The shell's program."""
    folder: str | None = None
    """A new folder in which the process starts. It is removed when the process ends."""
    in_memory: Sequence[str] = ()
    """The in-memory folders in the process's own namespaces. Empty if it has no own namespaces."""
    group: bool = False
    """Whether the process leads a process group on the bare host."""
    is_monty: bool = False
    """Whether Monty runs the code."""
    filter: bytes | None = None
    """Bytes that the process reads from a file descriptor, whose number replaces ``{filter}`` in
    the command. None if it reads none.
    """
    own_mib: int = 0
    """Memory that the process needs in addition to the code's, in MiB."""
    grace: float = 0
    """Seconds after the time limit in which the process itself may report that the time is over."""


def launch_on_host() -> Launch:
    """Create a folder, and return the parameters of an interpreter in it, on the bare host. Blocks.

    The code is not isolated and may do anything that the user may do. Only its time, its output
    and, on Linux, its memory are limited.
    """
    if sys.platform == "win32":
        raise StartError("it needs Linux or macOS")
    return Launch(
        command=[sys.executable, "-P", "-B", "-u", "-X", "utf8"],
        environment=os.environ,
        shell="/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
        folder=tempfile.mkdtemp(prefix="duologue-"),
        group=True,
    )


def launch_monty() -> Launch:
    """Return the parameters of a process of Monty, a subset of Python without files. Blocks.

    The process uses `tools.sandbox.monty_worker`. One process serves many sessions, since it keeps
    no state.
    """
    if find_spec("pydantic_monty") is None:
        raise StartError("pydantic-monty is not installed")
    # The interpreter reads no variables; its process needs these to find the program.
    named = ("PATH", "SYSTEMROOT", "MONTY_BIN")
    return Launch(
        command=[sys.executable, "-P", "-B"],
        is_monty=True,
        packages=[str(Path(__file__).parent)],
        environment={name: os.environ[name] for name in named if name in os.environ},
        # Windows has no process groups that end with this process.
        group=sys.platform != "win32",
        own_mib=128,
        grace=3,
    )


async def start_process(
    launch: Launch, most: int
) -> tuple[asyncio.SubprocessTransport, asyncio.subprocess.Process]:
    """Start the process of an interpreter."""
    settings = {
        "limits": dict(launch.limits),
        "packages": list(launch.packages),
        "shell": launch.shell,
        "group": launch.group,
        "monty": launch.is_monty,
        "folder": launch.folder,
    }
    file = files("duologue.tools.sandbox").joinpath("sandbox_worker.py")
    text = await asyncio.to_thread(file.read_text, "utf-8")
    filled = None if launch.filter is None else await _open_filled_pipe(launch.filter)
    command = [part.replace("{filter}", str(filled)) for part in launch.command]
    try:
        loop = asyncio.get_running_loop()
        # The same steps as create_subprocess_exec, which does not return the transport.
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(most, loop),
            *command,
            "-c",
            text,
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(launch.environment),
            cwd=launch.folder,
            start_new_session=True,
            pass_fds=() if filled is None else (filled,),
        )
    except OSError as error:
        raise StartError(str(error)) from error
    finally:
        if filled is not None:
            os.close(filled)
    return transport, asyncio.subprocess.Process(transport, protocol, loop)


async def wait_until_ready(out: asyncio.StreamReader) -> None:
    """Wait until an interpreter is ready."""
    said = b""
    try:
        async with asyncio.timeout(START_SECONDS):
            while not said.endswith(b"ready\n") and len(said) < 4096:
                part = await out.read(4096)
                if not part:
                    break
                said += part
    except TimeoutError:
        raise StartError(f"it did not start within {START_SECONDS} s") from None
    if said != b"ready\n":
        shown = " ".join(said.decode(errors="replace").split())
        raise StartError(shown[-300:] or "it ended without output")


async def _open_filled_pipe(data: bytes) -> int:
    """Return the read end of a pipe that contains these bytes."""
    filling = asyncio.ensure_future(asyncio.to_thread(_pipe, data))
    try:
        return await asyncio.shield(filling)
    except asyncio.CancelledError:
        # The thread still fills the pipe, and no process will read it.
        filling.add_done_callback(lambda filled: os.close(filled.result()))
        raise


def _pipe(data: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_REFUSED: Final = """
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
open_tree 428 428
move_mount 429 429
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
mount_setattr 442 442
memfd_secret 447 447
shmget 29 194
semget 64 190
msgget 68 186
ptrace 101 117
pivot_root 155 41
mount 165 40
umount2 166 39
kexec_load 246 104
add_key 248 217
request_key 249 218
keyctl 250 219
unshare 272 97
vmsplice 278 75
perf_event_open 298 241
open_by_handle_at 304 265
setns 308 268
process_vm_readv 310 270
process_vm_writev 311 271
memfd_create 319 279
bpf 321 280
userfaultfd 323 282
"""
"""The refused system calls, each with its number on x86_64 and on aarch64."""


_MACHINES: Final = {
    # The column of its numbers above, the kernel's number of the architecture, the first number of
    # its other calls (x32), the two calls that make sockets, and the call that changes them.
    "x86_64": (1, 0xC000003E, 0x40000000, (41, 53), 54),
    "aarch64": (2, 0xC00000B7, None, (198, 199), 208),
}
_FAMILIES: Final = (1, 2, 10, 16)
"""The allowed socket families, which the separate network isolates: AF_UNIX, AF_INET, AF_INET6 and
AF_NETLINK. Others, such as AF_VSOCK, reach the machine despite the separate network.
"""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def program(machine: str | None = None) -> bytes | None:
    """Return the seccomp filter as BPF bytes, or None for an unknown architecture."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    column, architecture, others, sockets, change = known
    # Calls of another architecture have other numbers, so they fail as unknown.
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    steps.append((_LOAD, 0, 0, 0))
    if others is not None:
        steps += [(_AT_LEAST, 0, 1, others), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    for number in sorted(int(line.split()[column]) for line in _REFUSED.split("\n")[1:-1]):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | _EPERM)]
    # The first argument of both socket calls is the family; the kernel reads 32 bits of it.
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    steps += [(_EQUAL, 1, 0, sockets[0]), (_EQUAL, 0, len(families) + 2, sockets[1])]
    steps += [(_LOAD, 0, 0, 16), *families, (_RETURN, 0, 0, _ERROR | _EAFNOSUPPORT)]
    # Setting a buffer's size (SO_SNDBUF, SO_RCVBUF of SOL_SOCKET) succeeds without any effect.
    steps += [(_EQUAL, 0, 6, change), (_LOAD, 0, 0, 24), (_EQUAL, 0, 4, 1), (_LOAD, 0, 0, 32)]
    steps += [(_EQUAL, 1, 0, 7), (_EQUAL, 0, 1, 8), (_RETURN, 0, 0, _ERROR)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


FILES_MIB: Final = 64
"""Maximum size of the files in each writable folder, in MiB."""

NOBODY_ID: Final = 65534
"""User id of the code if the library runs as root, since no limit applies to root."""

_SYSTEM = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share"),
    *("local/bin", "local/sbin", "local/lib", "local/lib64", "local/share", "local/include"),
)
_FOLDERS: Final = ("/work", "/tmp", "/dev/shm")  # noqa: S108  its own
_MOVE: Final = """
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
count=$1; shift
mount -t tmpfs -o mode=755 none /mnt
place=0
while [ $place -lt $count ]; do
  mkdir /mnt/$place
  mount --bind "$1" /mnt/$place
  shift; place=$((place + 1))
done
exec "$@"
"""
"""Mounts folders in a place that `nobody` can read, in a separate mount namespace."""

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/work",
    "TMPDIR": "/tmp",  # noqa: S108  its own
    "LANG": "C.UTF-8",
    # One thread per core would exceed the limits.
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2",
}


def launch_bubblewrap(sandbox: Sandbox) -> Launch:
    """Return the parameters of an interpreter's process. Blocks."""
    if sys.platform != "linux":
        raise StartError("it exists on Linux only")
    filter_ = program()
    return Launch(
        command=_command(["--seccomp", "{filter}"] if filter_ else []),
        filter=filter_,
        environment={},
        limits={**LIMITS, "AS": sandbox.memory_mib << 20},
        packages=[inside for _, inside in _packages()],
        in_memory=_FOLDERS,
        shell="/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
    )


def _command(more: list[str]) -> list[str]:
    bwrap = _program("bwrap")
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    # The folders of Python's installation; its parent may contain other files.
    base = os.path.realpath(sys.base_prefix)
    paths = [f"{base}/{name}" for name in ("bin", "include", "lib", "lib64")]
    own = [(path, path) for path in paths if Path(path).is_dir() and not _is_shown(path)]
    shown = [*_packages(), *own]
    outer: list[str] = []
    if os.geteuid() == 0:
        outer, shown = _as_nobody(bwrap, shown)
    return [*outer, bwrap, *_inner(shown), *more, "--", python, "-I", "-B", "-u", "-X", "utf8"]


def _program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin")
    if found is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux"
        raise StartError(f"{name} is not installed; install the package {package}")
    return found


def _packages() -> list[tuple[str, str]]:
    """Return the folders of installed packages, each with its path inside the sandbox."""
    paths = sysconfig.get_paths()
    known = {os.path.realpath(paths[name]): None for name in ("purelib", "platlib")}
    return [
        (path, f"/packages/{number}")
        for number, path in enumerate(known)
        if Path(path).is_dir() and not _is_shown(path)
    ]


def _is_shown(path: str) -> bool:
    """Return whether a folder is one of the system's folders, or inside one."""
    return any(Path(path).is_relative_to(f"/usr/{name}") for name in _SYSTEM) or (
        Path(path).is_relative_to("/nix/store")
    )


def _as_nobody(bwrap: str, shown: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return a command that switches to `nobody`, and the folders as `nobody` can read them."""
    become = [
        *(_program("setpriv"), f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups"),
    ]
    hidden = [number for number, (path, _) in enumerate(shown) if not _open_to_all(path)]
    if not hidden:
        return become, shown
    reached = list(shown)
    for place, number in enumerate(hidden):
        reached[number] = (f"/mnt/{place}", shown[number][1])
    moved = [shown[number][0] for number in hidden]
    # Not an outer bwrap: it may not kill the processes of `nobody` when it ends.
    around = [_program("unshare"), "--mount", _program("sh"), "-euc", _MOVE, "sh"]
    return [*around, str(len(moved)), *moved, *become], reached


def _open_to_all(path: str) -> bool:
    own, *above = (part.stat().st_mode for part in (Path(path), *Path(path).parents))
    return own & 0o005 == 0o005 and all(mode & 0o001 for mode in above)


def _inner(shown: list[tuple[str, str]]) -> list[str]:
    files = str(FILES_MIB << 20)
    arguments = [
        *("--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--hostname", "sandbox"),
    ]
    for name, value in _ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    arguments += _system()
    for outside, inside in shown:
        arguments += ["--ro-bind", outside, inside]
    return [
        *arguments,
        *("--proc", "/proc", "--dev", "/dev"),
        *(part for folder in _FOLDERS for part in ("--size", files, "--tmpfs", folder)),
        # /dev and / are in memory without a size limit, so they are mounted read-only.
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"),
    ]


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        # Not the whole of /usr: a container may keep the project in /usr/src.
        yield from ("--ro-bind-try", f"/usr/{name}", f"/usr/{name}")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            yield from ("--ro-bind-try", str(path), str(path))
    for path in (Path("/etc/alternatives"), Path("/nix/store")):
        yield from ("--ro-bind-try", str(path), str(path))
