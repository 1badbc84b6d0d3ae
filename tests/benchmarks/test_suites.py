"""The costs of a suite of scenarios: a row of figures, of which only counts are asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drawn_faults import Faults

pytestmark = pytest.mark.exhaustive

PROGRAM = Path(__file__).parent / "suites.py"


def test_all_simulations_of_a_suite_pass_at_20_at_once(tmp_path: Path, faults: Faults) -> None:
    """Run 10 scenarios five times each, or 100 with `--faults=10`."""
    counts = map(str, (faults.times(10), 5, 20))
    command = [sys.executable, str(PROGRAM), *counts, str(tmp_path / "s.db")]
    row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    sys.stdout.write("\n" + "  ".join(f"{name} {value}" for name, value in row.items()) + "\n")
    assert row["passed"] == row["simulations"]
