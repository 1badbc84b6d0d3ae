"""Two judges of a simulation: equal and different decisions, and their agreement."""

from typing import Any

import pytest

from duologue import InconclusiveResult, Scenario, SpecError, simulate
from duologue.graphs.scenarios import SimulationResult, measure_agreement
from duologue.nodes.testing import Line, ScriptedChatModel

CRITERIA = ["The agent looks the order up.", "The agent is polite."]


def answer(*findings: str) -> Line:
    return {
        f"criterion_{number}": {
            "reason": f"It is {one}.",
            "message": min(number, 2),
            "finding": one,
        }
        for number, one in enumerate(findings, start=1)
    }


def play(*judges: Line, fields: dict[str, Any] | None = None, **options: Any) -> SimulationResult:
    models = [ScriptedChatModel([one] * 2) for one in judges]
    user = ScriptedChatModel(["Refund it.", "###STOP###"])
    scenario = Scenario("Get one charge refunded.", **{"criteria": CRITERIA} | (fields or {}))
    given: dict[str, Any] = {"judge_model": models, "model": user, "store": "memory:"} | options
    return simulate(scenario, lambda _: "Done.", **given)


def test_a_criterion_on_which_two_judges_differ_is_inconclusive_with_both_reasons() -> None:
    result = play(answer("met", "met"), answer("not_met", "met"))
    differs, equal = result.verdicts
    assert [differs.finding.value, equal.finding.value] == ["inconclusive", "met"]
    assert differs.reason == (
        "the judges differ (ScriptedChatModel: met, It is met; "
        "ScriptedChatModel (2): not met, It is not_met)"
    )
    assert [one.message for one in equal.opinions] == [2, 2]
    with pytest.raises(InconclusiveResult, match="the judges differ"):
        _ = result.passed
    assert str(result.agreement) == "the judges agree on 1 of 2 criteria (κ 0.00)"
    models = [one.judge.model for one in result.conversation.later_verdicts]
    assert models == ["ScriptedChatModel", "ScriptedChatModel (2)"]


def test_two_judges_that_agree_decide() -> None:
    assert play(answer("met", "met"), answer("met", "met")).passed
    result = play(answer("met", "not_met"), answer("met", "not_met"))
    assert not result.passed
    assert result.agreement is not None
    assert result.agreement.kappa == 1
    assert play(answer("met", "met")).agreement is None


def test_the_agreement_over_many_results_is_cohens_kappa() -> None:
    # The example of Cohen's paper on Wikipedia: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no.
    first = ["met"] * 25 + ["not_met"] * 25
    second = ["met"] * 20 + ["not_met"] * 5 + ["met"] * 10 + ["not_met"] * 15
    fields = {"criteria": [f"It is {number}." for number in range(50)], "checks": [lambda _: True]}
    verdicts = play(answer(*first), answer(*second), fields=fields).verdicts
    found = measure_agreement(verdicts)
    assert found is not None
    # The verdict of the check does not count.
    assert (len(verdicts), found.count, found.agreed) == (51, 50, 35)
    assert found.kappa == pytest.approx(0.4)
    always = measure_agreement(verdicts[:3])
    assert str(always) == "the judges agree on 3 of 3 criteria (κ not defined)"
    assert measure_agreement([]) is None


def test_wrong_judges_are_one_error_before_any_call() -> None:
    model = ScriptedChatModel([])
    wrong: list[tuple[Any, type[Exception], str]] = [
        ([], TypeError, "judge_model: must be a model or a list of two models, not 0"),
        ([model] * 3, TypeError, "judge_model: must be a model or a list of two models, not 3"),
        (["a", "a"], SpecError, "judge_model: both judges are the model 'a'; pass two different"),
        (7, TypeError, "judge_model: must be a model or its name, not int"),
    ]
    for given, error, words in wrong:
        with pytest.raises(error, match=words):
            play(judge_model=given, model=model)
    assert not model.calls
