"""Scores by own functions in a batch on the command line, and the checks of --dry-run."""

import json
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from duologue.graphs import BatchRun, SpecError, list_batches, run_batch
from duologue.nodes.testing import ScriptedChatModel
from support.cli_help import Serve, duologue
from support.tables import each_row, read_rows

WORDS = '''
def solved(result, values):
    return str(values["labels.answer"]) in result.text


class Rules:
    @staticmethod
    def length(result):
        return len(result.text)


def find(word: str) -> str:
    """Find a word."""
    return word


def wants(one, two, three):
    return 1


number = 3
'''

LINES = read_rows(__file__, "sums_file")


@pytest.fixture(autouse=True)
def _words(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "words.py").write_text(WORDS)
    (tmp_path / "sums.toml").write_text(LINES)
    before = [*sys.path]
    # Another test may have imported its own module of this name.
    sys.modules.pop("words", None)
    invalidate_caches()
    yield
    sys.path[:] = before
    sys.modules.pop("words", None)


def test_a_batch_in_a_file_names_the_functions_of_a_module(serve: Serve) -> None:
    serve("It is 4.", "It is 4.")
    ran = duologue("batch", "run", "sums.toml")
    assert ran.exit_code == 0
    rows = {row["message"]: row for row in BatchRun("sums").rows()}
    assert [rows[text]["score.solved"] for text in ("2+2?", "3+3?")] == [1, 0]
    assert rows["2+2?"]["score.length"] == len("It is 4.")
    assert "solved" in duologue("batch", "report", "sums", "--sort", "solved").stdout


@each_row("what_a_run_refuses_is_refused_by_a_dry_run", "old", "new", "code", "said")
def test_what_a_run_refuses_is_refused_by_a_dry_run(
    old: str, new: str, code: int, said: str
) -> None:
    Path("sums.toml").write_text(LINES.replace(old, new))
    for options in (["--dry-run"], []):
        refused = duologue("batch", "run", "sums.toml", *options)
        assert (refused.exit_code, refused.stderr[: len(said) + 7]) == (code, f"Error: {said}")
    assert not list_batches()


def test_a_dry_run_reads_the_tools_of_a_module(serve: Serve) -> None:
    server = serve()
    Path("sums.toml").write_text(LINES.replace('"chat"', '"chat"\ntools = ["find"]'))
    assert duologue("batch", "run", "sums.toml", "--dry-run").exit_code == 2
    planned = duologue("batch", "run", "sums.toml", "--dry-run", "--tools", "words", "--json")
    assert json.loads(planned.stdout)["sessions"] == 2
    assert not any("messages" in (one.body or {}) for one in server.requests)


def test_two_functions_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def solved(result):\n    return 1\n")
    batch = {"conversation": {"kind": "chat"}, "score": ["words:solved", "other:solved"]}
    with pytest.raises(SpecError, match="two different scores are called 'solved'"):
        run_batch(batch, name="b", model=ScriptedChatModel([]), store="memory:")
