"""Many conversations at once in one process. Run as a program, it prints their costs."""

import asyncio
import gc
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.talks import talk
from duologue.graphs import aconverse

CALLS = 10
"""Number of calls per conversation."""


def peak_kib() -> int:
    """Return the peak memory of this process; `ru_maxrss` would include that of its parent."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


async def figures(count: int, store: Path, latency: float) -> dict[str, Any]:
    """Run many conversations at once and return their figures.

    Args:
        count: Number of conversations.
        store: The SQLite file.
        latency: Delay of the server's answers in seconds.
    """
    conversation = talk(CALLS)
    await aconverse(conversation, session="first", store=store)  # loads modules once
    memory, wall, cpu = peak_kib(), time.monotonic(), time.process_time()
    sessions = (aconverse(conversation, session=f"s{n}", store=store) for n in range(count))
    results = await asyncio.gather(*sessions)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    assert all(len(result.transcript) == CALLS for result in results)
    return {
        "conversations": count,
        "seconds": round(wall, 2),
        "of_latency": round(wall / (CALLS * latency), 2),
        "cpu_ms_per_call": round(cpu / count / CALLS * 1000, 2),
        "kib_per_session": round((peak_kib() - memory) / count),
    }


if __name__ == "__main__":
    if int(sys.argv[4]):
        gc.set_threshold(int(sys.argv[4]), 20, 20)
    about = figures(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(json.dumps(asyncio.run(about)))
