"""Processes of a sandbox, seen from outside: the living ones, their memory, and their end.

Reads /proc, and finds nothing on systems without it. Blocks: call it in a thread.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

_MOST = 10_000
"""Upper bound for the number of processes, more than any sandbox allows."""

_SOCKET = 416 << 10
"""Approximate size of a socket's buffers in bytes, if their sizes were not changed."""

_INODE = 1300
"""Bytes that a file takes in an in-memory file system, whatever its content."""


Snapshot: TypeAlias = tuple[frozenset[int], frozenset[tuple[int, str]]]
"""The ended descendants of a process, and how often each stopped thread has run."""


def family(pid: int) -> set[int]:
    """Return the living descendants of a process."""
    return _family(pid)[0]


def _family(pid: int) -> tuple[set[int], set[int]]:
    """Return the living descendants, and the ended descendants that the kernel still lists."""
    living: set[int] = set()
    ended: set[int] = set()
    todo = [pid]
    while todo and len(living) < _MOST:
        children = set[int]()
        for task in _tasks(todo.pop()):
            with suppress(OSError):
                children.update(map(int, (task / "children").read_bytes().split()))
        for child in children - living - ended:
            if _has_ended(child):
                ended.add(child)
            else:
                living.add(child)
                todo.append(child)
    return living, ended


def snapshot(pid: int, trusted: Iterable[int], stopped: Iterable[int]) -> Snapshot | None:
    """Return a snapshot of a process's descendants, or None if a descendant is running.

    Trusted processes may be alive, but all threads of the stopped processes must be stopped.

    A single snapshot is not enough, since processes start and end while it is taken. Two equal
    snapshots in a row are enough: a process that forked meanwhile has left an ended process, and a
    thread that ran has a higher count.
    """
    counts: set[tuple[int, str]] = set()
    for each in stopped:
        runs = _stopped_runs(each)
        if not runs:
            return None
        counts |= runs
    living, ended = _family(pid)
    if living - set(trusted):
        return None
    return frozenset(ended), frozenset(counts)


def _stopped_runs(pid: int) -> set[tuple[int, str]]:
    """Return how often each thread has run, or an empty set if any thread is not stopped."""
    found: set[tuple[int, str]] = set()
    for task in _tasks(pid):
        try:
            lines = (task / "status").read_text(errors="replace").splitlines()
        except OSError:
            return set()
        said = dict(line.split(":", 1) for line in lines if ":" in line)
        if said.get("State", "").split()[:1] != ["T"]:
            return set()
        switches = (value for name, value in said.items() if name.endswith("ctxt_switches"))
        found.add((int(task.name), " ".join(switches)))
    return found


def _tasks(pid: int) -> list[Path]:
    """Return the folders of a process's living threads."""
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie that waits for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return True
    # If the first thread ends before the others, the process looks like a zombie.
    return state in b"ZX" and len(_tasks(pid)) <= 1


def memory(pids: Iterable[int], limit: int) -> int:
    """Return the bytes of memory that processes use together.

    If a quick estimate is below the limit, the estimate is returned.
    """
    rough: dict[int, int] = {}
    shared: dict[str, int] = {}
    for pid in pids:
        # All threads share one memory, but an ended thread reports none.
        for task in _tasks(pid):
            rough[pid] = _bytes(pid, f"task/{task.name}/status", ("RssAnon:",))
            if rough[pid]:
                _add_shared(task, shared)
                break
    mapped = sum(shared.values())
    if sum(rough.values()) + mapped <= limit:
        return sum(rough.values()) + mapped
    return mapped + sum(
        min(held, _bytes(pid, "smaps_rollup", ("Pss_Anon:",)) or held)
        for pid, held in rough.items()
    )


def _add_shared(task: Path, shared: dict[str, int]) -> None:
    """Add the size of memory shared with children, by inode, up to the end of each mapping."""
    with suppress(OSError, ValueError):
        for line in (task / "maps").read_text(errors="replace").splitlines():
            if line.endswith("/dev/zero (deleted)"):
                ends, _, offset, _, inode = line.split()[:5]
                start, end = (int(part, 16) for part in ends.split("-"))
                size = int(offset, 16) + end - start
                shared[inode] = max(size, shared.get(inode, 0))


def namespace_bytes(pid: int, folders: Iterable[str]) -> int:
    """Estimate the kernel memory of a process's namespaces, which belongs to no process."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/net/sockstat").read_text().splitlines()
        sockets = next((int(line.split()[2]) for line in lines if line.startswith("sockets:")), 0)
        total += sockets * _SOCKET
    for folder in folders:
        with suppress(OSError):
            found = os.statvfs(f"/proc/{pid}/root{folder}")
            total += (found.f_files - found.f_ffree) * _INODE
    return total


def _bytes(pid: int, file: str, fields: tuple[str, ...]) -> int:
    total = 0
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines():
            if line.startswith(fields):
                total += int(line.split()[1]) * 1024
    return total


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes; ended processes are ignored."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill(pid: int, *, group: bool) -> None:
    """Kill a process, its descendants, and optionally its process group."""
    known = family(pid)
    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    send({pid} | known, signal.SIGKILL)
