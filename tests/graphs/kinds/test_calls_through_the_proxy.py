"""Tool calls pass through the user proxy (rows A5 and A8; AutoGen's function calling)."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    MessageQuestion,
    Question,
    Result,
    Session,
    converse,
    user_proxy,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall

Asked = list[MessageQuestion]


def adds(*calls: tuple[str, int], text: str = "") -> Reply:
    """Return a message that calls the tool once for each id and number."""
    made = [
        ScriptedToolCall(name="add", args={"left": number, "right": 1}, id=call_id)
        for call_id, number in calls
    ]
    return Reply(text=text, tool_calls=made)


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def play(ran: list[int]) -> Callable[..., tuple[Result, Asked, ScriptedChatModel]]:
    """Return a function that runs a user proxy, with a tool and a list of the person's answers."""

    @tool
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        ran.append(left)
        return left + right

    def played(
        mode: str,
        script: list[Line],
        answers: list[Any],
        cap: int = 100,
        **others: Any,
    ) -> tuple[Result, Asked, ScriptedChatModel]:
        asked: Asked = []
        given = iter(answers)

        def answer(question: Question) -> Any:  # noqa: ANN401
            assert isinstance(question, MessageQuestion)
            asked.append(question)
            return next(given, None)

        spec = user_proxy(
            "Add up.",
            human_input_mode=mode,
            max_consecutive_auto_reply=cap,
            tools=["add"],
            code=False,
            default_auto_reply="Go on.",
            **others,
        )
        model = ScriptedChatModel(script=script)
        store = f"memory:{uuid4()}"
        result = converse(spec, model=model, store=store, tools=[add], answer=answer)
        return result, asked, model

    return played


Play = Callable[..., tuple[Result, Asked, ScriptedChatModel]]


def tools_said(model: ScriptedChatModel) -> list[str]:
    """Return the tool results in the newest prompt."""
    return [line["content"] for line in model.calls[-1].prompt if line["role"] == "tool"]


def test_a8_text_while_calls_wait_interrupts_each_of_them(play: Play, ran: list[int]) -> None:
    result, asked, model = play(
        "ALWAYS", [adds(("a", 1), ("b", 2)), "As you wish."], ["Leave it.", "exit"]
    )
    assert not ran
    assert asked[0].because == "calls"
    assert [(call.name, call.args["left"]) for call in asked[0].calls] == [("add", 1), ("add", 2)]
    assert tools_said(model) == ["Not run: User sent a message instead."] * 2
    assert model.calls[-1].prompt[-1]["content"] == "Leave it."
    assert result.transcript == [
        ("User", "Add up."),
        ("User", "Leave it."),
        ("Assistant", "As you wish."),
    ]
    # The assistant's turn continues, so the round is not over before it has spoken.
    assert result.outcome is not None
    assert result.outcome.rounds == 1


def test_a8_calls_that_cannot_be_read_are_interrupted_too(play: Play, ran: list[int]) -> None:
    broken = ScriptedToolCall(name="add", args="{", id="c")
    _, _, model = play("ALWAYS", [Reply(tool_calls=[broken]), "Well."], ["Leave it.", "exit"])
    assert tools_said(model) == ["Not run: User sent a message instead."]
    assert not ran


def test_a4_nothing_lets_the_calls_run_and_exit_leaves_without(play: Play, ran: list[int]) -> None:
    result, asked, model = play("ALWAYS", [adds(("a", 1)), "It is 2."], ["", "exit"])
    assert ran == [1]
    assert [question.because for question in asked] == ["calls", "turn"]
    assert [question.empty for question in asked] == ["run", "auto_reply"]
    assert tools_said(model) == ["2"]
    result, asked, _ = play("ALWAYS", [adds(("a", 5))], [" EXIT "])
    assert ran == [1]
    assert result.outcome is not None
    assert (result.outcome.reason.value, result.outcome.by) == ("quit", "User")
    assert len(asked) == 1


@pytest.mark.parametrize(("cap", "runs"), [(0, 0), (1, 1), (2, 2)])
def test_a3_each_run_is_an_automatic_reply(cap: int, runs: int, play: Play, ran: list[int]) -> None:
    script: list[Line] = [adds((str(number), number)) for number in range(4)]
    result, asked, _ = play("NEVER", script, [], cap=cap)
    assert len(ran) == runs
    assert not asked
    assert result.outcome is not None
    assert result.outcome.reason.value == "max_consecutive_auto_reply"


def test_a3_replies_and_runs_are_counted_together(play: Play, ran: list[int]) -> None:
    script: list[Line] = [adds(("a", 1)), "It is 2.", adds(("b", 2)), "It is 3."]
    result, _, _ = play("NEVER", script, [], cap=2)
    assert ran == [1]
    assert result.transcript[-2:] == [("Assistant", "It is 2."), ("User", "Go on.")]


def test_a5_at_the_cap_the_person_is_asked_before_each_run(play: Play, ran: list[int]) -> None:
    script: list[Line] = [adds(("a", 1)), adds(("b", 2)), adds(("c", 3)), adds(("d", 4)), "Well."]
    result, asked, _ = play("TERMINATE", script, ["", "Not that.", "exit"], cap=1)
    # One call is automatic, one is approved, and one is interrupted by a text that resets the
    # count.
    assert ran == [1, 2, 4]
    assert [question.because for question in asked] == ["max_consecutive_auto_reply"] * 3
    assert ("User", "Not that.") in result.transcript


def test_a5_without_any_automatic_reply_nothing_ends_it_before_the_calls(
    play: Play, ran: list[int]
) -> None:
    result, asked, _ = play("TERMINATE", [adds(("a", 1))], [""], cap=0)
    assert not ran
    assert asked[0].empty == "stop"
    assert result.outcome is not None
    assert result.outcome.reason.value == "max_consecutive_auto_reply"


def test_a7_a_termination_word_beside_calls_waits_until_they_have_run(
    play: Play, ran: list[int]
) -> None:
    script: list[Line] = [adds(("a", 1), text="TERMINATE"), "It is 2. TERMINATE"]
    result, asked, _ = play("NEVER", script, [])
    assert ran == [1]
    assert not asked
    assert result.outcome is not None
    assert result.outcome.reason.value == "termination"


def test_interrupted_calls_end_in_the_turns_last_word(play: Play, ran: list[int]) -> None:
    """A person may interrupt each round; the turn's rounds still count."""
    script: list[Line] = [adds((str(number), number)) for number in range(5)]
    answers = [f"No, not {number}." for number in range(5)]
    result, asked, _ = play("ALWAYS", [*script, "Then not."], [*answers, "exit"])
    assert not ran
    assert len(asked) == 6
    assert result.transcript[-1] == ("Assistant", "Then not.")


def test_g5_the_agent_of_a_chat_calls_without_asking(ran: list[int]) -> None:
    @tool
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        ran.append(left)
        return left + right

    person = {"name": "You", "replies": ["human"]}
    spec = Conversation.model_validate({"speakers": [person, {"name": "Agent", "tools": ["add"]}]})
    model = ScriptedChatModel(script=[adds(("a", 1)), "It is 2."])
    store = f"memory:{uuid4()}"
    result = converse(spec, session="one", model=model, store=store, tools=[add])
    result = Session("one", store=store).answer("Add 1 and 1", model=model, tools=[add])
    assert ran == [1]
    assert result.transcript == [("You", "Add 1 and 1"), ("Agent", "It is 2.")]


def test_autogen_function_calling_with_python_and_sh() -> None:
    """As in AutoGen's example, the assistant may call `python` and a shell without approval."""
    code = "print('A: Hello! B: Hi!')"
    script: list[Line] = [
        Reply(tool_calls=[ScriptedToolCall(name="python", args={"code": code}, id="a")]),
        "Two agents chat: A: Hello! B: Hi! TERMINATE",
    ]
    model = ScriptedChatModel(script=script)
    spec = user_proxy(
        "Draw two agents chatting with each other with an example dialog.",
        human_input_mode="NEVER",
        tools=["python"],
        code=False,
    )
    result = converse(spec, model=model, store=f"memory:{uuid4()}")
    assert "A: Hello! B: Hi!" in tools_said(model)[0]
    assert result.outcome is not None
    assert result.outcome.reason.value == "termination"
    assert result.outcome.by == "Assistant"
