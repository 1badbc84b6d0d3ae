"""Runs of the pytest plugin: recorded, resumed, fresh, in parallel, and without leaked keys."""

import xml.etree.ElementTree as ET

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import os
import pytest
from duologue import InconclusiveResult, Scenario
from duologue.nodes.testing import ScriptedChatModel

GOAL = "Get one charge for order 1042 refunded."

def user(*texts):
    return ScriptedChatModel(texts or ["Refund order 1042!", "###STOP###"])

def agent(messages):
    return f"Refunded after {len(messages)}."
"""


def files_of(plain: pytest.Pytester) -> list[str]:
    folder = plain.path / "recordings"
    return sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*.json"))


RECORDED = (
    HEAD
    + """
ASKED = []

@pytest.mark.simulation(trials=2)
@pytest.mark.parametrize("word", ["a", "b/c"])
def test_refund(simulate, word):
    ASKED.append(1)
    for _ in range(2):
        said = [f"Refund {len(ASKED)} for customer-77, {word}", "###STOP###"]
        model = user(*said) if os.environ.get("IS_LIVE") else user("No answer")
        result = simulate(Scenario(GOAL), agent, model=model, store="memory:")
        assert result.passed, result.report()
        assert f"Refund {len(ASKED)} for" in result.transcript[0][1]
"""
)


@pytest.mark.exhaustive
def test_each_trial_has_recordings_beside_the_test_and_ci_replays_them(
    plain: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.makepyfile(test_it=RECORDED)
    monkeypatch.setenv("IS_LIVE", "1")
    plain.runpytest_inprocess().assert_outcomes(passed=2)
    assert files_of(plain) == []
    plain.runpytest_inprocess("--simulate-record=new").assert_outcomes(passed=2)
    found = files_of(plain)
    assert len(found) == 8
    assert found[:2] == ["test_it/test_refund-a-2.json", "test_it/test_refund-a-trial2-2.json"]
    texts = [one.read_text(encoding="utf-8") for one in plain.path.rglob("recordings/**/*.json")]
    assert "customer-77" not in "".join(texts)
    monkeypatch.delenv("IS_LIVE")
    plain.runpytest_inprocess("--simulate-record=none").assert_outcomes(passed=2)
    plain.runpytest_inprocess().assert_outcomes(failed=2)


@pytest.mark.exhaustive
def test_a_changed_agent_fails_a_replay_with_the_first_difference(
    plain: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_LIVE", "1")
    source = (
        HEAD
        + """
@pytest.mark.simulation(trials=2, at_least=1)
def test_it(simulate):
    result = simulate(Scenario(GOAL), agent, model=user(), store="memory:")
    assert result.passed, result.report()
"""
    )
    plain.makepyfile(test_it=source)
    plain.runpytest_inprocess("--simulate-record=new").assert_outcomes(passed=1)
    plain.makepyfile(test_it=source.replace("Refunded after", "Rejected after"))
    # One trial without a difference must not hide that of another.
    (plain.path / "recordings" / "test_it" / "test_it-trial2.json").unlink()
    plain.runpytest_inprocess("--simulate-record=new").assert_outcomes(failed=1)
    ran = plain.runpytest_inprocess("--simulate-record=none")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*test_it.json: call 2 of a model (by User) differs: messages.3.*"])
    # Without the option, each run makes new sessions of the agent as it is.
    plain.runpytest_inprocess().assert_outcomes(passed=1)


RESUMED = (
    HEAD
    + """
from pathlib import Path

LOG = Path("log.txt")

def agent(messages):
    with LOG.open("a") as file:
        file.write("x")
    if os.environ.get("IS_KILLED") and LOG.read_text() == "xxx":
        os._exit(9)
    return "Refunded."

@pytest.mark.simulation(trials=4, at_least=2)
def test_refund(simulate):
    scenario = Scenario(os.environ.get("GOAL", GOAL), expected_ends=["done"])
    version = os.environ.get("VERSION", "1")
    model = user("Refund it!", "###STOP###")
    result = simulate(scenario, agent, model=model, agent_version=version, store="memory:")
    fails = LOG.read_text() == "xx"
    assert result.passed and not fails, result.report()
"""
)


@pytest.mark.exhaustive
def test_a_killed_run_is_resumed_without_its_finished_trials(
    plain: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.makepyfile(test_it=RESUMED)
    log = plain.path / "log.txt"
    monkeypatch.setenv("IS_KILLED", "1")
    ran = plain.runpytest_subprocess()
    assert ran.ret == 9
    (line,) = [one for one in ran.outlines if one.startswith("simulated users: run ")]
    name = line.split()[-1]
    assert log.read_text() == "xxx"
    monkeypatch.delenv("IS_KILLED")
    for variable, field in (("GOAL", "scenario.goal"), ("VERSION", "agent_version")):
        monkeypatch.setenv(variable, "other")
        ran = plain.runpytest_inprocess("--simulate-resume", name)
        ran.assert_outcomes(failed=1)
        ran.stdout.fnmatch_lines([f"{field}: differs from the run {name}, so its trials *"])
        monkeypatch.delenv(variable)
        assert log.read_text() == "xxx"
    ran = plain.runpytest_inprocess("--simulate-resume", name)
    ran.assert_outcomes(passed=1)
    assert log.read_text() == "xxx" + "xx"
    ran.stdout.fnmatch_lines(["  3 of 4 trials passed; at least 2 must pass; *", f"run {name}; *"])
    # All trials are finished now, so nothing runs.
    plain.runpytest_inprocess("--simulate-resume", "last").assert_outcomes(passed=1)
    assert log.read_text() == "xxx" + "xx"
    plain.runpytest_inprocess().assert_outcomes(passed=1)
    assert len(log.read_text()) == 9


def test_an_unknown_run_is_one_error(plain: pytest.Pytester) -> None:
    plain.makepyfile(HEAD)
    ran = plain.runpytest_inprocess("--simulate-resume=yesterday")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["ERROR: --simulate-resume: there is no run 'yesterday'; no run has*"])


LEAKING = (
    HEAD
    + """
from langchain_core.runnables import RunnableLambda

KEY = "key-of-a-header-123"

def leaks(messages):
    print("my key is", os.environ["SHOP_API_KEY"])
    if len(messages) > 1:
        raise ValueError(f"401: Authorization: Bearer {KEY}, {os.environ['SHOP_API_KEY']}")
    return f"Use {os.environ['SHOP_API_KEY']}, api_key={KEY}"

def test_error(simulate):
    simulate(Scenario(GOAL), leaks, model=user("Hi.", "More.", "###STOP###"), store="memory:")

def test_end(simulate):
    said = user("Hi.", "###GIVE-UP### " + os.environ["SHOP_API_KEY"])
    result = simulate(Scenario(GOAL), leaks, model=said, store="memory:")
    assert result.passed, result.report()
"""
)


@pytest.mark.exhaustive
def test_no_key_is_in_the_terminal_the_page_the_junit_file_or_a_recording(
    plain: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "key<of-the-environment")
    plain.makepyfile(test_it=LEAKING)
    ran = plain.runpytest_inprocess(
        "--junitxml=found.xml", "--simulate-record=new", "--showlocals", "-rA"
    )
    ran.assert_outcomes(failed=2)
    shown = [str(ran.stdout), str(ran.stderr)]
    paths = ["found.xml", ".pytest_cache/d/**/*.html", ".pytest_cache/d/**/*.json"]
    paths += ["recordings/**/*.json"]
    for pattern in paths:
        found = [*plain.path.glob(pattern)]
        assert found, pattern
        shown += [one.read_text(encoding="utf-8") for one in found]
    assert "[hidden]" in "".join(shown)
    for text in shown:
        assert "of-the-environment" not in text
    # The test's source contains this key, which pytest prints with an error.
    assert all("Bearer key-of-a-header-123" not in text for text in shown)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "seconds"), [("function", 600), ("runnable", 4), ("graph", 4)])
def test_a_sync_agent_that_hangs_ends_its_test_with_an_error(
    kind: str, seconds: int, plain: pytest.Pytester
) -> None:
    # At its end, Python waits for the thread of a sync Runnable, but not for that of a function.
    plain.makepyfile(
        HEAD
        + f"""
import time
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

def hangs(_):
    time.sleep({seconds})

def test_it(simulate):
    graph = StateGraph(MessagesState).add_node("hangs", hangs).add_edge(START, "hangs")
    agents = {{"function": hangs, "runnable": RunnableLambda(hangs), "graph": graph.compile()}}
    simulate(Scenario(GOAL), agents["{kind}"], model=user(), store="memory:", agent_timeout=0.2)
"""
    )
    ran = plain.runpytest_subprocess(timeout=200)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*agent_timeout: the agent * did not answer in 0.2 s*"])


@pytest.mark.exhaustive
def test_parallel_workers_share_a_run_with_its_pages_and_trials(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini(
        "[pytest]\naddopts = -p no:langsmith_plugin -p no:nbmake\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makepyfile(
        HEAD
        + """
@pytest.mark.parametrize("number", range(4))
def test_it(simulate, number):
    end = "###STOP###" if number % 2 else "###GIVE-UP###"
    result = simulate(Scenario(GOAL), agent, model=user("Hi.", end), store="memory:")
    if number == 3:
        raise InconclusiveResult("unclear")
    assert result.passed and not os.environ.get("IS_BROKEN"), result.report()
"""
    )
    arguments = ("-n", "2", "--simulate-trials=2", "--junitxml=found.xml")
    outcomes = {"passed": 1, "failed": 2, "inconclusive": 1}
    ran = pytester.runpytest_subprocess(*arguments)
    assert ran.parseoutcomes() == outcomes
    ran.stdout.fnmatch_lines_random(["*test_it[[]1[]]: passed", "*test_it[[]3[]]: inconclusive"])
    ran.stdout.fnmatch_lines(["*2 of 2 trials passed; at least 2 must pass; with so few *"])
    ran.stdout.fnmatch_lines(["    file://*test_it-0*.html"])
    assert len([*pytester.path.glob(".pytest_cache/d/duologue/*.html")]) == 6
    found = ET.parse(pytester.path / "found.xml")  # noqa: S314  # made by this test
    names = [one.get("name") for one in found.iter("property")]
    assert names.count("simulation.trials.passed") == 4
    (run,) = pytester.path.glob(".pytest_cache/d/duologue-runs/*")
    assert len([*run.iterdir()]) == 8
    # Each finished trial is skipped, also by other workers: nothing fails anew.
    monkeypatch.setenv("IS_BROKEN", "1")
    ran = pytester.runpytest_subprocess(*arguments, f"--simulate-resume={run.name}")
    assert ran.parseoutcomes() == outcomes
