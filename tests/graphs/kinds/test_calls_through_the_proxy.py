"""Tool calls pass through the user proxy (rows A5 and A8; AutoGen's function calling)."""

from typing import Any

import pytest
from langchain_core.tools import tool

from duologue.graphs import MessageQuestion, user_proxy
from duologue.nodes.testing import Line, Reply, ScriptedToolCall
from support.people_help import Played, call, calls, play


def adds(*lefts: int, text: str = "") -> Reply:
    """Return a message that calls the tool once for each number."""
    return calls(*(call("add", left, left=left, right=1) for left in lefts), text=text)


def add_up(
    mode: str, script: list[Line], answers: list[str], cap: int = 100
) -> tuple[Played, list[MessageQuestion], list[int]]:
    """Run a user proxy with a tool. Return the result, the questions, and the calls that ran."""
    ran: list[int] = []

    @tool
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        ran.append(left)
        return left + right

    options: dict[str, Any] = {"code": False, "default_auto_reply": "Go on.", "tools": ["add"]}
    spec = user_proxy("Add up.", human_input_mode=mode, max_consecutive_auto_reply=cap, **options)
    found = play(spec, script, answers, tools=[add])
    return found, [one for one in found.asked if isinstance(one, MessageQuestion)], ran


def tools_said(found: Played) -> list[str]:
    """Return the tool results in the newest prompt."""
    return [line["content"] for line in found.prompts[-1] if line["role"] == "tool"]


NOT_RUN = "Not run: User sent a message instead."


def test_a8_text_while_calls_wait_interrupts_each_of_them() -> None:
    found, asked, ran = add_up("ALWAYS", [adds(1, 2), "As you wish."], ["Leave it.", "exit"])
    assert not ran
    assert asked[0].because == "calls"
    assert [(call.name, call.args["left"]) for call in asked[0].calls] == [("add", 1), ("add", 2)]
    assert tools_said(found) == [NOT_RUN] * 2
    assert found.prompts[-1][-1]["content"] == "Leave it."
    assert found.transcript == [
        ("User", "Add up."),
        ("User", "Leave it."),
        ("Assistant", "As you wish."),
    ]
    # The assistant's turn continues, so the round is not over before it has spoken.
    assert found.outcome.rounds == 1


def test_a8_calls_that_cannot_be_read_are_interrupted_too() -> None:
    broken = calls(ScriptedToolCall(name="add", args="{", id="c"))
    found, _, ran = add_up("ALWAYS", [broken, "Well."], ["Leave it.", "exit"])
    assert (tools_said(found), ran) == ([NOT_RUN], [])


def test_a4_nothing_lets_the_calls_run_and_exit_leaves_without() -> None:
    found, asked, ran = add_up("ALWAYS", [adds(1), "It is 2."], ["", "exit"])
    assert ran == [1]
    assert [question.because for question in asked] == ["calls", "turn"]
    assert [question.empty for question in asked] == ["run", "auto_reply"]
    assert tools_said(found) == ["2"]
    found, asked, ran = add_up("ALWAYS", [adds(5)], [" EXIT "])
    assert (ran, len(asked)) == ([], 1)
    assert (found.reason, found.outcome.by) == ("quit", "User")


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a3_each_run_is_an_automatic_reply(cap: int) -> None:
    found, asked, ran = add_up("NEVER", [adds(number) for number in range(4)], [], cap)
    assert (len(ran), asked) == (cap, [])
    assert found.reason == "max_consecutive_auto_reply"


def test_a3_replies_and_runs_are_counted_together() -> None:
    found, _, ran = add_up("NEVER", [adds(1), "It is 2.", adds(2), "It is 3."], [], cap=2)
    assert ran == [1]
    assert found.transcript[-2:] == [("Assistant", "It is 2."), ("User", "Go on.")]


def test_a5_at_the_cap_the_person_is_asked_before_each_run() -> None:
    script: list[Line] = [adds(1), adds(2), adds(3), adds(4), "Well."]
    found, asked, ran = add_up("TERMINATE", script, ["", "Not that.", "exit"], cap=1)
    # One call is automatic, one is approved, and one is interrupted by a text that resets the
    # count.
    assert ran == [1, 2, 4]
    assert [question.because for question in asked] == ["max_consecutive_auto_reply"] * 3
    assert ("User", "Not that.") in found.transcript


def test_a5_without_any_automatic_reply_nothing_ends_it_before_the_calls() -> None:
    found, asked, ran = add_up("TERMINATE", [adds(1)], [""], cap=0)
    assert (ran, asked[0].empty) == ([], "stop")
    assert found.reason == "max_consecutive_auto_reply"


def test_a7_a_termination_word_beside_calls_waits_until_they_have_run() -> None:
    found, asked, ran = add_up("NEVER", [adds(1, text="TERMINATE"), "It is 2. TERMINATE"], [])
    assert (ran, asked, found.reason) == ([1], [], "termination")


def test_interrupted_calls_end_in_the_turns_last_word() -> None:
    """A person may interrupt each round; the turn's rounds still count."""
    script: list[Line] = [adds(number) for number in range(5)]
    answers = [f"No, not {number}." for number in range(5)]
    found, asked, ran = add_up("ALWAYS", [*script, "Then not."], [*answers, "exit"])
    assert (ran, len(asked)) == ([], 6)
    assert found.transcript[-1] == ("Assistant", "Then not.")
