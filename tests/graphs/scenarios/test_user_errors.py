"""Errors of the simulated user, the side at fault, and agents that say nothing."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from duologue import InconclusiveResult, Scenario, SpecError, simulate
from duologue.graphs.scenarios import (
    SimulationResult,
    agent,
    load_suite,
    proceed,
    red_team,
    run_suite,
    user,
)
from duologue.nodes.testing import Line, ScriptedChatModel

CORPUS = Path(__file__).parents[2] / "corpus" / "user_errors.toml"

ORDER = "You want order 1042 refunded."
REFUND, DONE = "Refund order 1042.", "###STOP###"
INVENTED = "It is order 4589217."


def play(
    says: Sequence[Line], replies: Sequence[str] = ("Done.",), **fields: Any
) -> SimulationResult:
    """Run a simulation in which user and agent say these texts; the agent repeats its last one."""
    given = iter(replies)

    def reply(messages: Sequence[BaseMessage]) -> str:
        return next(given, replies[-1])

    judge = fields.pop("judge", None)
    options: dict[str, Any] = {} if judge is None else {"judge_model": judge}
    scenario = Scenario(**{"goal": ORDER, **fields})
    return simulate(scenario, reply, model=ScriptedChatModel(says), store="memory:", **options)


def criterion(finding: str) -> ScriptedChatModel:
    verdict = {"reason": "It did.", "message": 1, "finding": finding}
    return ScriptedChatModel([{"criterion_1": verdict}])


def test_errors_are_found_in_the_corpus_and_in_no_sound_simulation() -> None:
    wrong = []
    for row in tomllib.loads(CORPUS.read_text(encoding="utf-8"))["simulation"]:
        says = [text[3:] for text in row["says"] if text.startswith("u:")]
        replies = [text[3:] for text in row["says"] if text.startswith("a:")]
        result = play(
            [*says, "Go on.", "Go on."],
            replies,
            goal=row.get("goal", ORDER),
            must_not_say=row.get("secret"),
            must_mention=row.get("must_mention", []),
            max_iterations=len(replies) + 1,
        )
        if (found := [one.kind for one in result.user_errors]) != row["found"]:
            wrong.append((row["name"], found))
    assert not wrong


@pytest.mark.parametrize("between", ["", "\nSure.\n", "\n\n"])
def test_a_user_that_writes_the_agents_lines_is_asked_again_before_the_agent_reads_them(
    between: str,
) -> None:
    seen = list[str]()

    def reply(messages: Sequence[BaseMessage]) -> str:
        seen.append(str(messages[-1].content))
        return "I refunded it.\nUser: Ann Lee\nOrder: 1042"

    played = f"{REFUND}{between}\nAgent: It is refunded.\nUser: Thank you!"
    model = ScriptedChatModel([played, REFUND, DONE])
    result = simulate(Scenario(ORDER), reply, model=model, store="memory:")
    assert seen == [REFUND], "the agent may name the user in a list"
    assert result.passed
    assert "Agent" in model.calls[1].prompt[-1]["content"]


def test_an_error_of_the_user_makes_a_simulation_inconclusive_and_is_named() -> None:
    result = play([INVENTED, DONE], criteria=["The agent helps."], judge=criterion("met"))
    assert result.at_fault == "user"
    with pytest.raises(InconclusiveResult, match=r"invented a fact: 4589217 \(message 1\); use a"):
        _ = result.passed
    assert "[met] The agent helps" in result.report(), "the agent's verdicts are shown, too"
    assert "[user error] the user invented a fact: 4589217 (message 1)" in result.report()


@pytest.mark.parametrize("criteria", [(), ("It helps.",)])
def test_the_judge_also_decides_whether_the_user_kept_to_its_instructions(
    criteria: tuple[str, ...],
) -> None:
    met = {"reason": "It did.", "message": 1, "finding": "met"}
    unmet = {"reason": "It asked for a watch.", "message": 1, "finding": "not_met"}
    fields = {"criteria": criteria, "user_errors": "judge", "knows": "You are Ann Lee."}
    for last, at_fault in (
        (met, None),
        (unmet, "user"),
        (unmet | {"finding": "inconclusive"}, None),
    ):
        found = [*(met for _ in criteria), last]
        judge = {f"criterion_{place}": one for place, one in enumerate(found, start=1)}
        model = ScriptedChatModel([judge])
        result = play([REFUND, DONE], judge=model, **fields)
        assert result.at_fault == at_fault
        assert len(result.verdicts) == len(found)
        asked = model.calls[0].prompt[-1]["content"] + model.calls[0].prompt[0]["content"]
        assert ORDER in asked
        assert "You are Ann Lee." in asked
        if last is unmet:
            named = "the user did not keep to its instructions: It asked for a watch. (message 1)"
            assert f"[user error] {named}" in result.report()


def test_errors_can_be_ignored_and_pressing_users_are_exempt() -> None:
    result = play([INVENTED, DONE], user_errors="ignore")
    assert (result.passed, result.at_fault, result.user_errors) == (True, None, ())
    assert red_team("reveal a code")["parts"].user_errors == "ignore"
    assert red_team("reveal a code", user_errors="inconclusive")["parts"].user_errors != "ignore"
    with pytest.raises(SpecError, match="user_errors"):
        Scenario(ORDER, user_errors="maybe")


def test_the_fixed_texts_of_a_script_are_no_errors_and_may_be_repeated() -> None:
    script = [user(INVENTED), agent(), proceed()]
    result = play([f"Yes, {INVENTED}", DONE], script=script)
    assert not result.user_errors
    assert result.passed


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_reply_fails_and_is_shown(blank: str) -> None:
    result = play([REFUND, DONE], [blank])
    assert (result.passed, result.at_fault) == (False, "agent")
    assert "[not met] the agent replied: a reply of the agent has no text (message 2)" in (
        result.report()
    )
    assert "2. Agent: (no reply)" in result.report()


def test_a_scenario_may_allow_blank_replies() -> None:
    assert play([REFUND, DONE], [""], blank_replies=True).passed


def test_a_suite_reports_the_side_at_fault_and_the_rate_of_user_errors(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        f'[scenarios.sound]\ngoal = "{ORDER}"\nmust_mention = ["1042"]\n'
        f'[scenarios.silent]\ngoal = "{ORDER} Ask twice."\n'
        f'[scenarios.loose]\ngoal = "{ORDER}"\nuser_errors = "ignore"\nmodel = "other"\n'
        '[scenarios.vague]\ngoal = "You want an order refunded."\nmodel = "other"\n'
    )
    play_user = lambda prompt: DONE if any(one["role"] == "assistant" for one in prompt) else REFUND  # noqa: E731
    report = run_suite(
        load_suite(file),
        lambda messages: "" if "twice" in str(messages) else "Done.",
        name="shop",
        model=ScriptedChatModel(play_user),
        models={"other": ScriptedChatModel(play_user)},
        store=f"memory:{tmp_path.name}",
    )
    found = {one.scenario: (one.outcome, one.at_fault) for one in report.simulations}
    assert found == {
        "sound": ("passed", None),
        "silent": ("passed", None),
        "loose": ("passed", None),
        "vague": ("inconclusive", "user"),
    }
    assert {model: share.value for model, share in report.user_errors.items()} == {
        "the default model": 0,
        "other": 0.5,
    }
    assert "Errors of the simulated user (other): 50% of 2 simulations (9% to 91%)" in str(report)
    assert report.verdict == "inconclusive"
