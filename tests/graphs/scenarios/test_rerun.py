"""Simulations that run again from a message on, with a changed agent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from duologue import Scenario, Session, SpecError, simulate
from duologue.graphs.scenarios import SimulationResult, rerun_simulation, run_suite
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.agents import requesting


def refunds(result: SimulationResult) -> bool:
    return result.called("refund")


REFUND = Scenario("You want order 7 refunded.", checks=[refunds])


def refund(number: int) -> str:
    """Refund an order."""
    return f"order {number} is refunded"


def shop(*script: Any, **options: Any) -> Any:  # noqa: ANN401
    return create_agent(ScriptedChatModel(script=script), [refund], **options)


CALL = Reply(tool_calls=[ScriptedToolCall(name="refund", args={"number": 7}, id="a")])


def user(*script: str) -> ScriptedChatModel:
    return ScriptedChatModel(script=script)


@pytest.mark.part(1)
@pytest.mark.parametrize("options", [{}, {"checkpointer": True}], ids=["plain", "kept"])
def test_a_failed_simulation_is_repaired_from_the_wrong_message(
    options: dict[str, Any], tmp_path: Path
) -> None:
    kept = {"checkpointer": InMemorySaver()} if options else {}
    model = user("Refund order 7.", "Yes, order 7.", "###STOP###")
    failed = simulate(
        REFUND, shop("Order 7?", "No.", **kept), model=model, store=f"memory:{tmp_path.name}"
    )
    assert not failed.passed
    changed = shop(CALL, "It is refunded.", **kept)
    again = rerun_simulation(failed.session, REFUND, changed, at=4, model=user("###STOP###"))
    assert again.passed
    talk = ["Refund order 7.", "Order 7?", "Yes, order 7."]
    texts = [text for _, text in again.transcript]
    assert texts == [*talk, "It is refunded.", "###STOP###"]
    assert [one.text for one in again.agent_state["messages"]][:3] == talk
    assert failed.session.state().transcript == failed.transcript


@pytest.mark.part(1)
@pytest.mark.parametrize("at", [2, 3, 4])
def test_the_whole_turn_of_the_message_is_repeated(at: int) -> None:
    """Messages 2 to 4 are a call, its result and the text after it."""
    model = user("Refund order 7.", "###STOP###")
    first = simulate(REFUND, shop(CALL, "Done."), model=model, store="memory:")
    again = rerun_simulation(first.session, REFUND, shop("No."), at=at, model=user("###GIVE-UP###"))
    assert again.transcript[:2] == [("User", "Refund order 7."), ("Agent", "No.")]
    assert (again.ended.kind, again.tool_calls()) == ("gave_up", [])


@pytest.mark.exhaustive
def test_a_simulation_of_a_suite_is_repaired_too(tmp_path: Path) -> None:
    def refuse(messages: Sequence[BaseMessage]) -> str:
        return f"No, {messages[-1].text}"

    store, model = str(tmp_path / "s.db"), requesting()
    report = run_suite(
        {"scenarios": {"refund": REFUND}}, refuse, name="shop", model=model, store=store
    )
    (failed,) = report.simulations
    assert failed.outcome == "failed"
    session = Session(failed.session, store=store)
    again = rerun_simulation(session, REFUND, shop(CALL, "Done."), at=2, model=model)
    assert again.passed


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "at: there is no message 0; the messages of this simulation have the numbers 1 to 3"),
        (9, "at: there is no message 9"),
        (1, "at: no message precedes message 1"),
    ],
)
def test_a_message_that_cannot_be_repeated_is_named(at: int, words: str) -> None:
    model = user("Refund order 7.", "###STOP###")
    first = simulate(REFUND, shop("No."), model=model, store="memory:")
    with pytest.raises(SpecError, match=words):
        rerun_simulation(first.session, REFUND, shop("Yes."), at=at, model=model)
    wrong: dict[str, Any] = {"session": first, "scenario": "Refund"}
    for name, value in wrong.items():
        named: dict[str, Any] = {"session": first.session, "scenario": REFUND, name: value}
        with pytest.raises(TypeError, match=rf"^{name}: must be a {name.title()}, not "):
            rerun_simulation(**named, agent=shop("Yes."), at=2)
