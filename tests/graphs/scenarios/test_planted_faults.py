"""Each fault of a shop's agent is found by a short scenario, and a sound agent passes them all.

The user is scripted. The scripted judge reads the transcript alone, and does not know which fault
the agent has.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from duologue import Scenario, simulate
from duologue.graphs.scenarios import SimulationResult
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel
from support.shop import Fault, shop_agent

STOP = "###STOP###"


GOAL = "Get the second charge of order 1042 refunded."


PHOTO = {
    "type": "image",
    "mime_type": "image/png",
    "base64": (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
    "extras": {"filename": "order.png"},
}
SEND = {"name": "send_order_png", "args": {"message": "I was charged twice for this."}, "id": "1"}


class Case(NamedTuple):
    """A scenario with the messages of its user."""

    scenario: Scenario
    says: tuple[Line, ...]


def texts(result: SimulationResult) -> str:
    return "\n".join(text for speaker, text in result.transcript if speaker == "Agent")


def scenario(*says: str, check: Callable[[SimulationResult], bool] | None = None) -> Case:
    checks = [] if check is None else [check]
    found = Scenario(GOAL, checks=checks, max_iterations=8)
    return Case(found, (*says, STOP))


CASES = {
    Fault.PROMISES: Case(
        Scenario(
            GOAL,
            criteria=["The agent promises no refund before it calls get_order."],
        ),
        ("I was charged twice.", "Order 1042.", "Yes.", STOP),
    ),
    Fault.AMOUNT: scenario(
        "Refund order 1042.",
        "Yes.",
        check=lambda result: [args["amount"] for _, args in result.tool_calls()[1:]] == [19.9],
    ),
    Fault.FORGETS: scenario(
        *("Order 1042. Contact me by e-mail only.", "Yes.", "When?", "Fine.", "How will I hear?"),
        "Please repeat that.",
        check=lambda result: "phone" not in texts(result),
    ),
    Fault.LEAKS: scenario(
        *("Refund order 1042.", "Yes."),
        check=lambda result: "Bob" not in texts(result) and "2077" not in texts(result),
    ),
    Fault.TWICE: scenario(
        *("Refund order 1042.", "Yes."),
        check=lambda result: len(result.agent_state["refunds"]) == 1,
    ),
    Fault.EARLY: scenario(
        *("Refund order 1042.", "Yes."),
        check=lambda result: "closed" not in texts(result).partition("refunded")[0],
    ),
    Fault.NEVER: scenario("Refund order 1042.", *["Yes."] * 3, check=lambda r: r.called("refund")),
    Fault.LANGUAGE: scenario(
        *("Bestellung 1042 wurde doppelt berechnet.", "Ja."),
        check=lambda result: not re.search(r"\b(the|it|shall|each)\b", texts(result)),
    ),
    Fault.REFUSAL: scenario(
        *("Refund order 1042.", "No, not to my card. I want a credit."),
        check=lambda result: result.called("refund", to="credit"),
    ),
    Fault.ANSWERS: scenario(
        *("Refund order 1042.", "Yes."),
        check=lambda result: "Customer:" not in texts(result),
    ),
    Fault.IMAGE: Case(
        Scenario(GOAL, checks=[lambda result: result.called("refund")], files=[PHOTO]),
        (Reply(tool_calls=[SEND]), "Yes.", STOP),
    ),
    Fault.SILENT: scenario("Refund order 1042.", "Yes.", "How will I hear of it?"),
}


def judge(prompt: Prompt) -> dict[str, object]:
    """Return a verdict that is computed from the numbered transcript."""
    lines = re.findall(r"^(\d+)\. (.+)$", prompt[-1]["content"], re.MULTILINE)
    for number, line in lines:
        if "called get_order" in line:
            break
        if "Agent: I will refund" in line:
            reason = "The agent promises a refund first."
            return {"criterion_1": {"reason": reason, "message": int(number), "finding": "not_met"}}
    verdict = {"reason": "The agent calls get_order first.", "message": 0, "finding": "met"}
    return {"criterion_1": verdict}


def run(test: Case, fault: Fault | None) -> SimulationResult:
    return simulate(
        test.scenario,
        shop_agent(fault),
        model=ScriptedChatModel(test.says),
        judge_model=ScriptedChatModel(judge),
        store="memory:",
    )


@pytest.mark.part(1)
@pytest.mark.parametrize("trials", [1, pytest.param(20, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("fault", Fault, ids=lambda one: one.name.lower())
def test_each_fault_is_found_and_the_sound_agent_passes(fault: Fault, trials: int) -> None:
    for _ in range(trials):
        sound = run(CASES[fault], None)
        assert sound.passed, sound.report()
        faulty = run(CASES[fault], fault)
        report = faulty.report()
        assert not faulty.passed, report
        assert "[not met]" in report
        # A guard ends a conversation with an agent that asks the same again and again.
        end = "Agent gave the same reply 3 times (expected: done)"
        assert (end if fault is Fault.NEVER else "Ended: the user says the goal is met\n") in report
