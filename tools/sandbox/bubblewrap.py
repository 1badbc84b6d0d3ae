"""Starting an interpreter with bubblewrap: full Python and a shell, apart from the machine.

It sees the system's programs, Python with its packages and two empty folders; no network, no other
process, nothing of the environment. A filter refuses kernel calls that hold memory which belongs to
no process, reach into other processes, make sockets outside its network, or serve only system
tools. `tools.sandbox.workers` keeps the limits of a call.
"""

import os
import platform
import shutil
import struct
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...graphs.conversation.sandbox import Sandbox
from .launch import LIMITS, Launch, StartError

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
_X86_64 = {
    "shmget": 29,
    "semget": 64,
    "msgget": 68,
    "ptrace": 101,
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "vmsplice": 278,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "memfd_create": 319,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64 = {
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "vmsplice": 75,
    "unshare": 97,
    "kexec_load": 104,
    "ptrace": 117,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "perf_event_open": 241,
    "open_by_handle_at": 265,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "memfd_create": 279,
    "bpf": 280,
    "userfaultfd": 282,
}
_MACHINES: Final = {
    # The kernel's name of the machine, the first number of its other calls (x32), the calls,
    # those that make sockets, and the one that changes them.
    "x86_64": (0xC000003E, 0x40000000, _X86_64, (41, 53), 54),
    "aarch64": (0xC00000B7, None, _AARCH64, (198, 199), 208),
}
_FAMILIES: Final = (1, 2, 10, 16)
"""The sockets there may be, which a network of its own keeps apart: AF_UNIX, AF_INET, AF_INET6 and
AF_NETLINK. Others, such as AF_VSOCK, reach the machine whatever the network."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def program(machine: str | None = None) -> bytes | None:
    """Return the filter, as the kernel reads it."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    architecture, others, calls, sockets, change = known
    # A call of another architecture has other numbers: there is none.
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    steps.append((_LOAD, 0, 0, 0))
    if others is not None:
        steps += [(_AT_LEAST, 0, 1, others), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    for number in sorted({*_EVERYWHERE.values(), *calls.values()}):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | _EPERM)]
    # Both their numbers lead to what their first argument is; of it the kernel reads 32 bits.
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    steps += [(_EQUAL, 1, 0, sockets[0]), (_EQUAL, 0, len(families) + 2, sockets[1])]
    steps += [(_LOAD, 0, 0, 16), *families, (_RETURN, 0, 0, _ERROR | _EAFNOSUPPORT)]
    # The sizes of buffers (SO_SNDBUF, SO_RCVBUF of SOL_SOCKET) stay as they are, without a word.
    steps += [(_EQUAL, 0, 6, change), (_LOAD, 0, 0, 24), (_EQUAL, 0, 4, 1), (_LOAD, 0, 0, 32)]
    steps += [(_EQUAL, 1, 0, 7), (_EQUAL, 0, 1, 8), (_RETURN, 0, 0, _ERROR)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


FILES_MIB: Final = 64
"""MiB that the files in each folder that can be written to may take."""

NOBODY_ID: Final = 65534
"""Who code runs as where the library runs as root, which no limit binds."""

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
"""Mounts folders where `nobody` can read them, in a mount namespace of its own."""

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/work",
    "TMPDIR": "/tmp",  # noqa: S108  its own
    "LANG": "C.UTF-8",
    # One thread for each core would exceed the limits.
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2",
}


def launch(sandbox: Sandbox) -> Launch:
    """Say how to start an interpreter. Blocks."""
    if sys.platform != "linux":
        raise StartError("it exists on Linux only")
    filter_ = program()
    return Launch(
        command=_command(["--seccomp", "{filter}"] if filter_ else []),
        filter=filter_,
        worker="sandbox_worker",
        environment={},
        limits={**LIMITS, "AS": sandbox.memory_mib << 20},
        packages=[inside for _, inside in _packages()],
        in_memory=_FOLDERS,
        shell="/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
    )


def _command(more: list[str]) -> list[str]:
    bwrap = _program("bwrap")
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    shown = [*_packages(), *_base(os.path.realpath(sys.base_prefix))]
    outer: list[str] = []
    if os.geteuid() == 0:
        outer, shown = _as_nobody(bwrap, shown)
    return [*outer, bwrap, *_inner(shown), *more, "--", python, "-I", "-B", "-u", "-X", "utf8"]


def _program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin")
    if found is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux"
        raise StartError(f"{name} is not installed: install the package {package}")
    return found


def _packages() -> list[tuple[str, str]]:
    """The folders of installed packages, outside and inside."""
    paths = sysconfig.get_paths()
    known = {os.path.realpath(paths[name]): None for name in ("purelib", "platlib")}
    return [
        (path, f"/packages/{number}")
        for number, path in enumerate(known)
        if Path(path).is_dir() and not _is_shown(path)
    ]


def _base(base: str) -> list[tuple[str, str]]:
    """What of Python's own folder is shown where it is: other things may stand beside it."""
    paths = (f"{base}/{name}" for name in ("bin", "include", "lib", "lib64"))
    return [(path, path) for path in paths if Path(path).is_dir() and not _is_shown(path)]


def _is_shown(path: str) -> bool:
    """Whether a folder is one of the system's, or in one."""
    return any(Path(path).is_relative_to(f"/usr/{name}") for name in _SYSTEM) or (
        Path(path).is_relative_to("/nix/store")
    )


def _as_nobody(bwrap: str, shown: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Become nobody first; what nobody may not reach is put where it can be reached."""
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
    # Not by a second bwrap around it: that one may not kill what belongs to nobody when it dies.
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
        # These have no limit of their own, and would be memory without one.
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"),
    ]


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        # Not all of /usr: a container may keep the project in /usr/src.
        yield from ("--ro-bind-try", f"/usr/{name}", f"/usr/{name}")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            yield from ("--ro-bind-try", str(path), str(path))
    for path in (Path("/etc/alternatives"), Path("/nix/store")):
        yield from ("--ro-bind-try", str(path), str(path))
