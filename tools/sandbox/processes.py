"""Processes of a sandbox, seen from outside: which there are, what memory they hold, their end.

Reads /proc, and finds nothing where there is none. Blocks: call it in a thread.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

_MOST = 10_000
"""More processes than any sandbox may have."""

_SOCKET = 416 << 10
"""Bytes that may stand in the buffers of a socket whose sizes were not changed, about."""

_INODE = 1300
"""Bytes that a file takes in a file system in memory, whatever its content."""


Snapshot: TypeAlias = tuple[frozenset[int], frozenset[tuple[int, str]]]
"""The ended processes of a family, and how often each stopped thread has run."""


def family(pid: int) -> set[int]:
    """Return a process's children, theirs and so on, without those that have ended."""
    return _family(pid)[0]


def _family(pid: int) -> tuple[set[int], set[int]]:
    """Those that live, and those that have ended and are still there."""
    living: set[int] = set()
    ended: set[int] = set()
    todo = [pid]
    while todo and len(living) < _MOST:
        for child in _children(todo.pop()):
            if child not in living and child not in ended:
                if _has_ended(child):
                    ended.add(child)
                else:
                    living.add(child)
                    todo.append(child)
    return living, ended


def snapshot(pid: int, trusted: Iterable[int], stopped: Iterable[int]) -> Snapshot | None:
    """Take a snapshot of a family, or None if anything in it runs.

    No single look is enough, since processes come and go while it is taken. Two in a row that are
    equal are: what has moved on meanwhile has left an ended process, and what has run has counted.
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
    """How often each thread has run; none at all if any of them is not stopped."""
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
    """The threads of a process that are still there, as folders."""
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _tasks(pid):
        with suppress(OSError):
            found += map(int, (task / "children").read_bytes().split())
    return found


def _has_ended(pid: int) -> bool:
    """Whether it is gone, or only waits for its parent to notice its end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return True
    # Its first thread may end before the others, and then looks the same.
    return state in b"ZX" and len(_tasks(pid)) <= 1


def memory(pids: Iterable[int], limit: int) -> int:
    """Return the bytes of memory that processes hold together."""
    rough: dict[int, int] = {}
    shared: dict[str, int] = {}
    for pid in pids:
        # All its threads share one memory, of which one that has ended tells nothing.
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
    """Add the size of what is shared with children, by inode: it holds what none has before it."""
    with suppress(OSError, ValueError):
        for line in (task / "maps").read_text(errors="replace").splitlines():
            if line.endswith("/dev/zero (deleted)"):
                ends, _, offset, _, inode = line.split()[:5]
                start, end = (int(part, 16) for part in ends.split("-"))
                size = int(offset, 16) + end - start
                shared[inode] = max(size, shared.get(inode, 0))


def namespace_bytes(pid: int, folders: Iterable[str]) -> int:
    """Estimate the kernel memory of a process's own namespaces, which is no memory of its own."""
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
