"""Any speaker of any conversation can be a person, also in the short forms."""

from uuid import uuid4

import pytest

from duologue.graphs import SpecError, blogger, converse, role_play
from duologue.nodes.testing import ScriptedChatModel


def test_a_person_instructs_in_a_role_play_in_any_words() -> None:
    play = role_play("Plan a garden", "Owner", "Gardener", people=["Owner"], specify_task=False)
    model = ScriptedChatModel(script=["Solution: Dug.\nNext request."])
    said = iter(["Dig, please!", "<CAMEL_TASK_DONE>"])
    result = converse(
        play, model=model, store=f"memory:{uuid4()}", answer=lambda question: next(said)
    )
    assert result.transcript[:2] == [
        ("Owner", "Dig, please!"),
        ("Gardener", "Solution: Dug.\nNext request."),
    ]
    assert result.outcome is not None
    assert (result.outcome.reason.value, result.outcome.by) == ("done_token", "Owner")
    # The format applies only to models.
    assert "problem" not in str(result.messages[1].additional_kwargs)
    assert len(model.calls) == 1


def test_a_person_criticises_what_a_model_writes() -> None:
    asked: list[str] = []
    said = iter(["Shorter.", "SATISFIED"])

    def answer(question: object) -> str:
        asked.append(getattr(question, "heard", ""))
        return next(said)

    model = ScriptedChatModel(script=["A long text.", "A text."])
    spec = blogger("Autumn", people=["Critic"])
    result = converse(spec, model=model, store=f"memory:{uuid4()}", answer=answer)
    assert [text.rpartition("\n")[2] for text in asked] == ["A long text.", "A text."]
    assert result.outcome is not None
    assert (result.outcome.reason.value, result.outcome.by) == ("done_token", "Critic")


def test_nobody_of_that_name_is_one_error() -> None:
    with pytest.raises(
        SpecError, match=r"people: no speaker is called 'Ownr'; did you mean 'Owner'\?"
    ):
        role_play("Plan a garden", "Owner", "Gardener", people=["Ownr"])
