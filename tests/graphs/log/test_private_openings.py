"""Y16: secrets of a speaker, given or invented, which no other speaker ever sees.

The sample of `test_group_solve` combines secrets with all other options.
"""

from typing import Any

import pytest
from pydantic import TypeAdapter

from duologue.graphs import Conversation, PrivateOpening, Speaker, SpecError, group_solve
from support.group_play import Troupe, entries
from support.histories import Plan
from support.log import of_kind
from support.prompts import PROMPTS, fill
from support.results import StoredSession, outcome_of
from support.tables import read_rows

SECRET = "secret-of-"  # noqa: S105


def short(result: StoredSession, name: str) -> str:
    """Return a history in the notation of docs/behaviour.md, without the system prompt."""
    view = entries(result.viewpoint(name))[1:]
    return " ".join(f"{role[0]}:{text}" for role, text in view)


def unheard_by_others(troupe: Troupe, result: StoredSession, owner: str) -> None:
    """Check that a secret is in no prompt and in no view of another speaker."""
    for call in troupe.model.calls:
        (_, system), *heard = entries(call.messages)
        if not system.startswith(f"You are {owner}."):
            assert not any(SECRET + owner in text for _, text in [("", system), *heard])
    for name in result.conversation.names:
        assert (SECRET + owner in short(result, name)) is (name == owner)


CASES: list[dict[str, Any]] = read_rows(__file__, "secrets")


@pytest.mark.part(3)
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_a_secret_comes_first_and_is_its_owners_alone(case: dict[str, Any]) -> None:
    plan, troupe = TypeAdapter(Plan).validate_python(case["plan"]), Troupe()
    result, _ = await troupe.play(plan)
    cues = {"begin": PROMPTS["begin"], "continue": PROMPTS["continue_conversation"]}
    for name, view in case["views"].items():
        assert short(result, name) == fill(view, **cues).replace("|", "\n\n")
    for name in (*plan.told, *plan.made_up):
        unheard_by_others(troupe, result, name)


@pytest.mark.parametrize("answers", [True, False], ids=["opening-answers", "shared-task"])
async def test_a_secret_is_made_up_before_anything_else_and_is_no_turn(answers: bool) -> None:
    """Y3, Y16: an invented secret counts as a message but not in a round, and is not judged."""
    plan = Plan(
        mode="end_chat_after_first_completion",
        completes={"A": None, "B": None},
        made_up=("A", "B"),
        answers=answers,
    )
    troupe = Troupe()
    result, _ = await troupe.play(plan)
    requests = [str(call.messages[-1].text) for call in troupe.model.calls]
    assert requests[:2] == [plan.request("A"), plan.request("B")]
    assert requests.count(PROMPTS["judge_own_task"]) == 2
    assert (outcome_of(result).rounds, outcome_of(result).messages) == (1, 6 if answers else 4)


async def test_what_is_made_up_is_not_held_to_the_form_that_others_read() -> None:
    """Y16, Z3: an invented secret needs no format, but a blank one is requested once more."""
    conversation = Conversation(
        task="Play.",
        speakers=(
            Speaker.model_validate(
                {
                    "name": "A",
                    "private_opening": {"prompt": "Choose a number."},
                    "format": {"lines": ["Hint:"]},
                }
            ),
            Speaker(name="B"),
        ),
        end_chat={"max_iterations": 1},
    )
    troupe = Troupe()
    result = await troupe.run(conversation, [" ", "Seven.", "Hint: odd.", "Seven?"])
    assert result.transcript == [("A", "Seven."), ("A", "Hint: odd."), ("B", "Seven?")]
    assert short(result, "B") == "u:Hint: odd. a:Seven?"
    drafts = of_kind(result.messages, "draft")
    assert [draft.text for draft in drafts] == [" "]


@pytest.mark.parametrize(
    "private",
    [
        pytest.param({}, id="Y16-neither"),
        pytest.param({"lines": []}, id="Y16-no-lines"),
        pytest.param({"lines": ["It is 7."], "prompt": "Choose."}, id="Y16-both"),
        pytest.param({"lines": [" "]}, id="Y16-blank-line"),
        pytest.param({"prompt": ""}, id="Y16-blank-prompt"),
    ],
)
def test_a_private_opening_is_lines_or_a_prompt(private: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"speakers\.0\.private_opening"):
        group_solve(
            [
                {"name": "A", "task": "P1", "private_opening": private},
                {"name": "B", "task": "P2"},
            ]
        )
    with pytest.raises(ValueError, match=r"lines|prompt"):
        PrivateOpening.model_validate(private)
