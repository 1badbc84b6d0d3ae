"""The lowest versions that `pyproject.toml` allows can be installed together, and work."""

import json
import os
import shutil
import subprocess
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
# `uv run` names itself.
UV = os.environ.get("UV") or shutil.which("uv")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
# Ray is large, and its tests need it alone. Inspect needs newer versions of other packages.
EXTRAS = {
    name: needed
    for name, needed in PROJECT["optional-dependencies"].items()
    if name not in ("inspect", "ray")
}
SMOKE = (
    "tests/graphs/cli/test_cli.py",
    "tests/graphs/cli/test_terminal_markdown.py",
    "tests/graphs/conversation/test_spec.py",
    "tests/graphs/serve/test_mcp_server.py",
    "tests/graphs/show/test_pictures.py",
    "tests/graphs/store/test_store.py",
    "tests/graphs/view/test_view.py",
    "tests/nodes/models/test_models.py",
    "tests/nodes/turn/test_agents.py",
)
"""Tests of the models' clients, LangGraph and its stores, agents, the command line, the MCP server,
pages and pictures.
"""

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.live,
    pytest.mark.skipif(UV is None, reason="uv is not installed"),
]


class Environment:
    """An environment with a copy of the project and the lowest versions.

    Args:
        folder: The folder for both.
    """

    def __init__(self, folder: Path) -> None:
        self._source, self._python = folder / "source", folder / "venv" / "bin" / "python"
        ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT, self._source, ignore=ignored)
        self._variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("UV_", "VIRTUAL_ENV", "PYTEST_", "PYTHON"))
        }
        self.uv("venv", "--quiet", str(folder / "venv"))
        project = ("--editable", f".[{','.join(EXTRAS)}]")
        self.uv("pip", "install", "--quiet", "--resolution", "lowest-direct", *project)
        # The tools of the tests are new: nobody uses the project with old ones.
        self.uv("pip", "install", "--quiet", "--group", "dev")

    def uv(self, *command: str) -> str:
        """Run uv for this environment; return its output."""
        python = ("--python", str(self._python)) if command[0] == "pip" else ()
        return self._run(str(UV), *command, *python)

    def test(self, *tests: str) -> str:
        """Run tests of the copy; return their output."""
        return self._run(str(self._python), "-m", "pytest", "-q", "-n", "2", *tests)

    def _run(self, *command: str) -> str:
        ran = subprocess.run(
            command, cwd=self._source, env=self._variables, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the lowest versions."""
    return Environment(tmp_path_factory.mktemp("lowest"))


def lower_bounds() -> dict[str, Version]:
    """Return the lower bound of each dependency, by its name."""
    needed = map(Requirement, [*PROJECT["dependencies"], *chain(*EXTRAS.values())])
    return {
        one.name: max(Version(part.version) for part in one.specifier if part.operator == ">=")
        for one in needed
    }


def test_no_dependency_requires_a_version_above_a_lower_bound(environment: Environment) -> None:
    installed = {
        one["name"]: Version(one["version"])
        for one in json.loads(environment.uv("pip", "list", "--format", "json"))
    }
    bounds = lower_bounds()
    assert {name: installed[name] for name in bounds} == bounds


@pytest.mark.timeout(900)
def test_the_lowest_versions_pass_tests(environment: Environment) -> None:
    assert " passed" in environment.test(*SMOKE)
