"""CPU times of programs that take turns in one process."""

import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median


async def measure_in_turns(
    rows: Mapping[str, Callable[[int], Awaitable[None]]],
    sizes: Sequence[int],
    rounds: int,
    tell: Callable[[str], None],
    what: str,
) -> dict[str, dict[int, float]]:
    """Return the CPU time in ms for each part of a run, such as a message, by row and by size.

    Args:
        rows: Functions that run so many parts, by the rows' names.
        sizes: The numbers of parts.
        rounds: Number of measurements, of which each figure is the median.
        tell: Called with the progress.
        what: What is measured, with ``{}`` in place of the size.
    """
    found: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in rows}
    for number in range(-1, rounds):  # the first round loads modules and fills caches
        for size in sizes:
            tell(f"round {number + 1} of {rounds}: {what.format(size)}")
            for name, run in rows.items():
                gc.collect()
                began = time.process_time()
                await run(size)
                spent = (time.process_time() - began) / size * 1000
                found[name][size] += [spent] if number >= 0 else []
    return {
        name: {size: median(spent) for size, spent in by_size.items()}
        for name, by_size in found.items()
    }
