"""A batch of many sessions. Run as a program, it prints what they took."""

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.crowd import CALLS, peak_kib
from benchmarks.talks import talk
from duologue.graphs import Batch, arun_batch


async def figures(count: int, store: Path, latency: float, concurrency: int) -> dict[str, Any]:
    """Run a batch of so many sessions, so many at once.

    Args:
        count: How many.
        store: The SQLite file.
        latency: Seconds that the server takes for an answer.
        concurrency: How many run at once.
    """
    conversation = talk(CALLS)
    first = Batch(conversation=conversation)
    await arun_batch(first, name="first", store=store)  # what is loaded once
    before, memory = _size(store), peak_kib()
    wall, cpu = time.monotonic(), time.process_time()
    batch = Batch(conversation=conversation, trials=count)
    status = await arun_batch(batch, name="many", store=store, concurrency=concurrency)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    assert (status.finished, status.calls) == (count, count * CALLS)
    calls = count * CALLS
    return {
        "sessions": count,
        "at_once": concurrency,
        "seconds": round(wall, 1),
        # Not less than this can it take, however fast all else is.
        "of_latency": round(wall / (calls * latency / concurrency), 2),
        "calls_per_second": round(calls / wall, 1),
        "cpu_ms_per_call": round(cpu / calls * 1000, 2),
        "peak_mib": round(peak_kib() / 1024),
        "mib_for_sessions": round((peak_kib() - memory) / 1024),
        "kib_stored_per_session": round((_size(store) - before) / count / 1024, 1),
    }


def _size(store: Path) -> int:
    return store.stat().st_size


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 20)
    about = figures(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(json.dumps(asyncio.run(about)))
