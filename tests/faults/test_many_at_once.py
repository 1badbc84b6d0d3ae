"""Hundreds of conversations at once in one process, on one store."""

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crowd import ended
from drawn_faults import Faults
from duologue import alist_sessions, converse
from duologue.nodes.testing import ScriptedChatModel

pytestmark = pytest.mark.exhaustive

TALK = {
    "task": "Plan",
    "speakers": [{"name": "Ann"}, {"name": "Ben"}],
    "end_chat": {"max_iterations": 1},
}

MOST_FILES = 10
"""Maximum number of descriptors of one open store."""

POOL = 10
"""Maximum number of PostgreSQL connections of one open store, without its lease connection."""


def open_files(path: Path) -> int:
    """Return how many descriptors this process has of a store's files."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return 0
    found = 0
    for one in folder.iterdir():
        try:
            found += one.readlink().as_posix().startswith(path.as_posix())
        except FileNotFoundError:
            continue
    return found


async def test_on_one_sqlite_file(tmp_path: Path, faults: Faults) -> None:
    path, count = tmp_path / "sessions.db", faults.times(100)
    most = Counter[str]()

    async def watch() -> None:
        while True:
            most["files"] = max(most["files"], open_files(path))
            most["threads"] = max(
                most["threads"], sum("store" in one.name for one in threading.enumerate())
            )
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        reasons = await asyncio.gather(*(ended(number, path) for number in range(count)))
    finally:
        watching.cancel()
    assert Counter(reasons) == {"max_iterations": count}
    assert most["files"] <= MOST_FILES
    assert most["threads"] <= 2
    assert open_files(path) == 0
    rows = await alist_sessions(store=path)
    assert Counter(row.status for row in rows) == {"finished": count}


def test_from_many_threads(tmp_path: Path, faults: Faults) -> None:
    count = faults.times(20)

    def hold(number: int) -> str:
        """Run on a new event loop, or on the shared loop of the synchronous functions."""
        if number % 2:
            return asyncio.run(ended(number, tmp_path / "x.db"))
        model = ScriptedChatModel(["Hi.", "Ho."])
        result = converse(TALK, session=f"s{number}", store=tmp_path / "x.db", model=model)
        return str(result.stop_reason)

    with ThreadPoolExecutor(count) as threads:
        assert Counter(threads.map(hold, range(count))) == {"max_iterations": count}


@pytest.mark.live
async def test_on_one_postgresql_database(postgres_url: str, faults: Faults) -> None:
    import psycopg

    count, most, name = faults.times(60), 0, f"many-{os.getpid()}"
    store = f"{postgres_url}&application_name={name}"
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"

    async def watch() -> None:
        nonlocal most
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await connection.set_autocommit(True)
            while True:
                found = await (await connection.execute(query, [name])).fetchone()
                most = max(most, found[0] if found else 0)
                await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        reasons = await asyncio.gather(*(ended(number, store) for number in range(count)))
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert Counter(reasons) == {"max_iterations": count}
    assert 2 <= most <= POOL + 1
