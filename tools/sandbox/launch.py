"""Starting the process of an interpreter, and the processes of two levels: the host and Monty."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

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
    worker: str
    """The module of `duologue.tools.sandbox` whose source text the process runs."""
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
        worker="sandbox_worker",
        environment=os.environ,
        shell="/bin/bash" if Path("/bin/bash").exists() else "/bin/sh",
        folder=tempfile.mkdtemp(prefix="duologue-"),
        group=True,
    )


def launch_monty() -> Launch:
    """Return the parameters of a process of Monty, a subset of Python without files. Blocks.

    The process is `tools.sandbox.monty_worker`. One process serves many sessions, since it keeps
    no state.
    """
    if find_spec("pydantic_monty") is None:
        raise StartError("pydantic-monty is not installed")
    # The interpreter reads no variables; its process needs these to find the program.
    named = ("PATH", "SYSTEMROOT", "MONTY_BIN")
    return Launch(
        command=[sys.executable, "-P", "-B"],
        worker="monty_worker",
        environment={name: os.environ[name] for name in named if name in os.environ},
        group=True,
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
        "folder": launch.folder,
    }
    text = await asyncio.to_thread(_text, launch.worker)
    filled = await _filled(launch.filter)
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


async def _filled(data: bytes | None) -> int | None:
    """Return the read end of a pipe that contains these bytes, or None for None."""
    if data is None:
        return None
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


def _text(module: str) -> str:
    return files("duologue.tools.sandbox").joinpath(f"{module}.py").read_text("utf-8")
