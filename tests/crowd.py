"""Many conversations at once in one process. No tests here; run as a program, it prints figures."""

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from duologue.graphs import DuologueError, aconverse, role_play
from duologue.nodes.testing import Reply, ScriptedChatModel


async def ended(number: int, store: str | Path, *, rounds: int = 2, delay: float = 0) -> str:
    """Run a conversation whose messages contain its number; return the reason of its end.

    Args:
        number: Number of the conversation.
        store: The store.
        rounds: Number of rounds.
        delay: Delay of each model call in seconds.
    """
    turns = [
        Reply(text=text, delay=delay)
        for turn in range(rounds)
        for text in (
            f"Instruction: {number} does step {turn}.\nInput: None",
            f"Solution: {number} has done step {turn}.\nNext request.",
        )
    ]
    garden = role_play(
        f"Plan garden {number}", "Owner", "Gardener", specify_task=False, max_iterations=rounds
    )
    model = ScriptedChatModel(script=turns)
    try:
        result = await aconverse(garden, session=f"s{number}", store=store, model=model)
    except DuologueError as error:
        return str(error)
    assert [str(number) in text for _, text in result.transcript] == [True] * 2 * rounds
    assert result.outcome is not None
    return result.outcome.reason.value


def open_files() -> int:
    """Return the number of open descriptors of this process, or 0 if unknown."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


async def figures(count: int, store: str) -> dict[str, Any]:
    """Run many conversations of ten calls of 200 ms at once; return their figures."""
    most = Counter[str]()

    async def watch() -> None:
        while True:
            most["descriptors"] = max(most["descriptors"], open_files())
            most["threads"] = max(most["threads"], threading.active_count())
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    wall, cpu = time.monotonic(), time.process_time()
    talks = (ended(number, store, rounds=5, delay=0.2) for number in range(count))
    reasons = Counter(await asyncio.gather(*talks))
    watching.cancel()
    return {
        "conversations": count,
        "failures": count - reasons["max_iterations"],
        "seconds": round(time.monotonic() - wall, 1),
        "CPU seconds": round(time.process_time() - cpu, 1),
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **most,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(figures(int(sys.argv[1]), sys.argv[2]))))
    sys.stdout.flush()
    os._exit(0)
