"""The costs of a suite of scenarios: a row of figures, of which only counts are asserted."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import suites
from drawn_faults import Faults

pytestmark = pytest.mark.exhaustive

PROGRAM = Path(__file__).parent / "suites.py"

MOST_CALLS = 36
"""Limit for the calls into threads of a simulation with six model calls, in a SQLite file. Each
costs about as much as a read of the store. Slightly above the current value.
"""


async def test_a_simulation_needs_few_calls_into_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    loop = asyncio.get_running_loop()
    run_in_executor = loop.run_in_executor

    def count(*given: Any) -> Any:  # noqa: ANN401  # as the loop's own method
        nonlocal made
        made += 1
        return run_in_executor(*given)

    monkeypatch.setattr(suites, "DELAY", 0.001)
    monkeypatch.setattr(loop, "run_in_executor", count)
    found = []
    for scenarios in (1, 3):
        made = 0
        await suites.run(scenarios, 1, 1, str(tmp_path / f"{scenarios}.db"))
        found.append(made)
    assert 0 < (found[1] - found[0]) / 2 <= MOST_CALLS


def test_all_simulations_of_a_suite_pass_at_20_at_once(tmp_path: Path, faults: Faults) -> None:
    """Run 10 scenarios five times each, or 100 with `--faults=10`."""
    counts = map(str, (faults.times(10), 5, 20))
    command = [sys.executable, str(PROGRAM), *counts, str(tmp_path / "s.db")]
    row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    sys.stdout.write("\n" + "  ".join(f"{name} {value}" for name, value in row.items()) + "\n")
    assert row["passed"] == row["simulations"]
