"""Conversations that may not end before so many rounds are complete (R5)."""

from typing import Any

import pytest

from duologue.graphs import Result, SpecError, converse, load_conversation
from duologue.nodes.testing import ScriptedChatModel


def play(script: list[str], *, stops: str = "", **end_chat: Any) -> Result:
    speakers = [{"name": name, "stops_chat": name in stops.split()} for name in ("Ann", "Bob")]
    spec = load_conversation({"task": "Plan.", "speakers": speakers, "end_chat": end_chat})
    return converse(spec, model=ScriptedChatModel(script=[*script]), store="memory:")


def ended(result: Result) -> tuple[str, int]:
    assert result.outcome is not None
    return result.outcome.reason.value, result.outcome.messages


DONE = {"kind": "done_token", "token": "DONE"}


@pytest.mark.parametrize(("least", "messages"), [(0, 1), (1, 2), (2, 4)])
def test_r5_a_token_waits(least: int, messages: int) -> None:
    script = ["DONE", "Really?", "Yes, I think so.", "Well then."]
    assert ended(play(script, when=DONE, min_iterations=least)) == ("done_token", messages)


def test_r5_a_guard_waits() -> None:
    script = ["Thank you!", "Bye!", "Goodbye!", "Bye bye!"]
    found = play(script, guards={"farewells": 2}, min_iterations=2)
    assert ended(found) == ("farewells", 4)


def test_r5_budgets_do_not_wait() -> None:
    found = play(["Hi there."], when={"kind": "max_calls", "limit": 1}, min_iterations=3)
    assert ended(found) == ("max_calls", 1)


@pytest.mark.parametrize(
    ("min_iterations", "when", "told"),
    [
        (4, None, "end_chat.min_iterations: 4 is above the cap, max_iterations, 3"),
        (
            2,
            {"kind": "max_messages", "limit": 3},
            "end_chat.min_iterations: 2 rounds have 4 messages, above the cap, max_messages, 3",
        ),
    ],
)
def test_r5_above_a_cap_it_is_refused(
    min_iterations: int, when: dict[str, Any] | None, told: str
) -> None:
    with pytest.raises(SpecError) as raised:
        play([], min_iterations=min_iterations, max_iterations=3, when=when)
    assert str(raised.value) == told
