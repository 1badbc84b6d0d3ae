"""Tools: the calls a speaker may make, their results, and the messages that others hear."""

import asyncio
from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from duologue.graphs import (
    Conversation,
    SpecError,
    build_graph,
    load_conversation,
)
from duologue.graphs.events import ToolRoundLimitReached
from duologue.graphs.session.events import events_of_session
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools.registry.registry import Registry
from support.log import kind_of
from support.results import StoredSession, make_session

from .adding import add, call, fail


@tool
def secret() -> str:
    """Returns a text for its owner alone."""
    pytest.fail("called by another speaker")


def talk(*tools: str, **fields: object) -> Conversation:
    given: dict[str, object] = {
        "task": "Sum up.",
        "speakers": [{"name": "Ann", "tools": tools}, {"name": "Bob", "tools": ["secret"]}],
        "end_chat": {"max_iterations": 1},
    }
    return load_conversation(given | fields)


async def run(
    script: Sequence[Line], tools: Sequence[BaseTool], conversation: Conversation
) -> tuple[StoredSession, ScriptedChatModel]:
    """Run the compiled graph itself, without sessions."""
    model = ScriptedChatModel(script=script)
    graph = build_graph(model=model, tools=[*tools, secret])
    state = await graph.ainvoke({"conversation": conversation.stored()})
    return make_session("s", conversation, dict(state)), model


def results(result: StoredSession) -> list[ToolMessage]:
    return [message for message in result.messages if isinstance(message, ToolMessage)]


# The registry


def test_two_tools_of_one_name_are_refused() -> None:
    @tool("add")
    def other(a: int) -> int:
        """Adds one."""
        return a + 1

    with pytest.raises(SpecError, match="two tools are named 'add'; give"):
        Registry({"tools": [add, other]})
    with pytest.raises(SpecError, match="two tools are named 'add'; give"):
        build_graph(tools=[add, other])


def test_the_tools_of_a_speaker_come_in_its_order() -> None:
    registry = Registry({"tools": [add, fail, secret]})
    speaker = talk("fail", "add").speaker("Ann")
    assert [found.name for found in registry.tools_of(speaker)] == ["fail", "add"]
    assert registry.tool("add") is add
    assert registry.tool("ad") is None


# The node


async def test_a_tools_answer_goes_back_to_its_caller_who_then_speaks() -> None:
    script: list[Line] = [
        Reply(text="Let me see.", tool_calls=(call("add", {"a": 1, "b": 2}),)),
        "It is 3.",
        "Thanks.",
    ]
    result, model = await run(script, [add], talk("add"))
    assert result.transcript == [("Ann", "Let me see."), ("Ann", "It is 3."), ("Bob", "Thanks.")]
    [answer] = results(result)
    assert (answer.text, answer.tool_call_id, answer.status) == ("3", "c1", "success")
    assert model.calls[1].prompt[-2:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "name": "Ann",
            "tool_calls": model.calls[1].prompt[-2]["tool_calls"],
        },
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    offered = [[offer["function"]["name"] for offer in asked.tools] for asked in model.calls]
    assert offered == [["add"], ["add"], ["secret"]]


async def test_the_others_hear_only_the_text_beside_the_calls() -> None:
    script: list[Line] = [
        Reply(text="Let me see.", tool_calls=(call("add", {"a": 20, "b": 3}),)),
        "I have it.",
        "Thanks.",
    ]
    _, model = await run(script, [add], talk("add"))
    heard: Prompt = model.calls[2].prompt
    assert {message["role"] for message in heard} == {"system", "user"}
    assert not any("tool_calls" in message for message in heard)
    text = "\n".join(message["content"] for message in heard)
    assert "Let me see." in text
    assert "I have it." in text
    assert "23" not in text


async def test_calls_run_side_by_side_and_answer_in_their_order() -> None:
    second_ran = asyncio.Event()
    order: list[str] = []

    @tool
    async def first() -> str:
        """Waits for the second."""
        await second_ran.wait()
        order.append("first")
        return "one"

    @tool
    async def second() -> str:
        """Ends before the first."""
        order.append("second")
        second_ran.set()
        return "two"

    calls = (call("first", {}, "c1"), call("second", {}, "c2"))
    script: list[Line] = [Reply(tool_calls=calls), "Done.", "Ok."]
    async with asyncio.timeout(30):
        result, _ = await run(script, [first, second], talk("first", "second"))
    assert order == ["second", "first"]
    assert [(answer.tool_call_id, answer.text) for answer in results(result)] == [
        ("c1", "one"),
        ("c2", "two"),
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (call("ad", {"a": 1}), ["no tool 'ad'", "add, fail"]),
        (call("secret", {}), ["no tool 'secret'", "add, fail"]),
        (call("add", "{a: 1"), ["arguments of add are not valid JSON"]),
        (call("add", "[1, 2]"), ["arguments of add"]),
        (call("add", {"a": 1}), ["arguments of add do not fit", "b"]),
        (call("add", {"a": "one", "b": 2}), ["arguments of add do not fit", "a"]),
        (call("fail", {"reason": "disk on fire"}), ["fail failed: OSError: disk on fire"]),
    ],
)
async def test_whatever_goes_wrong_with_a_call_is_told_to_the_model(
    wrong: ScriptedToolCall, words: list[str]
) -> None:
    right = call("add", {"a": 1, "b": 2}, "c2")
    script: list[Line] = [Reply(tool_calls=(wrong, right)), "I see.", "Ok."]
    result, model = await run(script, [add, fail], talk("add", "fail"))
    assert result.outcome is not None
    told = {message["tool_call_id"]: message["content"] for message in model.calls[1].prompt[-2:]}
    assert told["c2"] == "3"
    for word in words:
        assert word in told["c1"]
    status = {answer.tool_call_id: answer.status for answer in results(result)}
    assert status == {"c1": "error", "c2": "success"}


async def test_broken_calls_are_answered_behind_the_good_ones_as_the_client_reads_them() -> None:
    calls = (call("add", "{a", "c1"), call("add", {"a": 1, "b": 2}, "c2"))
    result, _ = await run([Reply(tool_calls=calls), "I see.", "Ok."], [add], talk("add"))
    asked = next(message for message in result.messages if kind_of(message) == "tool_calls")
    assert isinstance(asked, AIMessage)
    # LangChain keeps no order between valid and invalid calls.
    assert [made["id"] for made in [*asked.tool_calls, *asked.invalid_tool_calls]] == ["c2", "c1"]
    assert [answer.tool_call_id for answer in results(result)] == ["c2", "c1"]


async def test_a_broken_call_alone_is_answered_too() -> None:
    script: list[Line] = [Reply(tool_calls=(call("add", "{a", "c1"),)), "I see.", "Ok."]
    result, model = await run(script, [add], talk("add"))
    asked, told = model.calls[1].prompt[-2:]
    assert [made["id"] for made in asked["tool_calls"]] == ["c1"]
    assert told["role"] == "tool"
    assert told["content"].startswith("The arguments of add are not valid JSON: ")
    assert result.transcript == [("Ann", "I see."), ("Bob", "Ok.")]


async def test_after_the_last_round_of_calls_none_is_offered_and_the_speaker_answers() -> None:
    again = [Reply(tool_calls=(call("add", {"a": 1, "b": n}, f"c{n}"),)) for n in range(2)]
    conversation = talk("add", max_tool_rounds=2)
    result, model = await run([*again, "Enough.", "Ok."], [add], conversation)
    assert [bool(asked.tools) for asked in model.calls] == [True, True, False, True]
    assert result.transcript == [("Ann", "Enough."), ("Bob", "Ok.")]


async def test_calls_after_the_last_round_are_not_run() -> None:
    ran: list[int] = []

    @tool
    def count(n: int) -> int:
        """Counts."""
        ran.append(n)
        return n

    calls = [Reply(text="Go.", tool_calls=(call("count", {"n": n}, f"c{n}"),)) for n in range(2)]
    result, _ = await run([*calls, "Ok."], [count], talk("count", max_tool_rounds=1))
    assert ran == [0]
    assert result.transcript == [("Ann", "Go."), ("Ann", "Go."), ("Bob", "Ok.")]
    assert len(results(result)) == 1


async def test_each_turn_has_its_rounds_of_calls_anew() -> None:
    def called(n: int) -> Reply:
        return Reply(tool_calls=(call("add", {"a": 1, "b": n}, f"c{n}"),))

    conversation = talk("add", max_tool_rounds=1, end_chat={"max_iterations": 2})
    script: list[Line] = [called(0), "One.", "Ok.", called(1), "Two.", "Fine."]
    result, model = await run(script, [add], conversation)
    assert [bool(asked.tools) for asked in model.calls] == [True, False, True, True, False, True]
    assert [answer.text for answer in results(result)] == ["1", "2"]
    reached = [one for one in events_of_session(result) if isinstance(one, ToolRoundLimitReached)]
    assert [(one.speaker, one.rounds) for one in reached] == [("Ann", 1), ("Ann", 1)]
    assert result.outcome is not None
    (warning,) = result.outcome.warnings
    assert warning.startswith("Ann reached max_tool_rounds (1) in 2 turns")


async def test_twenty_rounds_by_default_and_failures_are_no_rounds() -> None:
    """Z7: a round without success only counts towards the turn's errors."""
    assert talk("add").max_tool_rounds == 20
    made = [Reply(tool_calls=(call("add", {"a": 1, "b": n}, f"c{n}"),)) for n in range(19)]
    failed = Reply(tool_calls=(call("add", {"a": "one"}, "f"),))
    result, _ = await run([*made[:9], failed, *made[9:], "Enough.", "Ok."], [add], talk("add"))
    assert not [one for one in events_of_session(result) if isinstance(one, ToolRoundLimitReached)]
    assert result.outcome is not None
    assert result.outcome.warnings == ()


async def test_a_tool_that_returns_more_than_text_is_told_as_text() -> None:
    @tool
    def table() -> list[dict[str, int]]:
        """Returns rows."""
        return [{"a": 1}, {"a": 2}]

    script: list[Line] = [Reply(tool_calls=(call("table", {}),)), "I see.", "Ok."]
    result, model = await run(script, [table], talk("table"))
    assert isinstance(model.calls[1].prompt[-1]["content"], str)
    assert '"a": 2' in model.calls[1].prompt[-1]["content"]
    assert len(results(result)) == 1


@pytest.mark.parametrize("given", ["", "call_0"])
async def test_each_call_has_its_own_result_whatever_ids_a_server_gives(given: str) -> None:
    first = Reply(tool_calls=(call("add", {"a": 1, "b": 2}, given),))
    both = (call("add", {"a": 5, "b": 5}, given), call("add", {"a": 7, "b": 7}, given))
    script: list[Line] = [first, "3.", "Ok.", Reply(tool_calls=both), "10 and 14.", "Ok."]
    conversation = talk("add", end_chat={"max_iterations": 2})
    result, model = await run(script, [add], conversation)
    assert result.outcome is not None
    told = [message["content"] for message in model.calls[4].prompt if message["role"] == "tool"]
    assert told == ["3", "10", "14"]
    ids = [answer.tool_call_id for answer in results(result)]
    assert len(set(ids)) == 3
