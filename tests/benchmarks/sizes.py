"""How much a SQLite file grows with each round of two messages."""

import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.peers import Mark

_AROUND = 50
"""How many messages before and after the length are written between the two sizes."""

# In a process of its own: closing a file here would drop the locks of the store that is open.
_SIZE = """
import sqlite3, sys
read = sqlite3.connect(sys.argv[1]).execute
print(read("PRAGMA page_count").fetchone()[0] * read("PRAGMA page_size").fetchone()[0])
"""


async def bytes_per_round(
    run: Callable[[int, Mark, Path], Coroutine[Any, Any, None]], length: int, store: Path
) -> int:
    """Run a conversation beyond so many messages; give the growth of its file there."""
    said, sizes = 0, list[int]()

    def mark() -> None:
        nonlocal said
        said += 1
        if abs(said - length) == _AROUND:
            command = [sys.executable, "-c", _SIZE, str(store)]
            sizes.append(int(subprocess.check_output(command)))

    await run(length + _AROUND, mark, store)
    before, after = sizes
    return (after - before) // _AROUND
