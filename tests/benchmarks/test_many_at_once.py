"""Costs of many conversations at once: a table of figures, of which only counts are asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drawn_faults import Faults

pytestmark = pytest.mark.exhaustive

CROWD = Path(__file__).parents[1] / "crowd.py"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def test_none_fails_however_many_there_are(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    """No conversation fails, up to 1,000 at once with `--faults=10`."""
    table = []
    for count in (1, 10, 100, 1000):
        if count > faults.times(100):
            break
        store = str(tmp_path / f"{count}.db")
        if kind == "postgresql":
            store = request.getfixturevalue("postgres_url")
        run = subprocess.run(
            [sys.executable, str(CROWD), str(count), store], stdout=subprocess.PIPE, check=True
        )
        table.append(json.loads(run.stdout))
        if kind == "postgresql":
            break_between_rows(store)
    names = list(table[0])
    sys.stdout.write(f"\n{kind}, ten calls of 200 ms each\n")
    for row in [dict(zip(names, names, strict=True)), *table]:
        sys.stdout.write(" ".join(f"{row[name]!s:>13}" for name in names) + "\n")
    assert [row["failures"] for row in table] == [0] * len(table)
    assert {row["threads"] for row in table[-2:]} <= set(range(20))
    assert max(row["descriptors"] for row in table) <= 40


def break_between_rows(url: str) -> None:
    """Delete the sessions, because the next row uses the same ids."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("duologue_sessions", "checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            connection.execute(f"TRUNCATE {name}".encode())
