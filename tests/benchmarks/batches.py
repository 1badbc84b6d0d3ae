"""A batch of many sessions. Run as a program, it prints its costs."""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.crowd import CALLS
from benchmarks.talks import talk
from duologue.graphs import Batch, arun_batch
from duologue.graphs.batch.worker import COLLECTED

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Family:
    """A monitor of the resources used by this process and its descendants."""

    def __init__(self) -> None:
        self._spent = dict[int, float]()
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Family":
        """Start the measurements."""
        self.look()
        self._before = self.seconds
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the measurements."""
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Return the total CPU time at the last measurement."""
        return sum(self._spent.values())

    @property
    def spent(self) -> float:
        """Return the CPU time since the block began."""
        return self.seconds - self._before

    def look(self) -> None:
        """Measure once."""
        parents, used = dict[int, int](), dict[int, tuple[float, int]]()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                found = path.read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            pid = int(path.parent.name)
            parents[pid] = int(found[1])
            used[pid] = ((int(found[11]) + int(found[12])) / _TICK, int(found[21]) * _PAGE)
        ours = [pid for pid in parents if _is_below(pid, parents)]
        self._spent |= {pid: used[pid][0] for pid in ours}
        self.peak_bytes = max(self.peak_bytes, sum(used[pid][1] for pid in ours))

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.look()


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False


async def figures(
    count: int, store: Path, latency: float, concurrency: int, ray: str | None
) -> dict[str, Any]:
    """Run a batch of many sessions and return its figures.

    Args:
        count: Number of sessions.
        store: The SQLite file.
        latency: Delay of the server's answers in seconds.
        concurrency: Number of sessions at once.
        ray: Address of Ray. This process runs the sessions if None.
    """
    conversation = talk(CALLS)
    await arun_batch(Batch(conversation=conversation), name="first", store=store)
    before = _size(store)
    calls, batch = count * CALLS, Batch(conversation=conversation, trials=count)
    with Family() as family:
        began = time.monotonic()
        status = await arun_batch(batch, name="many", store=store, concurrency=concurrency, ray=ray)
        wall = time.monotonic() - began
        family.look()
    assert (status.finished, status.calls) == (count, calls)
    return {
        "sessions": count,
        "at_once": concurrency,
        "by": "asyncio" if ray is None else "Ray",
        "seconds": round(wall, 1),
        # The ratio can't be below 1, however fast the rest is.
        "of_latency": round(wall / (calls * latency / concurrency), 2),
        "calls_per_second": round(calls / wall, 1),
        "cpu_ms_per_call": round(family.spent / calls * 1000, 2),
        "peak_mib": round(family.peak_bytes / 2**20),
        "kib_stored_per_session": round((_size(store) - before) / count / 1024, 1),
    }


def _size(store: Path) -> int:
    return sum(
        path.stat().st_size for path in store.parent.glob(f"{store.name}*") if path.is_file()
    )


if __name__ == "__main__":
    gc.set_threshold(*COLLECTED)
    given = (int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    about = figures(*given, ray="auto" if sys.argv[5:] == ["ray"] else None)
    sys.stdout.write(json.dumps(asyncio.run(about)))
