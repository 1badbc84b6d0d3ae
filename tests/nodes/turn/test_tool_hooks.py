"""Hooks around tools: their view of calls and results, their changes and return values."""

from typing import Any

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from duologue.nodes.testing import Line as Said, Reply, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.log import fields_of, of_kind
from support.shape_help import kinds, shown, texts

from .hooks_help import BEGIN, adding, called, calling, either, hooked, in_form, play

# Around tools.


@either
def test_a_hook_changes_the_arguments_of_a_call(form: str) -> None:
    """L7: the log keeps the speaker's call and the changed arguments."""
    ran: list[tuple[int, int]] = []

    def more(turn: Turn, call: ToolCall) -> ToolCall:
        return ToolCall(name=call["name"], args={**call["args"], "b": 40}, id=call["id"])

    hooks = {"more": in_form(Hook(before_tool=more), form)}
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."]
    result, model = play(hooked("more"), script, hooks=hooks, tools=[adding(ran)])
    assert ran == [(1, 40)]
    (made,) = of_kind(result.messages, "tool_calls")
    assert isinstance(made, AIMessage)
    assert made.tool_calls[0]["args"] == {"a": 1, "b": 2}
    (answer,) = of_kind(result.messages, "tool_result")
    assert (answer.text, fields_of(answer).arguments) == ("41", {"a": 1, "b": 40})
    assert texts(model.calls[1])[-1] == "t:41"


@either
def test_a_hook_answers_a_call_instead_of_the_tool(form: str) -> None:
    """L7: later hooks do not run; a failure stays a failure."""
    ran: list[tuple[int, int]] = []
    seen: list[dict[str, Any]] = []

    def cached(turn: Turn, call: ToolCall) -> ToolMessage | None:
        if call["args"]["a"] == 1:
            return ToolMessage("cached", tool_call_id="any")
        return ToolMessage("refused", tool_call_id="any", status="error")

    def note(turn: Turn, call: ToolCall) -> None:
        seen.append(call["args"])

    hooks = {"cached": in_form(Hook(before_tool=cached), form), "note": Hook(before_tool=note)}
    script: list[Said] = [
        Reply(tool_calls=[called(1, 2, "c1"), called(3, 4, "c2")]),
        *("Sum.", "Ok."),
    ]
    result, model = play(hooked("cached", "note"), script, hooks=hooks, tools=[adding(ran)])
    assert (ran, seen) == ([], [])
    answers = of_kind(result.messages, "tool_result")
    assert [(answer.text, fields_of(answer).arguments) for answer in answers] == [
        *(("cached", None), ("refused", None)),
    ]
    assert [getattr(answer, "status", None) for answer in answers] == ["success", "error"]
    told = model.calls[1].prompt[-2:]
    assert [message["tool_call_id"] for message in told] == ["c1", "c2"]


@either
def test_a_hook_changes_the_result_of_a_call(form: str) -> None:
    """L7: the hook sees the call that ran; the log also keeps the tool's own result."""
    seen: list[tuple[dict[str, Any], str, str | None, str]] = []

    def before(turn: Turn, call: ToolCall) -> ToolCall:
        return ToolCall(name="add", args={"a": 5, "b": 5}, id=None)

    def after(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        seen.append((call["args"], result.text, result.name, result.status))
        return ToolMessage(f"about {result.text}", tool_call_id="any")

    hooks = {"h": in_form(Hook(before_tool=before, after_tool=after), form)}
    script: list[Said] = [calling(1, 2), "Sum.", "Ok."]
    result, model = play(hooked("h"), script, hooks=hooks)
    assert seen == [({"a": 5, "b": 5}, "10", "add", "success")]
    (raw,), (answer,) = (
        of_kind(result.messages, "unheard_result"),
        of_kind(result.messages, "tool_result"),
    )
    assert (raw.text, fields_of(raw).audience) == ("10", ())
    assert (answer.text, fields_of(answer).arguments) == ("about 10", {"a": 5, "b": 5})
    assert [message["content"] for message in model.calls[1].prompt[-1:]] == ["about 10"]
    assert "t:10" not in shown(result.viewpoint("Ann"))
    assert kinds(result) == [
        *("instruction", "tool_calls", "unheard_result", "tool_result", "speech", "speech"),
    ]


def test_calls_whose_arguments_are_broken_stand_among_those_that_hooks_see() -> None:
    """L7, G3: each result belongs to its call, in the calls' order."""
    seen: list[str] = []

    def note(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        seen.append(str(call["id"]))
        return ToolMessage(f"[{result.text}]", tool_call_id="", status=result.status)

    calls = [
        called(1, 2, "c1"),
        ScriptedToolCall(name="add", args="{a", id="c2"),
        called("x", 4, "c3"),
        ScriptedToolCall(name="sub", args={}, id="c4"),
        called(5, 6, "c5"),
    ]
    hooks = {"h": Hook(before_tool=lambda turn, call: None, after_tool=note)}
    result, model = play(
        hooked("h"), [Reply(tool_calls=calls), "So.", "Ok."], hooks=hooks, tools=[adding()]
    )
    assert seen == ["c1", "c3", "c4", "c5"]
    told = {message["tool_call_id"]: message["content"] for message in model.calls[1].prompt[-5:]}
    assert list(told) == ["c1", "c3", "c4", "c5", "c2"]
    assert told["c1"] == "[3]"
    assert told["c2"].startswith("The arguments of add are not valid JSON: ")
    assert told["c3"].startswith("[The arguments of add do not fit")
    assert told["c4"].startswith("[There is no tool 'sub'")
    assert told["c5"] == "[11]"
    states = [getattr(answer, "status", "") for answer in of_kind(result.messages, "tool_result")]
    assert states == ["success", "error", "error", "success", "error"]


def test_hooks_around_a_tool_see_the_turn_and_the_words_beside_the_call() -> None:
    """L7: the turn contains no placeholder results for calls that have not run yet."""
    turns: dict[str, list[Turn]] = {"before": [], "after": []}
    hook = Hook(
        before_tool=lambda turn, call: turns["before"].append(turn),
        after_tool=lambda turn, call, result: turns["after"].append(turn),
    )
    script: list[Said] = [calling(1, 2), calling(3, 4, "c2", "Once more."), "Sum.", "Ok."]
    play(hooked("h"), script, hooks={"h": hook})
    for first, second in turns.values():
        assert shown(first.messages[1:]) == [f"u:{BEGIN}"]
        assert shown(second.messages[1:]) == [f"u:{BEGIN}", "a:", "t:3", "a:Once more."]


def test_what_is_said_beside_a_call_passes_the_hooks_too() -> None:
    """L7: other speakers hear only the changed text; the call stays the same."""
    seen: list[tuple[str, int]] = []

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        seen.append((reply.text, len(reply.tool_calls)))
        return AIMessage(f"{reply.text} — A.")

    script: list[Said] = [calling(1, 2, text="Let me see."), calling(3, 4, "c2"), "Sum.", "Ok."]
    result, model = play(
        hooked("h"), script, hooks={"h": Hook(after_speaker=sign)}, tools=[adding()]
    )
    # A call without words has no text for a hook to change.
    assert seen == [("Let me see.", 1), ("Sum.", 0)]
    assert texts(model.calls[3]) == ["u:Let me see. — A.\n\nSum. — A."]
    assert texts(model.calls[1])[1:] == ["a:Let me see. — A.", "t:3"]
    answers = of_kind(result.messages, "unheard_reply")
    assert [message.text for message in answers] == ["Let me see.", "Sum."]
    made = of_kind(result.messages, "tool_calls")
    assert [message.tool_calls[0]["id"] for message in made if isinstance(message, AIMessage)] == [
        *("c1", "c2"),
    ]
