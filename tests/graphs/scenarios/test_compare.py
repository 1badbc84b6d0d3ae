"""The comparison of two runs of a suite, and its exact tests."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duologue.graphs.scenarios import (
    ScenarioRow,
    SimulationRow,
    SuiteReport,
    compare_suites,
    run_suite,
)
from support.agents import requesting
from support.cli_help import app


def report(name: str, **scenarios: tuple[int, int]) -> SuiteReport:
    """Return a report with so many passed and failed trials of each scenario."""
    rows = [
        SimulationRow(
            session=f"{name}-{scenario}-{trial}",
            scenario=scenario,
            persona=None,
            trial=trial + 1,
            outcome="passed" if trial < passed else "failed",
            ended="",
        )
        for scenario, (passed, failed) in scenarios.items()
        for trial in range(passed + failed)
    ]
    of_scenarios = [
        ScenarioRow(
            scenario=one,
            persona=None,
            digest=one,
            outcomes=Counter(row.outcome for row in rows if row.scenario == one),
            passes=(),
            ends={},
            cost=None,
        )
        for one in scenarios
    ]
    return SuiteReport(
        batch=name,
        agent="shop",
        agent_version=None,
        left=0,
        passes=(),
        scenarios=tuple(of_scenarios),
        simulations=tuple(rows),
    )


def test_new_failures_come_first_and_a_certain_change_is_significant() -> None:
    before = report("a", worse=(3, 7), fresh=(5, 0), same=(5, 5), better=(0, 10), gone=(1, 0))
    after = report("b", worse=(1, 9), fresh=(4, 1), same=(5, 5), better=(10, 0), new=(0, 1))
    found = compare_suites(before, after)
    assert [one.scenario for one in found.changes] == ["fresh", "worse", "same", "better"]
    assert [one.is_significant for one in found.changes] == [False, False, False, True]
    assert found.changes[0].failed == ("b-fresh-4",)
    assert (found.removed, found.added) == (("gone",), ("new",))
    assert not found.is_worse
    text = str(found).splitlines()
    assert text[1:3] == ["New failures:", "  fresh: 5 of 5 → 4 of 5 passed (p = 1, may be chance)"]
    assert "  better: 0 of 10 → 10 of 10 passed (p = 1.1e-05, significant)" in text


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        # As scipy.stats.fisher_exact returns them.
        ((5, 0), (0, 5), 0.007936507936507936),
        ((8, 2), (3, 7), 0.06977851869492736),
        ((5, 0), (5, 0), 1.0),
        ((1, 9), (11, 3), 0.0027594561852200836),
    ],
)
def test_the_test_of_one_scenario_is_fisher_s(
    before: tuple[int, int], after: tuple[int, int], p: float
) -> None:
    found = compare_suites(report("a", one=before), report("b", one=after))
    assert found.changes[0].p == pytest.approx(p)
    assert found.p == pytest.approx(p)


def test_small_changes_of_many_scenarios_are_significant_together() -> None:
    names = [f"s{number}" for number in range(6)]
    before = report("a", **dict.fromkeys(names, (5, 0)))
    after = report("b", **dict.fromkeys(names, (3, 2)))
    found = compare_suites(before, after)
    assert not any(one.is_significant for one in found.changes)
    assert found.p < 0.001
    assert found.is_worse
    assert not compare_suites(after, before).is_worse


def test_names_are_no_reports() -> None:
    wrong: Any = "shop-1"
    with pytest.raises(TypeError, match="before: must be a SuiteReport, not str; pass the result"):
        compare_suites(wrong, wrong)


@pytest.mark.exhaustive
def test_the_command_compares_two_runs(tmp_path: Path) -> None:
    def is_refunded(result: object) -> bool:
        return "Refunded" in str(getattr(result, "transcript", ""))

    store, model = f"memory:{tmp_path.name}", requesting()
    suite = {"scenarios": {"refund": {"goal": "Refund", "checks": [is_refunded]}}, "trials": 5}
    for name, text in (("before", "Refunded."), ("after", "No.")):
        run_suite(suite, lambda _, text=text: text, name=name, model=model, store=store)
    ran = CliRunner().invoke(app, ["compare", "before", "after", "--store", store])
    assert "refund: 5 of 5 → 0 of 5 passed (p = 0.0079, significant)" in ran.stdout
    assert ran.exit_code == 1
    ran = CliRunner().invoke(app, ["compare", "after", "before", "--store", store, "--json"])
    assert (ran.exit_code, '"removed":[]' in ran.stdout) == (0, True)
    ran = CliRunner().invoke(app, ["compare", "before", "none", "--store", store])
    assert ran.exit_code == 4
