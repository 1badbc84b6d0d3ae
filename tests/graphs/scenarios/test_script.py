"""Scripts: fixed and simulated turns, checks and verdicts between them, and refused orders."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from duologue import Scenario, SpecError, simulate
from duologue.graphs.scenarios import (
    SimulationResult,
    agent,
    check,
    judge,
    proceed,
    user,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from support.agents import graph_of

GOAL = "Get one charge of order 1042 refunded."
LOOKS_UP = "The agent looks the order up."


def count(messages: list[BaseMessage]) -> str:
    return f"Reply to {messages[-1].text}"


def play(script: list[Any], *says: str, tested: object = count, **fields: Any) -> SimulationResult:
    options: Any = {"judge_model": fields.pop("judge_model", None)}
    scenario = Scenario(GOAL, script=script, **fields)
    model = ScriptedChatModel(says)
    result = simulate(scenario, tested, model=model, store="memory:", **options)
    # The script of the simulated user is used to its end.
    assert len(model.calls) == len(says)
    return result


def verdict(finding: str) -> Line:
    return {"criterion_1": {"reason": "By the lines.", "message": 2, "finding": finding}}


def texts(result: SimulationResult) -> list[str]:
    return [f"{name}: {text}" for name, text in result.transcript]


def test_fixed_and_simulated_turns_are_played_in_order() -> None:
    seen: list[list[str]] = []

    def note(result: SimulationResult) -> None:
        seen.append(texts(result))

    script = [user("Hi."), check(note), agent(), user(), agent("One moment."), check(note)]
    result = play([*script, proceed(2)], "Refund it.", "And?", "Well?")
    talk = [
        "User: Hi.",
        "Agent: Reply to Hi.",
        "User: Refund it.",
        "Agent: One moment.",
        "User: And?",
        "Agent: Reply to And?",
        "User: Well?",
        "Agent: Reply to Well?",
    ]
    assert texts(result) == talk
    assert seen == [talk[:1], talk[:4]]
    assert (result.ended.kind, str(result.ended)) == ("script_finished", "the script is finished")
    assert result.passed
    assert [one.name for one in result.verdicts] == ["note", "note"]
    # Nobody waits for the session any more.
    assert result.session.state().stop_reason == "stop_requested"


def test_a_script_may_begin_with_the_agent() -> None:
    heard: list[list[str]] = []

    def note(messages: list[BaseMessage]) -> str:
        heard.append([f"{one.type}: {one.text}" for one in messages])
        return "Noted."

    result = play([agent("Hello, I help."), user(), agent()], "Refund it.", tested=note)
    assert texts(result)[0] == "Agent: Hello, I help."
    assert heard == [["ai: Hello, I help.", "human: Refund it."]]


def test_a_graph_with_a_thread_reads_fixed_replies_too() -> None:
    def step(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"I know {len(state['messages'])}.")]}

    tested = graph_of(step, checkpointer=InMemorySaver())
    script = [user("A"), agent(), user("B"), agent("C"), user("D"), agent("E"), user("F"), agent()]
    result = play(script, tested=tested)
    known = [one.text for one in result.agent_state["messages"]]
    assert known == ["A", "I know 1.", "B", "C", "D", "E", "F", "I know 7."]


def test_the_user_may_end_a_script_early() -> None:
    script = [user("Hi."), agent(), user(), agent(), user("Not said."), check(has_reply)]
    result = play(script, "Yes. ###STOP###")
    assert result.ended.kind == "done"
    assert texts(result)[-1] == "Agent: Reply to Yes."
    assert result.passed


def has_reply(result: SimulationResult) -> bool:
    return any(name == "Agent" for name, _ in result.transcript)


def refuses(result: SimulationResult) -> None:
    if "no" not in result.transcript[-1][1]:
        raise AssertionError("the agent does not refuse")


def test_a_failed_check_ends_the_script_and_names_its_step() -> None:
    result = play([user("Hi."), agent(), check(has_reply), check(refuses), proceed()])
    assert result.ended.kind == "script_failed"
    words = "the script failed: step 4: [not met] refuses: the agent does not refuse"
    assert str(result.ended) == words
    assert f"Ended: {words} (expected: done, script_finished)" in result.report()
    assert [one.finding.value for one in result.verdicts] == ["met", "not_met"]
    assert not result.passed


def test_a_judge_within_a_script_ends_it_if_a_criterion_is_not_met() -> None:
    script = [user("Hi."), agent(), judge(), user(), agent(), judge()]
    lines = [verdict("met"), verdict("not_met")]
    judging = ScriptedChatModel(lines)
    result = play(script, "So?", criteria=[LOOKS_UP], judge_model=judging)
    assert result.ended.kind == "script_failed"
    assert result.ended.text.startswith("step 6: [not met] The agent looks the order up: ")
    assert len(result.conversation.later_verdicts) == 2
    assert not result.passed
    # The last verdict is not requested twice.
    again = ScriptedChatModel([verdict("met")])
    assert play([user("Hi."), agent(), judge()], criteria=[LOOKS_UP], judge_model=again).passed


@pytest.mark.exhaustive
def test_rounds_to_the_end_stop_at_guards_and_caps() -> None:
    script = [user("Hi."), agent(), proceed()]
    farewells = ["Thank you, goodbye!", "Bye, thanks!", "Goodbye!", "Bye bye!"]
    replies = iter(["Hm?", "You are welcome, goodbye!", "Bye!", "Goodbye!", "Bye!"])
    scenario = Scenario(GOAL, script=script)
    model = ScriptedChatModel(farewells)
    result = simulate(scenario, lambda _: next(replies), model=model, store="memory:")
    assert (result.ended.kind, result.ended.stop_reason) == ("stopped", "farewells")
    capped = play(script, "Second?", "Third?", max_iterations=3)
    assert (capped.ended.kind, capped.ended.stop_reason) == ("stopped", "max_iterations")


@pytest.mark.exhaustive
def test_a_script_longer_than_the_default_cap_is_played_to_its_end() -> None:
    script = [one for number in range(12) for one in (user(f"Question {number}?"), agent())]
    result = play(script)
    assert (result.ended.kind, len(result.transcript)) == ("script_finished", 24)


def test_expected_ends_that_are_set_apply_to_scripts() -> None:
    script = [user("Hi."), agent()]
    assert not play(script, expected_ends=["gave_up"]).passed
    assert play(script, expected_ends=["script_finished"]).passed


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([], "script: it has no turn; add user(), agent() or proceed()"),
        ([agent()], "script.0: the agent has no message to answer; begin with user() or"),
        ([user(), user()], "script.1: the user spoke last; add agent() before it"),
        ([user(), agent(), agent("x")], "script.2: the agent replied last; add user() before"),
        ([proceed(2), agent()], "script.1: the agent replied last"),
        ([check(has_reply), user()], "script.0: nothing was said yet; put a turn before it"),
        ([user(), judge()], "script.1: there are no criteria to judge; set criteria, or use"),
        ([proceed(), user()], "script.1: proceed() continues to the end; pass it a number"),
        (["wait"], "script.0"),
        ([user(), 7], "script.1"),
        ([user(), agent(), proceed(3)], "max_iterations: the script has 4 rounds, more than 2;"),
    ],
)
def test_an_impossible_script_is_one_error_that_names_the_step(
    script: list[Any], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        Scenario(GOAL, script=script, max_iterations=2)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("text", [" ", "exit", " EXIT "])
def test_a_text_that_says_nothing_or_leaves_is_refused(text: str) -> None:
    for step in (user, agent):
        with pytest.raises(SpecError, match=r"^text: "):
            step(text)


def test_a_script_answers_all_questions_itself() -> None:
    with pytest.raises(SpecError, match="answer: a script answers each question; remove"):
        simulate(
            Scenario(GOAL, script=[user("Hi.")]),
            count,
            store="memory:",
            answer=lambda question: "yes",
        )
