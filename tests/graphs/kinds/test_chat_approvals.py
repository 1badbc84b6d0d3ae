"""Decisions and messages of a person while an agent's tools wait: rows G4 and G5.

`test_approval` tests the rules, and `test_approval_answers` the graph.
"""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tools import BaseTool, tool
from langgraph.types import interrupt

from duologue.graphs import (
    AnswerError,
    ApprovalQuestion,
    Question,
    Result,
    SessionError,
    ToolQuestion,
    chat,
    converse,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from support.people_help import call, calls, play


@pytest.fixture
def ran() -> list[str]:
    """Return a list for the completed calls, in order."""
    return []


@pytest.fixture
def tools(ran: list[str]) -> list[BaseTool]:
    """Return a tool that needs approval, one that does not, and one that asks a person."""

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(f"mail {to}")
        return f"Sent to {to}."

    @tool
    def look(at: str) -> str:
        """Look at something."""
        ran.append(f"look {at}")
        return f"Seen {at}."

    @tool
    def size(of: str) -> str:
        """Ask a person for a size."""
        ran.append(f"size {of}")
        return f"{of}: {interrupt({'size of': of})}"

    return [mail, look, size]


MAIL: dict[str, Any] = {"interrupt_on": {"mail": True}, "tools": ["mail", "look", "size"]}
BOTH = calls(call("mail", 1, to="Bob", to_user="I write to Bob."), call("look", 2, at="a.txt"))


def results(found: Result) -> list[str]:
    return [message.text for message in found.messages if message.type == "tool"]


# Decisions

EDITED = {"type": "edit", "edited_action": {"name": "mail", "args": {"to": "Eve"}}}


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("decision", "runs", "told"),
    [
        pytest.param({"type": "approve"}, ["mail Bob"], "Sent to Bob.", id="approve"),
        pytest.param(EDITED, ["mail Eve"], 'to mail with {"to": "Eve"}', id="edit"),
        pytest.param({"type": "reject", "message": "Not him."}, [], "Reason: Not him.", id="no"),
        pytest.param({"type": "respond", "message": "Away."}, [], "Away.", id="respond"),
    ],
)
def test_each_decision_of_a_person_in_the_chat(
    decision: dict[str, Any], runs: list[str], told: str, ran: list[str], tools: list[BaseTool]
) -> None:
    decisions = {"decisions": [decision]}
    found = play(chat("Write.", **MAIL), [BOTH, "Done."], [decisions, "exit"], tools=tools)
    question = found.asked[0]
    assert isinstance(question, ApprovalQuestion)
    (request,), (review,) = question.action_requests, question.review_configs
    # The text next to the call is no argument that a person must keep.
    assert (request["name"], request["args"]) == ("mail", {"to": "Bob"})
    assert review["allowed_decisions"] == ["approve", "edit", "reject", "respond"]
    assert sorted(ran) == sorted([*runs, "look a.txt"])
    mailed, looked = [line["content"] for line in found.prompts[1] if line["role"] == "tool"]
    assert told in mailed
    assert looked == "Seen a.txt."
    assert found.transcript[1:] == [("Assistant", "I write to Bob."), ("Assistant", "Done.")]
    assert [one.kind for one in found.asked] == ["approval", "message"]


def test_nothing_runs_before_the_decision_and_the_other_calls_run_once(
    ran: list[str], tools: list[BaseTool]
) -> None:
    given: dict[str, Any] = {
        "model": ScriptedChatModel(script=[BOTH, "Done."]),
        "tools": tools,
    }
    result = converse(chat("Write.", **MAIL), store=f"memory:{uuid4().hex}", **given)
    session = result.session
    assert [one.kind for one in result.pending] == ["approval"]
    for _ in range(2):
        assert session.resume(**given).pending == result.pending
    wrong: Any
    for wrong in ("maybe", {"decisions": []}, {"decisions": [{"type": "perhaps"}]}, "exit!"):
        with pytest.raises(AnswerError):
            session.answer(wrong, **given)
    assert not ran
    result = session.answer({"decisions": [{"type": "approve"}]}, **given)
    assert sorted(ran) == ["look a.txt", "mail Bob"]
    assert [one.kind for one in result.pending] == ["message"]
    assert session.resume(**given).pending == result.pending
    assert len(ran) == 2


def test_a_tool_that_runs_code_is_asked_about_with_its_code() -> None:
    spec = chat("Add.", tools=["python"], interrupt_on={"python": True})
    script: list[Line] = [
        calls(call("python", 1, code="kept = 6\nprint(kept)")),
        calls(call("python", 2, code="print(kept * 7)")),
        "It is 42.",
    ]
    yes = {"decisions": [{"type": "approve"}]}
    args = {"code": "kept = 7\nprint(kept)"}
    other = {"type": "edit", "edited_action": {"name": "python", "args": args}}
    answers = [{"decisions": [other]}, yes, "exit"]
    found = play(spec, script, answers)
    shown = [
        one.action_requests[0]["args"]["code"]
        for one in found.asked
        if isinstance(one, ApprovalQuestion)
    ]
    assert shown == ["kept = 6\nprint(kept)", "print(kept * 7)"]
    first, second = results(found.result)
    assert "7" in first
    assert "49" in second
    assert found.reason == "quit"


# Tools that ask

SIZES = calls(call("size", 1, of="coat"), call("look", 2, at="shop"), call("size", 3, of="hat"))


@pytest.fixture
def waiting(tools: list[BaseTool]) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Return a function that starts a chat with two asking tools; it returns result and options."""

    def started(**more: Any) -> tuple[Result, dict[str, Any]]:
        options: dict[str, Any] = {
            "model": ScriptedChatModel(script=[SIZES, "Both noted."]),
            "tools": tools,
        }
        spec = chat("Sizes?", tools=["look", "size"])
        return converse(spec, store=f"memory:{uuid4().hex}", **options, **more), options

    return started


Waiting = Callable[..., tuple[Result, dict[str, Any]]]


def asks(questions: tuple[Question, ...]) -> list[Any]:
    return [one.value for one in questions if isinstance(one, ToolQuestion)]


NOTED = ["coat: 50", "Seen shop.", "hat: 58"]


def test_two_tools_that_ask_at_once_are_each_answered(ran: list[str], waiting: Waiting) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> Any:  # noqa: ANN401
        asked.append(question)
        if isinstance(question, ToolQuestion):
            return {"coat": 50, "hat": 58}[question.value["size of"]]  # type: ignore[index,call-overload]
        return "exit"

    result, _ = waiting(answer=answer)
    assert results(result) == NOTED
    assert [one.kind for one in asked] == ["tool", "tool", "message"]
    # A tool that asked starts again with its answer; the others do not run again.
    assert ran.count("look shop") == 1


@pytest.mark.parametrize("first", ["coat", "hat"])
def test_each_is_answered_by_its_id_and_the_other_waits_alone(
    first: str, ran: list[str], waiting: Waiting
) -> None:
    result, options = waiting()
    session = result.session
    assert asks(result.pending) == [{"size of": "coat"}, {"size of": "hat"}]
    with pytest.raises(SessionError, match="waits for several answers; name the question"):
        session.answer(50, **options)
    ids = dict(zip(("coat", "hat"), (one.id for one in result.pending), strict=True))
    sizes = {"coat": 50, "hat": 58}
    other = next(name for name in sizes if name != first)
    result = session.answer(sizes[first], question=ids[first], **options)
    assert asks(result.pending) == [{"size of": other}]
    with pytest.raises(SessionError, match="the question was already answered"):
        session.answer(1, question=ids[first], **options)
    # A run without an answer repeats the question, and no question gets another's answer.
    before = list(ran)
    for _ in range(2):
        result = session.resume(**options)
        assert [one.id for one in result.pending] == [ids[other]]
    assert ran == before
    result = session.answer(sizes[other], **options)
    assert results(result) == NOTED
    assert ran.count("look shop") == 1


def test_what_one_leaves_open_the_session_waits_with(waiting: Waiting) -> None:
    def only_the_hat(question: Question) -> Any:  # noqa: ANN401
        mine = isinstance(question, ToolQuestion) and question.value == {"size of": "hat"}
        return 58 if mine else None

    result, options = waiting(answer=only_the_hat)
    assert asks(result.pending) == [{"size of": "coat"}]
    assert result.session.state().pending == result.pending
    result = result.session.resume(
        answer=lambda one: 50 if one.kind == "tool" else "exit", **options
    )
    assert results(result) == NOTED
    assert result.outcome is not None
    assert result.outcome.reason.value == "quit"


def test_a_call_is_approved_of_before_its_tool_asks(ran: list[str], tools: list[BaseTool]) -> None:
    spec = chat("Go.", tools=["size", "look"], interrupt_on={"size": True})
    yes = {"decisions": [{"type": "approve"}]}
    script: list[Line] = [calls(call("size", of="coat"), call("look", 2, at="x")), "Noted."]
    found = play(spec, script, [yes, "L", "exit"], tools=tools)
    assert [one.kind for one in found.asked] == ["approval", "tool", "message"]
    assert results(found.result) == ["coat: L", "Seen x."]
    assert ran.count("look x") == 1
