"""Contents of the installed package, and its public imports."""

import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from house import count_lines_of_code

import duologue
import duologue.graphs as graphs
import duologue.tools

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(
    path.parent.relative_to(ROOT)
    for package in ("graphs", "nodes", "tools")
    for path in (ROOT / package).rglob("__init__.py")
)


def test_all_public_names_are_there_from_both_packages() -> None:
    names = dir(graphs)
    assert 80 < len(names) <= 97
    assert set(dir(duologue)) == {*names, "__version__"}
    for name in names:
        assert getattr(duologue, name) is getattr(graphs, name)
    assert all(hasattr(duologue.tools, name) for name in dir(duologue.tools))


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert duologue.__version__ == project["version"]


def test_a_name_that_there_is_not_is_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="module 'duologue' has no attribute 'converze'"):
        duologue.converze  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'converze'"):
        from duologue import converze  # type: ignore[attr-defined]  # noqa: F401


def test_the_clone_may_be_called_as_one_likes() -> None:
    # pytest imports the package in this way if the folder's name is no module name, as in
    # `duologue-main`.
    spec = spec_from_file_location("__init__", Path(duologue.__file__))
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    assert not hasattr(found, "pytest_plugins")
    assert found.converse is duologue.converse


def test_every_folder_is_a_package_that_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    found = {"duologue", *("duologue." + ".".join(path.parts) for path in FOLDERS)}
    assert set(setuptools["packages"]) == found


def test_no_module_is_long() -> None:
    long = {
        str(path): lines
        for folder in FOLDERS
        for path in (ROOT / folder).glob("*.py")
        if (lines := count_lines_of_code(path.read_text(encoding="utf-8"))) > 450
    }
    assert not long


@pytest.mark.part(1)
@pytest.mark.parametrize(
    "first",
    ["duologue", "duologue.graphs", "duologue.nodes.turn.speak", "duologue.tools.sandbox.sandbox"],
)
def test_any_package_may_be_imported_first(first: str) -> None:
    program = f"import {first}; from duologue import converse; from duologue.tools import Hook"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_each_check_of_a_folder_finds_all_tests_with_its_mark() -> None:
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    checks = re.findall(r"pytest ((?:tests/\S+ )+)-m (\w+)", commands)
    assert {mark for _, mark in checks} >= {"browser", "packaging", "types"}
    for folders, mark in checks:
        inside = [ROOT / folder for folder in folders.split()]
        marked = [
            path
            for path in (ROOT / "tests").rglob("test_*.py")
            if re.search(rf"mark\.{mark}\b", path.read_text(encoding="utf-8"))
        ]
        assert marked, mark
        outside = [path for path in marked if not any(path.is_relative_to(it) for it in inside)]
        assert outside == [], (mark, folders)
