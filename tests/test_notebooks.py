"""The notebooks are kept with what they print, and that is what they print now.

That they run is tested by nbmake, which executes each one in a kernel.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    """The code cells of a notebook."""
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_as_it_ran_from_top_to_bottom(name: str) -> None:
    assert [cell["execution_count"] for cell in cells(name)] == [*range(1, len(cells(name)) + 1)]
    kinds = [output["output_type"] for cell in cells(name) for output in cell["outputs"]]
    assert kinds
    assert "error" not in kinds
    kept = (FOLDER / name).read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|home|root|Users|var)/|\w:\\\\|site-packages", kept)


@pytest.mark.parametrize(
    "name", ["people.ipynb", "shape_a_speaker.ipynb", "tools_and_code.ipynb", "ways_to_end.ipynb"]
)
def test_the_scripted_ones_print_what_is_kept(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for cell in cells(name):
        exec(compile("".join(cell["source"]), name, "exec"), names)  # noqa: S102  # our own
        kept = ["".join(output["text"]) for output in cell["outputs"]]
        assert capsys.readouterr().out == "".join(kept)
