"""Growth of a SQLite file with each round of two messages."""

import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.peers import Mark

_AROUND = 50
"""Number of messages before and after the length, between the two measurements."""

# In a separate process, because closing a file here would release the locks of the open store.
_SIZE = """
import sqlite3, sys
read = sqlite3.connect(sys.argv[1]).execute
print(read("PRAGMA page_count").fetchone()[0] * read("PRAGMA page_size").fetchone()[0])
"""


async def bytes_per_round(
    run: Callable[[int, Mark, Path], Coroutine[Any, Any, None]], length: int, store: Path
) -> int:
    """Run a conversation past so many messages; return the growth of its file at that point."""
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
