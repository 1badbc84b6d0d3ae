"""Suites of scenarios: their runs as batches, reports, resumed runs, and bad input."""

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel.remote import RemoteGraph

from duologue import (
    BatchError,
    BatchRun,
    DuologueError,
    ModelUnavailableError,
    Scenario,
    SpecError,
)
from duologue.graphs.scenarios import SimulationResult, Suite, SuiteReport, load_suite, run_suite
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.agents import counting, serve_locally
from support.tables import check_rows, read_rows

GOAL = "You want order 7 refunded."
REFUSED = "You want a refund that the shop refuses."


def shop(messages: Sequence[BaseMessage]) -> str:
    return "No." if "refuses" in messages[0].text else "Order 7 is refunded."


def is_refunded(result: SimulationResult) -> None:
    assert "is refunded" in str(result.transcript), "nothing was refunded"


def play_user(prompt: Prompt) -> Line:
    """Say the goal, then the word for the end."""
    if any(one["role"] == "assistant" for one in prompt):
        return "###STOP###"
    return "Please, it refuses." if REFUSED in str(prompt) else "Please refund order 7."


def user() -> ScriptedChatModel:
    return ScriptedChatModel(play_user)


SUITE: dict[str, Any] = {
    "shared": {"checks": [is_refunded]},
    "scenarios": {"refund": {"goal": GOAL}, "refusal": {"goal": REFUSED}},
}


ONE: dict[str, Any] = {**SUITE, "scenarios": {"refund": {"goal": GOAL}}}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}"


def play(suite: Any = SUITE, agent: object = shop, **options: Any) -> SuiteReport:  # noqa: ANN401
    return run_suite(suite, agent, **{"name": "shop", "model": user(), **options})


def outcomes(report: SuiteReport) -> dict[tuple[str, str | None], dict[str, int]]:
    return {
        (one.scenario, one.persona): {str(name): count for name, count in one.outcomes.items()}
        for one in report.scenarios
    }


@pytest.mark.exhaustive
def test_each_scenario_runs_with_each_persona_and_the_worst_come_first(store: str) -> None:
    suite = SUITE | {"personas": {"calm": "Calm.", "cross": "Cross."}, "trials": 2}
    report = play(suite, store=store)
    assert outcomes(report) == {
        ("refund", "calm"): {"passed": 2},
        ("refund", "cross"): {"passed": 2},
        ("refusal", "calm"): {"failed": 2},
        ("refusal", "cross"): {"failed": 2},
    }
    assert (report.verdict, report.passed, report.failed) == ("failed", 4, 4)
    assert [round(one.value, 2) for one in report.passes] == [0.5, 0.5]
    worst = report.simulations[0]
    (verdict,) = worst.verdicts
    assert verdict.startswith("[not met] is_refunded: nothing was refunded")
    assert worst.lines[1] == "2. Agent: No."
    assert worst.ended == "the user says the goal is met"


def test_a_suite_is_an_ordinary_batch(store: str) -> None:
    play(store=store, trials=2)
    status = BatchRun("shop", store=store).status()
    assert status.title == "", "the report has the name of the suite, not the goal of a scenario"
    assert (status.finished, status.reasons) == (4, {"done_token": 4})
    rows = BatchRun("shop", store=store).rows()
    assert [row["labels.scenario"] for row in rows] == ["refund", "refund", "refusal", "refusal"]
    assert [row["score.passed"] for row in rows] == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.exhaustive
def test_a_run_is_resumed_without_a_call(store: str) -> None:
    first, second = user(), user()
    before = play(store=store, model=first)
    assert play(store=store, model=second) == before
    assert first.calls
    assert not second.calls
    assert play(store=store, trials=2).count("passed") == 2


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"suite": {**ONE, "scenarios": {"refund": {"goal": "Other."}}}}, "scenarios.refund.goal"),
        ({"suite": {"scenarios": {"refund": {"goal": GOAL}}}}, "scenarios.refund.checks"),
        ({"agent_version": "2"}, "agent_version"),
        ({"agent": is_refunded}, "agent"),
        ({"judge_model": "other"}, "judge_model"),
    ],
)
def test_a_changed_run_is_refused_by_its_field(
    change: dict[str, Any], field: str, store: str
) -> None:
    play(ONE, store=store)
    model = user()
    given = {"suite": ONE} | change
    with pytest.raises(BatchError, match=rf"begun with another value of {field}; choose another"):
        play(**given, store=store, model=model)
    assert not model.calls


@pytest.mark.exhaustive
def test_scenarios_and_personas_can_be_added(store: str) -> None:
    play(store=store)
    more = {**SUITE["scenarios"], "again": {"goal": "You want order 7 refunded, again."}}
    assert play(SUITE | {"scenarios": more}, store=store).passed == 2


def test_an_inconclusive_simulation_is_neither_passed_nor_failed(store: str) -> None:
    suite = {"scenarios": {"refund": {"goal": GOAL, "criteria": ["It is refunded."]}}}
    report = play(suite, store=store, judge_model=ScriptedChatModel(lambda _: "I cannot decide."))
    assert (report.verdict, report.inconclusive) == ("inconclusive", 1)
    assert report.passes == ()
    assert report.simulations[0].verdicts[0].startswith("[inconclusive] It is refunded: ")
    (row,) = BatchRun("shop", store=store).rows()
    assert "the score 'passed' is missing" in row["error"]


def finding(*found: str) -> ScriptedChatModel:
    """Return a judge with a finding about the only criterion of each simulation."""
    texts = (
        json.dumps({"criterion_1": {"reason": f"It is {one}.", "message": 2, "finding": one}})
        for one in found
    )
    return ScriptedChatModel([*texts])


def test_two_judges_of_a_suite_differ_in_one_simulation(store: str) -> None:
    suite = {"scenarios": {"refund": {"goal": GOAL, "criteria": ["It is refunded."]}}, "trials": 2}
    judges = [finding("met", "met"), finding("met", "not_met")]
    report = play(suite, store=store, judge_model=judges, concurrency=1)
    assert outcomes(report) == {("refund", None): {"passed": 1, "inconclusive": 1}}
    assert str(report).splitlines()[-1] == (
        "  Two judges: the judges agree on 1 of 2 criteria (κ 0.00)"
    )
    assert "the judges differ (ScriptedChatModel: met" in report.simulations[0].verdicts[0]
    again = [finding("met"), finding("met")]
    assert play(suite, store=store, judge_model=again) == report
    assert not any(one.calls for one in again), "stored verdicts are not asked for again"
    with pytest.raises(BatchError, match="another value of judge_model"):
        play(suite, store=store, judge_model=again[0])


def test_an_unknown_second_judge_is_an_error_before_a_call(store: str) -> None:
    model = user()
    suite = {"scenarios": {"refund": {"goal": GOAL, "criteria": ["It is refunded."]}}}
    with pytest.raises(DuologueError, match="nobody"):
        play(suite, store=store, model=model, judge_model=[finding("met"), "nobody:none"])
    assert not model.calls


def test_an_agent_that_raises_is_an_error_of_its_simulation(store: str) -> None:
    def broken(messages: Sequence[BaseMessage]) -> str:
        if "refuses" in messages[0].text:
            raise KeyError("order")
        return "Order 7 is refunded."

    report = play(agent=broken, store=store)
    assert (report.verdict, report.passed, report.count("error")) == ("error", 1, 1)
    assert "the agent 'broken' failed" in (report.simulations[0].error or "")
    assert report.simulations[0].lines[0].startswith("1. User: "), "it shows the message"
    assert play(agent=broken, store=store).count("error") == 1


def has_one_turn(result: SimulationResult) -> bool:
    return bool(result.agent_state["count"] == 1)


@pytest.mark.exhaustive
def test_each_simulation_has_its_own_thread_and_checks_see_its_state(store: str) -> None:
    suite = {"scenarios": {"refund": {"goal": GOAL, "checks": [has_one_turn]}}, "trials": 4}
    report = play(suite, counting(" It is refunded.", checkpointer=InMemorySaver()), store=store)
    assert (report.passed, report.verdict) == (4, "passed")


def test_a_suite_in_a_file_names_its_checks_and_its_agent(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("garden_shop.py").write_text(
        "def agent(messages):\n    return 'Refunded.'\n"
        "def is_polite(result):\n    return 'Please' in str(result.transcript)\n",
        encoding="utf-8",
    )
    Path("garden.toml").write_text(
        f'trials = 2\n[shared]\nchecks = ["garden_shop:is_polite"]\n[scenarios.refund]\n'
        f'goal = "{GOAL}"\n',
        encoding="utf-8",
    )
    report = play("garden.toml", "garden_shop:agent", store=store, name=None)
    assert (report.batch, report.agent, report.passed) == ("garden", "garden_shop:agent", 2)


def test_a_faulty_suite_is_one_error_that_names_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "faulty.json"

    def check(fields: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError) as caught:
            load_suite(fields)
        assert words in str(caught.value)
        file.write_text(json.dumps(fields), encoding="utf-8")
        with pytest.raises(SpecError) as caught:
            load_suite(file)
        assert str(caught.value).startswith(f"{file}: ")

    check_rows(read_rows(__file__, "suite_errors"), check)


def test_a_missing_name_and_an_unknown_agent_are_errors_before_a_call(store: str) -> None:
    model = user()
    with pytest.raises(SpecError, match="name: is missing"):
        run_suite(SUITE, shop, model=model, store=store)
    with pytest.raises(SpecError, match="agent: 'no_such:agent' can't be imported"):
        play(agent="no_such:agent", model=model, store=store)
    with pytest.raises(TypeError, match="agent: must be a Runnable"):
        play(agent=7, model=model, store=store)
    assert not model.calls


def test_a_check_that_raises_is_inconclusive_and_the_other_checks_count(store: str) -> None:
    def raises(_: SimulationResult) -> None:
        raise KeyError("order\ud800 9")

    suite = {
        "scenarios": {
            "unmet": {"goal": REFUSED, "checks": [raises, is_refunded]},
            "met": {"goal": GOAL, "checks": [raises, is_refunded, lambda _: 3]},
        }
    }
    rows = {one.scenario: one for one in play(suite, store=store).simulations}
    assert (rows["unmet"].outcome, rows["unmet"].at_fault) == ("failed", "agent")
    assert rows["unmet"].reasons[0].startswith("[not met] is_refunded: nothing was refunded")
    assert (rows["met"].outcome, rows["met"].at_fault) == ("inconclusive", "judge")
    assert rows["met"].reasons == (
        "[inconclusive] raises: it raised KeyError: 'order\\ud800 9'",
        "[inconclusive] <lambda>: it must return True, False or None, not int",
    )
    assert str(rows["met"].error).endswith("; correct the check")


def test_a_suite_of_scenario_objects_equals_one_of_dicts() -> None:
    assert Suite({"a": Scenario(GOAL)}) == load_suite({"scenarios": {"a": {"goal": GOAL}}})


def complete(path: str) -> str:
    """Reply like OpenAI's API."""
    message = {"role": "assistant", "content": "Order 7 is refunded."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    reply = json.dumps({"id": "1", "created": 1, "model": "agent", "choices": [choice]})
    return reply if path.startswith("/v1/") else ""


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def chat_model(port: int) -> ChatOpenAI:
    url = f"http://127.0.0.1:{port}/v1"
    return ChatOpenAI(base_url=url, api_key=lambda: "none", max_retries=0)


@pytest.mark.part(1)
@pytest.mark.parametrize(
    "address",
    [
        "http://me:pass-1@127.0.0.1:{closed}/v1?token=word-1",
        "http://nobody.invalid/v1",
        "https://127.0.0.1:{open}/v1",
    ],
    ids=["a closed port", "an unknown host", "TLS to a server without it"],
)
def test_a_suite_gives_up_an_address_to_which_no_connection_succeeds(
    address: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duologue.graphs.batch.limiter.CONNECTING", 1.0)
    with serve_locally(complete) as port:
        url = address.format(closed=closed_port(), open=port)
        with pytest.raises(ModelUnavailableError, match="check its address") as caught:
            play(agent=url, store=store)
    host = urlsplit(url).netloc.rpartition("@")[2]
    assert host in str(caught.value)
    assert not [one for one in ("pass-1", "word-1") if one in str(caught.value)]


def test_a_server_that_starts_late_is_waited_for_beyond_the_time_of_a_reply(store: str) -> None:
    port = closed_port()
    with ExitStack() as stack:
        start = threading.Timer(5, lambda: stack.enter_context(serve_locally(complete, port)))
        start.start()
        # It is tried again after 1, 2 and 4 seconds, which are no time of the agent.
        report = play(agent=chat_model(port), store=store, agent_timeout=3)
        start.join()
    assert report.verdict == "passed"


def test_an_error_of_a_server_names_its_address(store: str) -> None:
    with serve_locally(complete) as port:
        agent = RemoteGraph("shop", url=f"http://127.0.0.1:{port}/shop")
        report = play(agent=agent, store=store)
    assert {one.outcome for one in report.simulations} == {"error"}
    assert f"its server is http://127.0.0.1:{port}/shop/threads" in str(report.simulations[0].error)


def test_a_pause_leaves_no_warning_of_a_library(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    report = play(SUITE | {"limits": {"max_seconds": 1.5}}, chat_model(closed_port()), store=store)
    assert report.verdict == "unfinished"
    assert not [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
