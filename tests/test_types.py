"""Type checkers accept users' code as in the documentation, and refuse errors in it.

Strict mypy reports everything that mypy reports by default. Neither has a plugin here.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.types


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the examples, the code of all pages, and valid and invalid user code to a folder."""
    folder = tmp_path_factory.mktemp("programs")
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        name = page.stem.replace("-", "_").lower()
        code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        if page.stem == "tutorial":
            # Its steps are one program.
            code = ["\n".join(code)]
        for number, block in enumerate(code):
            (folder / f"{name}_{number}.py").write_text(block, encoding="utf-8")
    for program in ("program", "mistakes"):
        shutil.copy(ROOT / "tests" / "typed" / f"{program}.py", folder)
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, folder)
    assert len([*folder.iterdir()]) > 20
    return folder


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.stdout


def test_mypy_accepts_what_works_and_nothing_else(programs: Path) -> None:
    """Valid code passes mypy, which reports an unused "type: ignore" if it accepts an error."""
    files = sorted(path.name for path in programs.glob("*.py"))
    # Tests of pytest, and the agents that they test, usually have no annotations.
    untyped = ("simulation_", "red_teams_", "ends_", "readme_1.")
    plain = [name for name in files if name.startswith(untyped)]
    strict = [name for name in files if name not in plain]
    for names, options in (
        (strict, []),
        (plain, ["--allow-untyped-defs", "--allow-untyped-calls"]),
    ):
        told = run(programs, "mypy", "--config-file=", "--strict", *options, *names)
        assert told == f"Success: no issues found in {len(names)} source files\n"


def test_pyright_accepts_what_works_and_nothing_else(programs: Path) -> None:
    config = {
        "typeCheckingMode": "standard",
        "strict": ["program.py", "mistakes.py"],
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportUnusedExpression": False,
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    told = run(programs, "basedpyright", "--pythonpath", sys.executable)
    assert told == "0 errors, 0 warnings, 0 notes\n"
