"""Z2: rewritten tasks: the answers that are no rewrite, and the models that are asked."""

from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from duologue.graphs import Result, Session, converse, role_play
from duologue.graphs.cli.follow_up import FollowUp
from duologue.graphs.cli.terminal.events import Transcript
from duologue.graphs.prompts import prompts
from duologue.graphs.session.events import events_of_session
from duologue.nodes.models import model as resolve
from duologue.nodes.models.adapters import families
from duologue.nodes.models.adapters.base import SMALL
from duologue.nodes.testing import ScriptedChatModel
from support.log import kind_of, rejections

TASK = "Build a bot"
GOOD = "Build a bot that trades tea."
ECHO = "Build a bot. Rewrite the task to include a list of inputs. Use at most 50 words."
SAME = "Build a bot."
SAID = ["Instruction: Begin.\nInput: None", "Solution: I began. Next request."]
TOLD = prompts.fill_template(prompts.REWRITE_TASK, limit=50)


def played(*rewrites: str, session: str = "one", **options: Any) -> tuple[Result, Any, str]:
    """Return the result of these answers to the request for a task; all must be used."""
    model = ScriptedChatModel(script=[*rewrites, *SAID])
    talk = role_play(TASK, "Owner", "Coder", max_iterations=1, **options)
    store = f"memory:{uuid4().hex}"
    result = converse(talk, model=model, session=session, store=store)
    assert len(model.calls) == len(rewrites) + len(SAID)
    return result, model, store


@pytest.mark.parametrize("first", [ECHO, SAME])
def test_z2_what_adds_nothing_is_asked_for_once_more(first: str) -> None:
    result, model, _ = played(first, GOOD)
    assert result.specified_task == GOOD
    again = [(one["role"], one["content"]) for one in model.calls[1].prompt[1:]]
    assert again == [("assistant", first), ("user", TOLD)]
    assert rejections(result) == [TOLD]
    # It did not cause the end.
    assert [one.kind.value for one in result.why()] == ["reason"]


@pytest.mark.parametrize("second", [ECHO, SAME, f"{SAME} {TOLD}"])
def test_z2_after_the_second_the_task_stays_and_a_note_says_so(second: str) -> None:
    result, _, store = played(ECHO, second)
    assert result.specified_task == TASK
    note = f"The original task was kept, because two rewrites were rejected: {TOLD}"
    assert [one.kind.value for one in result.why()] == ["reason"]
    assert note in Session("one", store=store).export(format="markdown")
    assert "The original task was kept" in Session("one", store=store).export(format="html")
    console = Console(width=300, record=True, force_terminal=False)
    transcript = Transcript(FollowUp(store), console, console)
    for event in events_of_session(result):
        transcript.show(event)
    assert f"({note})" in console.export_text()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the embedded model by the scripted one."""
    made = families.adapter_of

    def as_small(*given: Any) -> Any:  # noqa: ANN401
        adapter = made(*given)
        adapter.prompting = SMALL
        return adapter

    monkeypatch.setattr(resolve, "adapter_of", as_small)


@pytest.mark.usefixtures("small")
def test_z2_the_embedded_model_rewrites_no_task_unless_it_is_asked_to() -> None:
    result, _, _ = played()
    assert result.specified_task == TASK
    assert "specified_task" not in {kind_of(one) for one in result.messages}
    for options in ({"specify_task": True}, {"task_specification": {"small_models": True}}):
        result, model, _ = played(GOOD, **options)
        assert result.specified_task == GOOD
        assert model.calls[0].prompt[0]["content"] == prompts.fill_template(
            prompts.SPECIFY_TASK_SMALL_MODEL, task=TASK
        )


def test_z2_other_models_rewrite_it_unless_they_are_asked_not_to() -> None:
    assert played(GOOD)[0].specified_task == GOOD
    assert played(specify_task=False)[0].specified_task == TASK
