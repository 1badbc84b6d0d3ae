"""Trajectories as input of the real evaluators of agentevals and openevals."""

import re
from pathlib import Path

import pytest

from .conftest import page_blocks

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def evaluation() -> str:
    """Return the page's program with the evaluators."""
    (program,) = [code for code in page_blocks("py", "python") if "agentevals" in code]
    return program


@pytest.fixture
def names() -> dict[str, object]:
    """Return the names that the page's program with a trajectory defines."""
    (talk,) = [code for code in page_blocks("python", "python") if "trajectory()" in code]
    names: dict[str, object] = {}
    exec(talk, names)  # noqa: S102  # the page's own program
    return names


def test_the_evaluators_rate_a_trajectory_as_the_page_says(
    evaluation: str, names: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    exec(evaluation, names)  # noqa: S102
    after = PAGE.read_text(encoding="utf-8").partition(evaluation)[2]
    printed = re.search(r"```text\n(.*?)```", after, re.DOTALL)
    assert printed is not None
    assert capsys.readouterr().out == printed[1]


def test_a_missing_call_has_a_score_of_false(evaluation: str, names: dict[str, object]) -> None:
    exec(evaluation.partition("judge =")[0].replace("2 * 7", "2 * 8"), names)  # noqa: S102
    expected = {"key": "trajectory_superset_match", "score": False}
    assert names["found"] == {**expected, "comment": None, "metadata": None}
