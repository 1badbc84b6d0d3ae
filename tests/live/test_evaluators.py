"""Trajectories as input of the real evaluators of agentevals and openevals."""

import re
from pathlib import Path

import pytest

from .conftest import page_blocks

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_evaluators_rate_a_trajectory_as_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (evaluation,) = [code for code in page_blocks("py", "python") if "agentevals" in code]
    (talk,) = [code for code in page_blocks("python", "python") if "trajectory()" in code]
    names: dict[str, object] = {}
    exec(talk, names)  # noqa: S102  # the page's own program
    capsys.readouterr()
    exec(evaluation, names)  # noqa: S102
    after = PAGE.read_text(encoding="utf-8").partition(evaluation)[2]
    printed = re.search(r"```text\n(.*?)```", after, re.DOTALL)
    assert printed is not None
    assert capsys.readouterr().out == printed[1]


def test_a_missing_call_has_a_score_of_false() -> None:
    (evaluation,) = [code for code in page_blocks("py", "python") if "agentevals" in code]
    (talk,) = [code for code in page_blocks("python", "python") if "trajectory()" in code]
    names: dict[str, object] = {}
    exec(talk, names)  # noqa: S102
    matching = evaluation.partition("judge =")[0].replace("2 * 7", "2 * 8")
    exec(matching, names)  # noqa: S102
    assert names["found"] == {
        "key": "trajectory_superset_match",
        "score": False,
        "comment": None,
        "metadata": None,
    }
