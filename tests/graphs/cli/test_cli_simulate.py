"""The command `duologue simulate`: its output, exit codes and report, and resumed runs."""

import json
import re
import signal
import time
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from duologue.nodes.testing import Line, Prompt, Reply
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import duologue, started
from support.tables import check_rows, read_rows

pytestmark = pytest.mark.live

AGENT = """
def agent(messages):
    return "No." if "garden" in messages[0].text else "It is refunded."

def good(messages):
    return "It is refunded."

def is_refunded(result):
    assert "refunded." in str(result.transcript), "nothing was refunded"
"""

SCENARIOS = read_rows(__file__, "scenarios")

SCENARIO_THAT_FAILS = read_rows(__file__, "scenario_that_fails")

CRITERION = read_rows(__file__, "criterion")


class User:
    """A model that plays the user, and a judge whose answer can't be read."""

    delay = 0.0

    def __call__(self, prompt: Prompt) -> Line:
        """Say the goal, then the word for the end."""
        if any(one["role"] == "assistant" for one in prompt):
            return Reply(text="###STOP###", delay=self.delay)
        about = "garden" if "garden" in str(prompt) else "order"
        return Reply(text=f"Please refund my {about}.", delay=self.delay)


@pytest.fixture
def user() -> User:
    return User()


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: User) -> Iterator[ScriptedServer]:
    monkeypatch.syspath_prepend(tmp_path)
    Path("cli_shop.py").write_text(AGENT, encoding="utf-8")
    Path("shop.toml").write_text(SCENARIOS, encoding="utf-8")
    with ScriptedServer(user) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


RUN = ("simulate", "shop.toml", "--agent", "cli_shop:agent")


@pytest.mark.exhaustive
def test_a_suite_is_run_reported_and_resumed(server: ScriptedServer) -> None:
    Path("shop.toml").write_text(SCENARIOS + SCENARIO_THAT_FAILS, encoding="utf-8")
    ran = duologue(*RUN, "--agent-version", "1")
    assert ran.exit_code == 1
    assert ran.stdout.startswith("Suite shop: 4 passed, 4 failed; with so few trials the true")
    failure = "failed: refusal, calm - [not met] is_refunded: nothing was refunded"
    assert f"\n{failure}" in ran.stdout
    assert "(2 times)\n  Ended: the user says the goal is met\n  Sessions: shop-" in ran.stdout
    assert ran.stderr == "The report is in shop.html.\n"
    page = Path("shop.html").read_text(encoding="utf-8")
    assert "the batch is running" not in page
    places = [page.index(one) for one in ("4 passed, 4 failed", "failed</b>", "sessions are done")]
    assert places == sorted(places)
    # Each cell, each trial that failed, both groups of them, and each scenario with its persona.
    assert page.count('href="shop-sessions/') == 8 + 4 + 2 + 4
    titles = [
        re.search(r'<section class="ending (\w+)".*?<h2[^>]*>(.*?)</h2>', text, re.S)
        for text in (one.read_text(encoding="utf-8") for one in Path("shop-sessions").iterdir())
    ]
    assert Counter(one.groups() for one in titles if one) == {
        ("bad", "Failed: [not met] is_refunded: nothing was refunded"): 4,
        ("good", "Passed"): 4,
    }
    calls = len(server.calls)
    again = duologue(*RUN, "--agent-version", "1", "--json")
    rows = [json.loads(line) for line in again.stdout.splitlines()]
    assert (again.exit_code, len(server.calls)) == (1, calls)
    assert [row["outcome"] for row in rows] == ["failed"] * 4 + ["passed"] * 4
    changed = duologue(*RUN, "--agent-version", "2")
    assert (changed.exit_code, len(server.calls)) == (4, calls)
    assert "begun with another value of agent_version; choose another name" in changed.stderr


def test_files_that_can_not_be_written_are_named_before_a_model_is_called(
    server: ScriptedServer,
) -> None:
    Path("shop.toml").write_text(SCENARIOS, encoding="utf-8")
    Path("file").touch()
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    Path("taken-sessions").touch()

    def check(options: str, words: str) -> None:
        ran = duologue(*RUN, *options.split())
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.startswith(f"Error: {words}")

    check_rows(read_rows(__file__, "outputs"), check)
    assert not server.calls
    assert {one.name for one in Path().iterdir()} >= {"file", "folder", "loop"}
    assert not [*Path().glob("*.html"), *Path().glob("new*")]


def test_files_for_continuous_integration_are_written_and_compare_with_an_earlier_run() -> None:
    failing = SCENARIOS.replace("trials = 2", "trials = 8") + SCENARIO_THAT_FAILS
    Path("shop.toml").write_text(failing, encoding="utf-8")
    good = ("simulate", "shop.toml", "--agent", "cli_shop:good", "--name", "before")
    assert duologue(*good).exit_code == 0
    unknown = duologue(*RUN, "--compare-to", "befor")
    assert (unknown.exit_code, unknown.stdout) == (4, "")
    files = ("--junit", "ci/shop.xml", "--markdown", "ci/shop.md", "--compare-to", "before")
    ran = duologue(*RUN, "--name", "after", *files)
    assert ran.exit_code == 1
    assert "before → after: the share of passed trials changes by -0.50" in ran.stdout
    whole = ET.parse("ci/shop.xml").getroot()  # noqa: S314  # made by this test
    (suite,) = whole
    counts = {"tests": "32", "failures": "16", "errors": "0"}
    assert whole.attrib == {"name": "duologue simulate", **counts}
    assert suite.attrib == {"name": "after", "skipped": "0", **counts}
    cases = [*suite]
    assert {case.tag for case in cases} == {"testcase"}
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 32
    failed = [case.find("failure") for case in cases if case.get("classname") == "after.refusal"]
    messages = {one.get("message") for one in failed if one is not None}
    assert messages == {"failed: [not met] is_refunded: nothing was refunded"}
    comment = Path("ci/shop.md").read_text(encoding="utf-8").splitlines()
    assert comment[0] == "### ❌ after: 16 passed, 16 failed"
    reason = "\\[not met\\] is\\_refunded: nothing was refunded (8 times)"
    assert f"- failed: refusal, calm - {reason}" in comment
    assert "| refund, calm | 8 | 0 | 0 | 0 |" in comment
    compared = next(line for line in comment if line.startswith("**Compared with an earlier run"))
    assert compared.endswith(", significant).")
    change = "  - refusal, calm: 8 of 8 → 0 of 8 passed (p = 0.00016, significant)"
    assert comment[comment.index("- New failures:") + 1] == change


def test_scenarios_are_generated_from_an_agent_and_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = (
        ("--generate", "2", "--agent", "cli_shop:agent"),
        ("--generate", "2", "--policy", "policy.md"),
        ("shop.toml", "--generate", "2", "--agent", "cli_shop:agent", "--policy", "policy.md"),
        (),
    )
    for arguments in wrong:
        refused = duologue("simulate", *arguments)
        assert (refused.exit_code, refused.stdout) == (2, "")
    Path("policy.md").write_text("Refund nothing.", encoding="utf-8")

    def write(prompt: Prompt) -> Line:
        draft = {"name": "Refund", "goal": "You want order 7 back.", "knows": "It is order 7."}
        return json.dumps({**draft, "criteria": ["It is polite."], "tool": None, "arguments": []})

    one = ("--generate", "1", "--agent", "cli_shop:agent", "--policy", "policy.md")
    with ScriptedServer(write) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        written = duologue("simulate", *one)
    (fields,) = tomllib.loads(written.stdout)["scenarios"].values()
    assert fields["expected_ends"] == ["gave_up", "handed_over"]
    assert "Read and correct each scenario" in written.stderr


@pytest.mark.exhaustive
def test_the_exit_codes_tell_passed_and_inconclusive_apart() -> None:
    passed = duologue(*RUN)
    assert (passed.exit_code, passed.stdout.splitlines()[0][:21]) == (0, "Suite shop: 4 passed;")
    Path("shop.toml").write_text(SCENARIOS + CRITERION, encoding="utf-8")
    unclear = duologue(*RUN, "--name", "judged", "--output", "judged-report.html")
    assert unclear.exit_code == 7
    assert "4 passed, 4 inconclusive" in unclear.stdout
    assert "the judge's answer could not be read: Please refund my order." in unclear.stdout
    assert Path("judged-report.html").exists()


@pytest.mark.process
def test_a_killed_run_is_resumed_without_answered_calls(server: ScriptedServer, user: User) -> None:
    user.delay = 0.3
    with started(*RUN, "--trials", "6", "--concurrency", "3") as process:
        until = time.monotonic() + 120
        while len(server.calls) < 10 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = len(server.calls)
    assert 10 <= before < 24
    user.delay = 0.0
    ran = duologue(*RUN, "--trials", "6")
    assert (ran.exit_code, "12 passed" in ran.stdout) == (0, True)
    # Two calls of the user in each simulation, and at most three that were in flight.
    assert 24 <= len(server.calls) <= 24 + 3
