"""Processes of a sandbox, seen from outside: which there are, what memory they hold, their end.

Reads /proc, and finds nothing where there is none. Blocks: call it in a thread.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_MOST = 10_000
"""More processes than any sandbox may have."""


def family(pid: int) -> set[int]:
    """Give a process's children, theirs and so on, without those that have ended."""
    found: set[int] = set()
    todo = [pid]
    while todo and len(found) < _MOST:
        for child in _children(todo.pop()):
            if child not in found and not _has_ended(child):
                found.add(child)
                todo.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_bytes().split())
    return found


def _has_ended(pid: int) -> bool:
    """Whether it is gone, or only waits for its parent to notice its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
    except (OSError, IndexError):
        return True


def memory(pids: Iterable[int], limit: int) -> int:
    """Give the bytes of memory that processes hold together.

    Args:
        pids: The processes.
        limit: Bytes up to which a rough sum, never too low, is good enough: what a process shares
            with its parent is counted in both.
    """
    known = list(pids)
    rough = sum(_bytes(pid, "status", ("RssAnon:", "RssShmem:")) for pid in known)
    if rough <= limit:
        return rough
    shared = ("Pss_Anon:", "Pss_Shmem:")
    return min(rough, sum(_bytes(pid, "smaps_rollup", shared) for pid in known) or rough)


def _bytes(pid: int, file: str, fields: tuple[str, ...]) -> int:
    total = 0
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(fields):
                total += int(line.split()[1]) * 1024
    return total


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, gone ones excepted."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill(pid: int, *, group: bool) -> None:
    """Kill a process with its family, and its group."""
    known = family(pid)
    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    send({pid} | known, signal.SIGKILL)
