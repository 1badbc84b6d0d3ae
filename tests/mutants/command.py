"""The commands `draw` and `run`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from mutants.faults import draw
from mutants.runner import Runner

HERE = Path(__file__).resolve().parent
STORED = HERE / "faults.json"

LEFT_OUT = (
    "not exhaustive and not process and not packaging and not browser and not types and not ray "
    "and not live"
)

FOLDERS = ("graphs", "nodes", "faults")


def run(options: argparse.Namespace) -> int:
    os.chdir(options.root)
    # The tests' helpers must come from the tested checkout, not from this file's folder.
    sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != HERE.parent]
    drawn = settings(
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.register_profile("mutants", drawn)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    runner = Runner(options, json.loads(Path(options.faults).read_text()))
    tests = options.tests or [f"tests/{one}" for one in FOLDERS if Path("tests", one).is_dir()]
    arguments = ["-o", "addopts=", "-p", "no:langsmith_plugin", "-p", "no:terminal"]
    arguments += ["-p", "no:cacheprovider", "--import-mode=importlib", "-m", options.marks]
    arguments += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        arguments += ["--basetemp", f"{folder}/tests"]
        try:
            return int(pytest.main([*arguments, *tests], plugins=[runner]))
        finally:
            runner.log.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=("draw", "run"))
    parser.add_argument(
        "tests", nargs="*", help="files or folders of tests; the quick ones unless given"
    )
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the checkout to try")
    parser.add_argument("--faults", default=str(STORED), help="the stored list")
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument(
        "--to", default="mutants.result.json", help="where `run` stores its results"
    )
    parser.add_argument("--map", help="an earlier result, whose map of tests is used again")
    parser.add_argument("--seconds", type=float, default=60, help="of the processor, for a fault")
    parser.add_argument("--marks", default=LEFT_OUT, help="which tests, as pytest's -m takes it")
    parser.add_argument("--map-only", action="store_true", help="store the map of tests alone")
    parser.add_argument("--only", type=int, nargs="*", default=[], help="numbers of faults")
    parser.add_argument(
        "--without", nargs="*", default=[], help="parts of names of tests to leave out"
    )
    options = parser.parse_intermixed_args()
    git = ["git", "-C", str(options.root), "rev-parse", "HEAD"]
    options.commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    options.root, options.to = options.root.resolve(), str(Path(options.to).resolve())
    if options.command == "run":
        return run(options)
    stored = draw(options.root, options.seed)
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in stored["faults"])
    text = f'{{"seed": {stored["seed"]}, "faults": [\n{lines}\n]}}\n'
    Path(options.faults).write_text(text)
    return 0
