"""Output of tools and code is said unchanged, and the other rules still apply to it."""

from typing import Any

from langchain_core.tools import tool

from duologue.graphs import Conversation, converse
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import of_kind
from support.results import outcome_of
from support.shape_help import play


@tool
def report(number: int) -> str:
    """Return a long report."""
    return f"Report {number}: " + "all is well and there is more of it. " * 80


def direct_and_summed_up() -> Conversation:
    """Return a speaker whose tool's output is its message, and whose history soon gets too long."""
    context = {"kind": "summary", "limit": 600, "words": 5}
    ann: dict[str, Any] = {"tools": ["report"], "return_direct": True, "context": context}
    return Conversation.model_validate(
        {
            "task": "Plan.",
            "speakers": [{"name": "Ann", **ann}, {"name": "Bob"}],
            "end_chat": {"max_iterations": 2},
        }
    )


def test_y18_a_tools_output_that_is_too_long_to_be_shown_is_said_and_asks_no_model() -> None:
    """Y18: no summary is made between a tool's output and its message."""
    call = Reply(text="", tool_calls=(ScriptedToolCall(name="report", args={"number": 7}, id="c"),))
    script: list[Line] = ["Let us begin.", "Begin.", call, "Good."]
    result, _ = play(direct_and_summed_up(), script, tools=[report])
    assert [who for who, _ in result.transcript] == ["Ann", "Bob"] * 2
    assert result.transcript[2][1].startswith("Report 7: ")
    assert not of_kind(result.messages, "summary")


def code_and_word(**end_chat: Any) -> Conversation:
    return Conversation.model_validate(
        {
            "task": "Compute.",
            "speakers": [{"name": "Box", "replies": ["code"]}, {"name": "Ann"}],
            "opening": {"first_speaker": "Ann"},
            "end_chat": {"when": {"kind": "done_token", "token": "DONE"}, **end_chat},
            "sandbox": {"level": "monty"},
        }
    )


CODE = "```python\nprint(40 + 2)\n```\nDONE"


def test_a7_code_beside_the_word_that_ends_it_is_run_first() -> None:
    """A7: the code's output is the last message."""
    result, _ = play(code_and_word(), [CODE])
    assert [who for who, _ in result.transcript] == ["Ann", "Box"]
    assert "42" in result.transcript[1][1]
    assert outcome_of(result).reasons == ("done_token",)


def test_a7_code_beside_the_word_that_ends_it_lengthens_nothing() -> None:
    """A7, Y11: no message follows if the same message also reaches the cap."""
    model = ScriptedChatModel(script=["Well.", CODE])
    ends: dict[str, Any] = {"kind": "max_messages", "limit": 3}
    conversation = code_and_word(when=[{"kind": "done_token", "token": "DONE"}, ends])
    result = converse(conversation, model=model, store="memory:")
    assert [who for who, _ in result.transcript] == ["Ann", "Box", "Ann"]
    assert outcome_of(result).reasons == ("done_token", "max_messages")
    assert outcome_of(result).messages == 3
