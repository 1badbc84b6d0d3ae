"""The pytest plugin: fixtures, trials, inconclusive tests, and what a run prints."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import pytest
from duologue import Scenario
from duologue.nodes.testing import ScriptedChatModel

refund = Scenario(
    "Get one charge for order 1042 refunded.", criteria=["The agent looks the order up."]
)

def agent(messages):
    return "Order 1042 is refunded."

def run(simulate, finding, **options):
    verdict = {"reason": "I read it.", "message": 2, "finding": finding}
    user = ScriptedChatModel(["Refund order 1042! ###STOP###", "Refund order 1042! ###STOP###"])
    judge = ScriptedChatModel([{"criterion_1": verdict}])
    result = simulate(refund, agent, model=user, judge_model=judge, store="memory:", **options)
    assert result.passed, result.report()
"""


def test_a_test_passes_fails_or_is_inconclusive_and_the_summary_says_why(
    plain: pytest.Pytester,
) -> None:
    plain.makepyfile(
        HEAD
        + """
def test_good(simulate):
    run(simulate, "met")

def test_bad(simulate):
    run(simulate, "not_met")

def test_unclear(simulate):
    run(simulate, "inconclusive")

def test_without_a_user():
    pass
"""
    )
    ran = plain.runpytest_inprocess("--junitxml=found.xml")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.no_fnmatch_line("*result.py*")
    ran.stdout.fnmatch_lines(
        [
            "*FI.*",
            "*AssertionError: Failed: [[]not met[]] The agent looks the order up: I read it.*",
            "*Ended: the user says the goal is met*",
            "*test_unclear (inconclusive)*",
            "*InconclusiveResult: criteria: inconclusive*",
            "*- simulation -*",
            "Scenario: Get one charge for order 1042 refunded.",
            "2. Agent: *",
            "*= simulated users =*",
            "*test_unclear: inconclusive",
            "*test_bad: failed",
            "    failed: [[]not met[]] The agent looks the order up: I read it. (message 2)",
            "    file://*test_bad-1-1.html",
            "*test_good: passed",
            "  Get one charge for order 1042 refunded.",
            "    passed",
            "    ended: the user says the goal is met",
            "    [[]met[]] The agent looks the order up.",
            "*1 failed, 2 passed, 1 inconclusive*",
        ]
    )
    assert "SimulationResult(" not in str(ran.stdout)
    (page,) = plain.path.glob(".pytest_cache/d/duologue/*test_bad-1-1.html")
    assert "Order 1042 is refunded." in page.read_text(encoding="utf-8")
    found = ET.parse(plain.path / "found.xml")  # noqa: S314  # made by this test
    names = {one.get("name"): one.get("value") for one in found.iter("property")}
    assert names["simulation.ended"] == "the user says the goal is met"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("findings", "at_least", "outcome", "said"),
    [
        ("met not_met met", 2, {"passed": 1}, "2 of 3 trials passed; at least 2 must pass"),
        ("met not_met met", 3, {"failed": 1}, "2 of 3 trials passed; at least 3 must pass"),
        (
            "met inconclusive not_met",
            2,
            {"inconclusive": 1},
            "1 of 3 trials passed, 1 inconclusive; at least 2 must pass",
        ),
    ],
)
def test_the_trials_of_a_test_decide_together_and_each_has_new_fixtures(
    findings: str, at_least: int, outcome: dict[str, int], said: str, plain: pytest.Pytester
) -> None:
    plain.makepyfile(
        HEAD
        + f"""
FINDINGS = iter({findings.split()})
MODULES = []

@pytest.fixture(scope="module")
def server():
    MODULES.append(1)

@pytest.fixture
def finding(server):
    return next(FINDINGS)

@pytest.mark.simulation(trials=3, at_least={at_least})
def test_refund(simulate, finding):
    run(simulate, finding)
    assert MODULES == [1]
"""
    )
    ran = plain.runpytest_inprocess()
    assert ran.parseoutcomes() == outcome
    ran.stdout.fnmatch_lines([f"  {said}; with so few trials the true rate may be between *"])
    # Each trial that has not passed has a page.
    pages = plain.path.glob(".pytest_cache/d/duologue/*.html")
    not_passed = [place for place, one in enumerate(findings.split(), 1) if one != "met"]
    assert sorted(page.stem[-3:] for page in pages) == [f"{place}-1" for place in not_passed]
    assert ran.ret == (0 if "passed" in outcome else 1)


@pytest.mark.exhaustive
def test_the_option_runs_each_test_with_a_user_several_times_and_async_tests_too(
    plain: pytest.Pytester,
) -> None:
    plain.makepyfile(
        HEAD
        + """
COUNTS = {"sync": 0, "async": 0, "other": 0}

def test_sync(simulate):
    COUNTS["sync"] += 1
    run(simulate, "met")

@pytest.mark.asyncio
async def test_async(asimulate):
    COUNTS["async"] += 1
    user = ScriptedChatModel(["Refund order 1042! ###STOP###", "Refund order 1042! ###STOP###"])
    judge = ScriptedChatModel([{"criterion_1": {"reason": "So.", "message": 2, "finding": "met"}}])
    result = await asimulate(refund, agent, model=user, judge_model=judge, store="memory:")
    assert result.passed

def test_other():
    COUNTS["other"] += 1
    assert COUNTS == {"sync": 4, "async": 4, "other": 1}
"""
    )
    ran = plain.runpytest_inprocess("--simulate-trials=4")
    ran.assert_outcomes(passed=3)
    ran.stdout.fnmatch_lines(
        ["  4 of 4 trials passed; at least 4 must pass; with so few trials *as low as 51 %"]
    )


RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        is_last = attempt == 2 or not any(one.failed for one in reports)
        for report in reports:
            if report.failed and not is_last:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        if is_last:
            return True
        item._initrequest()
"""
"""A plugin that repeats the whole protocol of a test, as pytest-rerunfailures does."""

RETRIES = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    attempt = 1
    if call.when != "call" or not report.failed:
        return report
    while report.failed and attempt < 3:
        hook = item.ihook
        hook.pytest_runtest_teardown(item=item, nextitem=None)
        report.outcome = "retried"
        hook.pytest_runtest_logreport(report=report)
        item._initrequest()
        hook.pytest_runtest_setup(item=item)
        call = pytest.CallInfo.from_call(lambda: hook.pytest_runtest_call(item=item), when="call")
        again = pytest.TestReport.from_item_and_call(item, call)
        report.outcome, report.longrepr = again.outcome, again.longrepr
        attempt += 1
    return report
"""
"""A plugin that repeats a test inside the hook that makes its report, as pytest-retry does."""


@pytest.mark.parametrize("plugin", [RERUNS, RETRIES], ids=["reruns", "retries"])
def test_a_test_that_is_repeated_counts_once_by_its_last_attempt(
    plugin: str, plain: pytest.Pytester
) -> None:
    plain.makeconftest(plugin)
    findings = {
        "unclear": ["inconclusive"] * 3,
        "good": ["inconclusive", "met"],
        "bad": ["inconclusive", "not_met", "not_met"],
        "unclear_in_the_end": ["not_met", "not_met", "inconclusive"],
    }
    tests = [
        f"\nFOR_{name} = iter({found})\ndef test_{name}(simulate):\n"
        f"    run(simulate, next(FOR_{name}))\n"
        for name, found in findings.items()
    ]
    plain.makepyfile(HEAD + "".join(tests))
    ran = plain.runpytest_inprocess("--junitxml=found.xml")
    counts = {"passed": 1, "failed": 1, "inconclusive": 2}
    outcomes = ran.parseoutcomes()
    assert {name: outcomes[name] for name in counts} == counts
    listed = [line.rpartition("::test_")[2] for line in ran.outlines if "::test_" in line]
    assert sorted(one for one in listed if one.endswith(("passed", "failed", "inconclusive"))) == [
        "bad: failed",
        "good: passed",
        "unclear: inconclusive",
        "unclear_in_the_end: inconclusive",
    ]


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("trials=2, at_least=3", "*at_least: 3 of 2 trials can't pass; reduce it, or raise trials"),
        ("trials=0", "*trials: 0 is not a number above 0*"),
        ("trails=3", "*the mark simulation has no field 'trails'; use trials and at_least*"),
    ],
)
def test_a_wrong_mark_is_one_error(mark: str, said: str, plain: pytest.Pytester) -> None:
    plain.makepyfile(HEAD + f"@pytest.mark.simulation({mark})\ndef test_it(simulate): ...")
    ran = plain.runpytest_inprocess()
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([f"ERROR: {said}"])


@pytest.mark.exhaustive
def test_loading_the_plugin_imports_nothing_else() -> None:
    program = (
        "import sys, pytest; before = {*sys.modules}; import duologue.graphs.pytest_plugin; "
        "print(*sorted(n for n in {*sys.modules} - before if n.startswith(('duologue', 'lang'))))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["duologue", "duologue.graphs", "duologue.graphs.pytest_plugin"]
