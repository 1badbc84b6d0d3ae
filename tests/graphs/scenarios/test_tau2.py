"""Runs of tau2-bench, on a small checkout with its interface.

`tests/tau2_rewards.py` compares the rewards with those of tau2-bench itself.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from duologue import SpecError
from duologue.graphs.scenarios import SuiteReport, load_tau2, run_suite
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.tables import each_row

CHECKOUT = Path(__file__).parents[2] / "support" / "tau2_checkout"


@pytest.fixture(autouse=True)
def logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide the package by which tau2-bench logs, and forget the checkout afterwards."""
    (tmp_path / "loguru.py").write_text("class logger:\n    disable = staticmethod(id)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [one for one in sys.modules if one.partition(".")[0] in ("tau2", "loguru")]:
        del sys.modules[name]


def run(task: str, course: str, said: str, end: str, finding: str, store: str) -> SuiteReport:
    """Run a task.

    Args:
        task: The id of the task.
        course: The calls, such as ``refund 7, user unpack 7``; the user's come first.
        said: The agent's text.
        end: The user's last message.
        finding: The judge's finding.
        store: The store.
    """
    calls = [one.split() for one in course.split(", ") if one]

    def make_agent(world: Any) -> Callable[[Sequence[BaseMessage]], str]:  # noqa: ANN401
        assert world.policy == "Refund only sent orders."
        tools = {one.name: one for one in world.tools}
        left = [one for one in calls if one[0] != "user"]

        def answer(messages: Sequence[BaseMessage]) -> str:
            while left:
                name, order = left.pop(0)
                tools[name].invoke({"order": order})
            return said

        return answer

    unpacks = any(one[0] == "user" for one in calls)

    def write(prompt: Prompt) -> Line:
        roles = [one["role"] for one in prompt]
        if unpacks and "tool" not in roles:
            call = ScriptedToolCall(name="unpack", args={"order": "7"}, id="call_1")
            return Reply(tool_calls=[call])
        is_first = not any(one["role"] == "assistant" and one["content"] for one in prompt)
        return "Help me." if is_first else end

    suite = load_tau2(CHECKOUT, "shop")
    verdict = {"reason": "It is so.", "message": 1, "finding": finding}
    return run_suite(
        type(suite)(**dict(suite) | {"scenarios": {task: suite.scenarios[task]}}),
        make_agent=make_agent,
        name="tau2",
        model=ScriptedChatModel(write),
        judge_model=ScriptedChatModel(lambda _: {"criterion_1": verdict}),
        store=store,
    )


@each_row("tau2")
def test_rewards(
    task: str, course: str, said: str, end: str, finding: str, result: str, tmp_path: Path
) -> None:
    number = len([*tmp_path.iterdir()])
    (tmp_path / f"{number}").touch()
    store = f"memory:{tmp_path.name}-{number}"
    report = run(task, course, said, end or "###STOP###", finding or "met", store)
    (row,) = report.simulations
    wrong = [one for one in row.verdicts if not one.startswith("[met]")][:1]
    assert (row.outcome, row.error) == ("failed" if result else "passed", None), row.ended
    assert wrong == ([result] if result.startswith("[") else []), row.ended
    assert result.startswith("[") or result in row.ended


def test_an_assertion_that_raises_is_named(tmp_path: Path) -> None:
    report = run("raises", "refund 7", "Refunded.", "###STOP###", "met", f"memory:{tmp_path.name}")
    (row,) = report.simulations
    said = "the assertion status_is({'order': '9'}) raised KeyError: '9'"
    assert (row.outcome, row.reasons) == ("inconclusive", (f"[inconclusive] environment: {said}",))


def test_the_user_reads_the_prompt_of_the_checkout_and_the_earlier_talk() -> None:
    suite = load_tau2(str(CHECKOUT), "shop")
    assert "or ###OUT-OF-SCOPE###." in str(suite.batch().conversation)
    goal = suite.scenarios["history"].goal
    assert goal.endswith(
        "The conversation so far:\nuser: Refund order 7.\ntool: done\n"
        "assistant: Order 7 is refunded. And the other?"
    )
    assert [*suite.scenarios["history"].tools] == []
    assert [*suite.scenarios["unpack"].tools] == ["unpack"]


def test_arguments_reach_the_tools_unchanged() -> None:
    suite = load_tau2(CHECKOUT, "shop")
    make = suite.scenarios["refund"].world
    assert make is not None
    world = make()
    (tool,) = world.tools
    assert tool.invoke({"order": 7}) == "Error: KeyError(7)"
    assert (world.errors, world.calls[0].arguments) == (1, {"order": 7})


@each_row("tau2_errors")
def test_what_can_not_be_read_is_one_error(
    folder: str, domain: str, error: str, tmp_path: Path
) -> None:
    sources = {
        "broken": "def get_environment():\n    return open('absent.json')\n",
        "needs": "import absent_package",
        "lazy": "def get_environment():\n    import absent_package\n",
        "wrong": "import",
    }
    for name, source in sources.items():
        own = tmp_path / name / "src/tau2/domains" / name
        own.mkdir(parents=True, exist_ok=True)
        (own / "environment.py").write_text(source)
    (tmp_path / "empty/src/tau2/domains/empty").mkdir(parents=True, exist_ok=True)
    path = CHECKOUT if folder == "checkout" else tmp_path / folder
    with pytest.raises(SpecError) as caught:
        load_tau2(path, domain)
    sys.modules.pop("tau2", None)
    assert str(caught.value).replace(str(path), folder) == error
