"""The ids of messages are unique, even if there are other conversations."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from duologue.graphs import (
    Conversation,
    Session,
    build_graph,
    chat,
    converse,
    load_session,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall, ScriptExhaustedError
from duologue.tools import Hook
from support.fork_help import FUNCTIONS, plain
from support.log import fields_of, kind_of, log_of, of_kind, place_of
from support.results import outcome_of

SPEECHES = ["A1", "B1", "A2", "B2"]


class Talks(MessagesState):
    """The state of a user's program: a chat, and the conversation that it starts."""

    conversation: dict[str, Any]


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["no saver", "saver"])
async def test_two_conversations_in_one_parent_stand_one_behind_the_other(
    saver: InMemorySaver | None,
) -> None:
    parent = StateGraph(Talks)
    model = ScriptedChatModel(script=SPEECHES + SPEECHES)
    parent.add_node("first", build_graph(model=model))
    parent.add_node("second", build_graph(model=model))
    parent.add_edge(START, "first")
    parent.add_edge("first", "second")
    parent.add_edge("second", END)
    graph = parent.compile(checkpointer=saver)
    config = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)
    given: Any = {"conversation": plain().stored(), "messages": [("user", "Talk, you two.")]}
    ended = await graph.ainvoke(given, config)
    texts = [message.text for message in ended["messages"]]
    assert texts == ["Talk, you two.", *SPEECHES, *SPEECHES]
    ids = [message.id for message in ended["messages"]]
    assert len({*ids}) == len(ids)


@pytest.mark.parametrize("streaming", [True, False])
async def test_each_reply_is_streamed_under_one_id_that_it_keeps(streaming: bool) -> None:
    model = ScriptedChatModel(script=["One two.", "Three four.", "A2", "B2"])
    model.disable_streaming = not streaming
    graph = build_graph(model=model)
    streamed: dict[str, str] = {}
    state: Any = {}
    async for mode, found in graph.astream(
        {"conversation": plain().stored()},
        RunnableConfig(recursion_limit=100),
        stream_mode=["messages", "values"],
    ):
        if mode == "values":
            state = found
        elif isinstance(found[0], AIMessage):  # this includes tokens
            streamed[str(found[0].id)] = streamed.get(str(found[0].id), "") + found[0].text
    replies = of_kind(log_of(state), "speech")
    assert streamed == {message.id: message.text for message in replies}


class Repeating(ScriptedChatModel):
    """A model whose server sends the same id with every answer."""

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        found = await super()._agenerate(*args, **kwargs)
        found.generations[0].message.id = "chatcmpl-1"
        return found


@pytest.mark.parametrize("order", ["round_robin", "concurrent"])
def test_a_server_that_repeats_an_id_loses_no_message(order: str, tmp_path: Path) -> None:
    """In a round in which all speak at once, the answers are written together."""
    store = f"sqlite:///{tmp_path / 's.db'}"
    model = Repeating(script=SPEECHES)
    model.disable_streaming = True
    conversation = plain(turn_order=order, speakers=[{"name": "Ann"}, {"name": "Ben"}])
    ended = converse(conversation, session="one", model=model, store=store)
    assert [text for _, text in ended.transcript] == SPEECHES
    assert [one.id for one in ended.messages].count("chatcmpl-1") == 1
    places = [place_of(one) for one in ended.messages]
    assert places == [f"m{place:04d}" for place in range(len(places))]
    assert len({message.id for message in ended.messages}) == len(ended.messages)


def test_a_fork_and_what_is_gone_on_with_keep_the_ids(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 's.db'}"
    ended = converse(plain(), session="one", model=ScriptedChatModel(script=SPEECHES), store=store)
    Session("one", store=store).fork(at="m0002", into="two")
    found = Session("two", store=store).state().messages
    assert found == ended.messages[: len(found)]
    assert outcome_of(ended).message == place_of(ended.messages[-1])


def test_what_is_said_in_anothers_turn_takes_the_place_of_what_told_it_to_speak(
    tmp_path: Path,
) -> None:
    store, there = (f"sqlite:///{tmp_path / name}.db" for name in ("here", "there"))
    conversation = plain(speakers=[{"name": name} for name in ("Ann", "Ben", "Cid")])
    with pytest.raises(ScriptExhaustedError):
        converse(conversation, session="one", model=ScriptedChatModel(script=["A1"]), store=store)
    before = Session("one", store=store).state().messages
    assert fields_of(before[-1]).audience == ("Ben",)
    Session("one", store=store).add_message("Cid", "C1")
    after = Session("one", store=store).state().messages
    assert after[: len(before) - 1] == before[:-1]
    assert [place_of(one) for one in after] == [f"m{place:04d}" for place in range(len(after))]
    assert (after[len(before) - 1].text, place_of(after[len(before) - 1])) == ("C1", "m0002")
    load_session(Session("one", store=store).dump(), store=there)
    assert Session("one", store=there).state().messages == after


def test_what_people_say_is_a_human_message_and_what_else_speakers_say_is_not() -> None:
    store = "memory:people-say"
    model = ScriptedChatModel(script=["Hello!"])
    converse(chat(), session="hi", model=model, store=store)
    ended = Session("hi", store=store).answer("Good morning.", model=model)
    spoken = of_kind(ended.messages, "speech")
    assert [(one.type, one.name, one.text) for one in spoken] == [
        ("human", "User", "Good morning."),
        ("ai", "Assistant", "Hello!"),
    ]


def test_texts_functions_and_code_speak_as_the_speakers_they_stand_for() -> None:
    conversation = Conversation.model_validate(
        {
            "task": "Talk",
            "speakers": [
                {"name": "Ann", "replies": [{"kind": "text", "text": "```python\n1\n```"}]},
                {"name": "Ben", "replies": [{"kind": "code"}, {"kind": "text", "text": "None."}]},
                {"name": "Cid", "replies": [{"kind": "function", "name": "once"}]},
            ],
            "end_chat": {"max_iterations": 1},
        }
    )
    ended = converse(conversation, store="memory:others-say", **FUNCTIONS)
    spoken = of_kind(ended.messages, "speech")
    assert [one.type for one in spoken] == ["ai"] * 3


async def test_the_messages_are_what_was_said_and_all_else_is_unspoken() -> None:
    """L7: other programs that show `messages` show the conversation, and there is still one log."""
    conversation = plain(
        speakers=[
            {"name": "Ann", "private_opening": {"prompt": "Choose a number."}, "hooks": ["all"]},
            {"name": "Ben", "checks_completion": True, "tools": ["weather"]},
        ],
        task_specification={},
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 1},
        judge={"form": "two_questions"},
    )
    call = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
    model = ScriptedChatModel(
        script=["Plan a park.", "Seven.", "A1", "", call, "B1", "Nothing.", "Yes."]
    )
    graph = build_graph(model=model, checkpointer=InMemorySaver(), **FUNCTIONS)
    config = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)
    output: Any = await graph.ainvoke({"conversation": conversation.stored()}, config)
    values = (await graph.aget_state(config)).values
    assert output["messages"] == values["messages"]
    assert "unspoken" not in output
    assert [(one.type, one.name, one.text) for one in values["messages"]] == [
        ("ai", "Ann", "A1 — Ann"),
        ("ai", "Ben", ""),
        ("tool", None, "Monday: sun"),
        ("ai", "Ben", "B1"),
    ]
    assert {kind_of(one) for one in values["unspoken"]} == {
        *("specified_task", "instruction", "hook_version", "unheard_reply", "speech"),
        *("draft", "judge_question", "reflection"),
    }
    log = log_of(values)
    assert [place_of(one) for one in log] == [f"m{place:04d}" for place in range(len(log))]
    assert len(log) == len(values["messages"]) + len(values["unspoken"])


async def test_calls_that_are_made_unheard_stand_beside_their_results() -> None:
    conversation = plain(
        speakers=[
            {
                "name": "Ann",
                "private_opening": {"prompt": "Look outside."},
                "tools": ["weather"],
            },
            {"name": "Ben"},
        ],
        end_chat={"max_iterations": 1},
    )
    call = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
    model = ScriptedChatModel(script=[call, "Sun.", "A1", "B1"])
    graph = build_graph(model=model, checkpointer=InMemorySaver(), **FUNCTIONS)
    config = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)
    await graph.ainvoke({"conversation": conversation.stored()}, config)
    values = (await graph.aget_state(config)).values
    assert [one.text for one in values["messages"]] == ["A1", "B1"]
    assert [one.type for one in values["unspoken"]] == ["human", "ai", "tool", "ai", "human"]


@pytest.mark.parametrize("hook", [Hook(), Hook(after_speaker=lambda turn, reply: None)])
async def test_a_result_is_where_its_call_is_whether_hooks_see_it_first_or_not(hook: Hook) -> None:
    speakers = [{"name": "Ann", "tools": ["weather"], "hooks": ["look"]}, {"name": "Ben"}]
    conversation = plain(speakers=speakers, end_chat={"max_iterations": 1})
    call = ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")
    model = ScriptedChatModel(
        script=[Reply(text="One moment.", tool_calls=[call]), "Sun.", "Thank you."]
    )
    graph = build_graph(model=model, tools=FUNCTIONS["tools"], hooks={"look": hook})
    ended: Any = await graph.ainvoke({"conversation": conversation.stored()})
    kinds = [type(one) for one in ended["messages"]]
    assert kinds == [AIMessage, ToolMessage, AIMessage, AIMessage]
