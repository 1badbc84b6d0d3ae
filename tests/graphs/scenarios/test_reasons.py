"""The reasons why an agent has not passed: the decisive one comes first in every report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from duologue import InconclusiveResult, Scenario, simulate
from duologue.graphs.scenarios import (
    SimulationResult,
    SuiteReport,
    agent,
    check,
    run_suite,
    user,
)
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.tables import each_row


def shop(messages: Sequence[BaseMessage]) -> str:
    return "It is refunded."


def make_check(found: str) -> Any:  # noqa: ANN401  # a check
    def is_right(result: SimulationResult) -> bool:
        return found == "true"

    return is_right


@each_row("reasons")
def test_a_report_begins_with_the_outcome_and_its_decisive_reason(
    says: list[str],
    fields: dict[str, Any] | None,
    finding: str | None,
    is_met: str | None,
    script: list[str] | None,
    line: str,
    reasons: list[str],
    fault: str | None,
) -> None:
    own: dict[str, Any] = {"criteria": ["It helps."] if finding else [], **(fields or {})}
    if is_met is not None:
        own["checks"] = [make_check(is_met)]
    if script is not None:
        own["script"] = [make_step(one) for one in script]
    verdict = {"criterion_1": {"reason": "So.", "message": 1, "finding": finding}}
    judge = ScriptedChatModel([verdict])
    model = ScriptedChatModel(says)
    result = simulate(
        Scenario("Get it refunded.", **own), shop, model=model, judge_model=judge, store="memory:"
    )
    assert result.report().splitlines()[0] == line
    short = line[0].lower() + line[1:]
    assert repr(result) == f"<SimulationResult of {result.session.id!r}: {short}>"
    assert (list(result.reasons), result.at_fault) == (reasons, fault)
    assert result.outcome == line.partition(":")[0].casefold()
    try:
        assert bool(result) == result.passed == (result.outcome == "passed")
    except InconclusiveResult:
        assert result.outcome == "inconclusive"


def make_step(name: str) -> Any:  # noqa: ANN401  # a step of a script
    return {"user": user, "agent": agent}.get(name, lambda: check(make_check(name)))()


REFUSED = "You want a refund for an order of another customer."


def play_user(prompt: Prompt) -> Line:
    if any(one["role"] == "assistant" for one in prompt):
        return "###STOP###"
    return "My newest order 8812345." if "newest" in str(prompt) else "Please refund it."


def play(store: str, trials: int = 3) -> SuiteReport:
    suite: dict[str, Any] = {
        "personas": {"calm": "Calm.", "cross": "Cross."},
        "scenarios": {
            "refund": {"goal": "You want order 7 refunded."},
            "refusal": {"goal": REFUSED, "expected_ends": ["gave_up"]},
            "newest": {"goal": "You want your newest order refunded."},
        },
    }
    model = ScriptedChatModel(play_user)
    return run_suite(suite, shop, name="shop", model=model, trials=trials, store=store)


def test_a_suite_groups_the_failures_by_their_decisive_reason(tmp_path: Path) -> None:
    report = play(f"memory:{tmp_path.name}")
    assert report.counts == "6 passed, 6 failed, 6 inconclusive"
    ended = 'ended as "the user says the goal is met", expected "gave_up"'
    error = "[user error] the user invented a fact: 8812345 (message 1)"
    assert [(str(group[0]), len(group)) for group in report.failures] == [
        *((f"failed: refusal, {one} - {ended}", 3) for one in ("calm", "cross")),
        *((f"inconclusive: newest, {one} - {error}", 3) for one in ("calm", "cross")),
    ]
    row = json.loads(report.simulations[0].model_dump_json())
    assert row["reasons"] == [ended]
    assert str(report).splitlines()[1] == (
        "  refund, calm: 3 passed; with so few trials the true rate may be as low as 44 %"
    )
