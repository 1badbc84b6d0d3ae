"""Z2: rewritten tasks: the answers that are no rewrite, and the models that are asked."""

from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import Result, role_play
from duologue.nodes.testing import ScriptedChatModel
from support.cli_help import duologue, isolate
from support.log import rejections
from support.prompts import PROMPTS, fill
from support.shape_help import play

TASK = "Build a bot"
GOOD = "Build a bot that trades tea."
ECHO = "Build a bot. Rewrite the task to include a list of inputs. Use at most 50 words."
SAME = "Build a bot."
SAID = ["Instruction: Begin.\nInput: None", "Solution: I began. Next request."]
TOLD = fill(PROMPTS["rewrite_task"], limit=50)


def played(*rewrites: str, **options: Any) -> tuple[Result, ScriptedChatModel]:
    """Return the result of these answers to the request for a task; all must be used."""
    stored = {"store": options.pop("store"), "session": "one"} if "store" in options else {}
    spec = role_play(TASK, "Owner", "Coder", max_iterations=1, **options)
    return play(spec, [*rewrites, *SAID], **stored)


@pytest.mark.parametrize("first", [ECHO, SAME])
def test_z2_what_adds_nothing_is_asked_for_once_more(first: str) -> None:
    result, model = played(first, GOOD)
    assert result.specified_task == GOOD
    again = [(one["role"], one["content"]) for one in model.calls[1].prompt[1:]]
    assert again == [("assistant", first), ("user", TOLD)]
    assert rejections(result) == [TOLD]
    # It did not cause the end.
    assert [one.kind.value for one in result.why()] == ["reason"]


@pytest.mark.parametrize("second", [ECHO, SAME, f"{SAME} {TOLD}"])
def test_z2_after_the_second_the_task_stays_and_a_note_says_so(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    result, _ = played(ECHO, second, store=tmp_path / "sessions.db")
    assert result.specified_task == TASK
    note = f"The original task was kept, because two rewrites were rejected: {TOLD}"
    assert [one.kind.value for one in result.why()] == ["reason"]
    assert note in result.session.export(format="markdown")
    assert "The original task was kept" in result.session.export(format="html")
    assert f"({note})" in duologue("show", "one").stdout


def test_z2_other_models_rewrite_it_unless_they_are_asked_not_to() -> None:
    assert played(GOOD)[0].specified_task == GOOD
    assert played(specify_task=False)[0].specified_task == TASK
