"""The simulation: the user's prompt, the messages of the agent, and the judge.

`tests/graphs/scenarios/test_endings.py` tests its ends.
"""

from typing import Any

import pytest

from duologue.graphs import Result, converse, simulation
from duologue.nodes.testing import Line, ScriptedChatModel

GOAL = "You want order 7 refunded."
ASKS = "Please refund order 7."


def play(*script: str, **options: Any) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=script)
    return converse(simulation(GOAL, **options), model=model, store="memory:"), model


def test_an_answer_after_the_token_comes_beyond_the_cap() -> None:
    result, _ = play(ASKS, "Shall I?", "Yes. ###STOP###", "Done.", "Bye.", max_iterations=2)
    assert result.transcript[-1] == ("Agent", "Done.")
    assert result.stop_reason == "done_token"


@pytest.mark.parametrize(
    "early", ["###STOP###", f"{ASKS} ###STOP###", "###TRANSFER###", "###GIVE-UP###"]
)
def test_a_token_before_the_agent_has_spoken_is_rejected(early: str) -> None:
    result, model = play(early, ASKS, "Refunded.", "###STOP###")
    assert result.transcript == [("User", ASKS), ("Agent", "Refunded."), ("User", "###STOP###")]
    assert "you have no answer yet" in model.calls[1].messages[-1].text


def test_the_user_reads_its_goal_and_rules_and_the_model_of_the_agent_does_not() -> None:
    _, model = play(
        *(ASKS, "Refunded.", "###STOP###"),
        persona="Rude.",
        knows="The order number is 7.",
        must_not_say="The card number.",
        language="German",
        assistant_prompt="Serve {user}.",
    )
    mine, theirs = (call.messages[0].text for call in model.calls[:2])
    for words in (GOAL, "Rude.", "number is 7.", "The card number.", "German", "###GIVE-UP###"):
        assert words in mine
        assert words not in theirs
    assert theirs.startswith("Serve User.")


def test_the_title_is_the_beginning_of_the_goal_unless_it_is_set() -> None:
    assert simulation(GOAL).title == GOAL
    assert simulation(GOAL, title="Refund").title == "Refund"


def test_no_rule_without_its_field() -> None:
    prompt = simulation(GOAL).speakers[0].system_prompt or ""
    assert "{" not in prompt
    assert "language" not in prompt


MET: Line = {"criterion_1": {"reason": "It refunds it.", "message": 2, "finding": "met"}}


def test_the_judge_is_asked_after_a_cap_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    criteria = ["The agent refunds order 7."]
    result, model = play(ASKS, "No.", criteria=criteria, max_iterations=1)
    assert (result.stop_reason, len(model.calls)) == ("max_iterations", 2)
    verdict = result.session.judge(model=ScriptedChatModel([MET]))
    assert verdict.describe_finding(*criteria) == "met: It refunds it, message 2"
    assert not caplog.records
