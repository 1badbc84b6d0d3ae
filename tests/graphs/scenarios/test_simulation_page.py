"""The tests on the page about simulated users run in pytest as the page says."""

import json
import re
from pathlib import Path

import pytest

from duologue.nodes.testing import Prompt
from duologue.nodes.testing.server import ScriptedServer

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text(encoding="utf-8")
TESTS = [
    block
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    if "def test_" in block
]


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_STORE", "memory:page")


@pytest.mark.exhaustive
def test_the_first_test_fails_as_shown_and_passes_after_the_correction(
    plain: pytest.Pytester,
) -> None:
    first = TESTS[0]
    plain.makepyfile(test_refund=first)
    failed = plain.runpytest_inprocess("test_refund.py")
    failed.assert_outcomes(failed=1)
    shown = next(text for text in re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S))
    lines = [line for line in shown.splitlines() if line.startswith("E ")]
    assert len(lines) > 3
    printed = [" ".join(line.split()) for line in failed.outlines]
    for line in lines:
        assert " ".join(line.split()) in printed
    plain.makepyfile(test_refund=first.replace("39.80", "19.90"))
    plain.runpytest_inprocess("test_refund.py").assert_outcomes(passed=1)


def reply(prompt: Prompt) -> str:
    """Reply as the user or the judge."""
    if "You judge a conversation" in prompt[0]["content"]:
        met = {"reason": "It is so.", "message": 2, "finding": "met"}
        criteria = prompt[0]["content"].partition("The criteria:")[2]
        count = len(re.findall(r"^\d+\. ", criteria, re.M))
        return json.dumps({f"criterion_{number}": met for number in range(1, count + 1)})
    has_asked = any(one["role"] == "assistant" for one in prompt)
    return "###STOP###" if has_asked else "Hello, please help me."


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "block", TESTS[1:], ids=lambda text: re.findall(r"def (test_\w+)", text)[0]
)
def test_the_other_tests_run_with_a_model_as_the_user(
    plain: pytest.Pytester, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.makepyfile(test_page=block)
    with ScriptedServer(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        plain.runpytest_inprocess("test_page.py").assert_outcomes(passed=1)
