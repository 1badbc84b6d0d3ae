"""The notebooks are stored with their output, and that output is up to date.

nbmake tests that they run: it executes each one in a kernel. The output of a cell with the tag
`varies` contains words of the embedded model, which differ between processors.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def _varies(cell: dict[str, Any]) -> bool:
    return "varies" in cell["metadata"].get("tags", ())


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_as_it_ran_from_top_to_bottom(name: str) -> None:
    assert [cell["execution_count"] for cell in cells(name)] == [*range(1, len(cells(name)) + 1)]
    kinds = [output["output_type"] for cell in cells(name) for output in cell["outputs"]]
    assert kinds
    assert "error" not in kinds
    # Such output would be left by a progress line, or be shown next to a value.
    assert "display_data" not in kinds
    kept = (FOLDER / name).read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|home|root|Users|var)/|\b[A-Z]:\\\\|site-packages", kept)
    assert len(kept) < 60_000


# A notebook with the embedded model takes long.
RUN = [
    pytest.param(name, marks=[pytest.mark.exhaustive] * any(map(_varies, cells(name))))
    for name in NOTEBOOKS
]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", RUN)
def test_it_shows_what_is_kept(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    # People also run all cells again, in the same kernel.
    again = [] if any(map(_varies, cells(name))) else cells(name)
    for cell in [*cells(name), *again]:
        value = _run("".join(cell["source"]), name, names)
        printed = capsys.readouterr().out
        if _varies(cell):
            assert printed
            continue
        streams = [one for one in cell["outputs"] if one["output_type"] == "stream"]
        assert printed == "".join("".join(one["text"]) for one in streams)
        kept = [one["data"] for one in cell["outputs"] if one["output_type"] == "execute_result"]
        assert [*_shown(value)] == [
            {kind: "".join(data) for kind, data in one.items()} for one in kept
        ]


def _run(source: str, name: str, names: dict[str, Any]) -> object:
    """Run a cell, and return the value of its last line if that is an expression."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)  # noqa: S102  # our own
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307


def _shown(value: object) -> Iterator[dict[str, str]]:
    """Yield a kernel's display data for a value."""
    if value is not None:
        data, _ = DisplayFormatter().format(value)  # type: ignore[no-untyped-call]
        # The form in which a file stores it.
        yield {kind: text.removeprefix("\ufeff") for kind, text in data.items()}


def test_each_is_listed_where_people_look_for_it() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\(\.\./notebooks/(.*?)\)", index) != []
    assert sorted(re.findall(r"\(\.\./notebooks/(.*?)\)", index)) == NOTEBOOKS


def test_one_is_run_by_the_readmes_command_and_all_by_ci() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert len(re.findall(r'"notebooks/\w+\.ipynb"', project)) == 1
    assert "pytest notebooks -n 0" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
