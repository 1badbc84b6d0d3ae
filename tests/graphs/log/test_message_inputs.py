"""Messages in every form that LangGraph accepts are converted before storage, or refused."""

from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, StateUpdate

from duologue.graphs import SpecError, build_graph
from duologue.nodes.testing import ScriptedChatModel
from support.graphs import ChatForm, Graph
from support.log import log_of

CONFIG = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)
CALL = {"name": "dig", "args": {"depth": 3}, "id": "c", "type": "tool_call"}
OPENAI_CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "dig", "arguments": '{"depth": 3}'},
}

FORMS: dict[str, Any] = {
    "text": "hi",
    "texts": ["so", "hi"],
    "tuple alone": ("user", "hi"),
    "tuple": [("user", "hi")],
    "list of two": [["human", "hi"]],
    "pair with blocks": [("user", [{"type": "text", "text": "hi"}])],
    "message": HumanMessage("hi"),
    "messages": [SystemMessage("Be brief."), AIMessage("Yes?"), HumanMessage("hi")],
    "chunk": [HumanMessageChunk(content="hi")],
    "chunk of an answer": [AIMessageChunk(content="Yes?"), ("user", "hi")],
    "dict alone": {"role": "user", "content": "hi"},
    "OpenAI": [{"role": "developer", "content": "x"}, {"role": "user", "content": "hi"}],
    "OpenAI with a call": [
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "c"},
        {"role": "user", "content": "hi"},
    ],
    "LangChain": [{"type": "human", "content": "hi", "name": "Ann"}],
    "LangChain with a call": [
        {"type": "ai", "content": "", "tool_calls": [CALL]},
        {"type": "tool", "content": "3", "tool_call_id": "c", "status": "error"},
        {"type": "human", "content": "hi"},
    ],
    "constructor": [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "HumanMessage"],
            "kwargs": {"content": "hi"},
        }
    ],
    "blocks": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "texts in blocks": [{"role": "user", "content": ["h", "i"]}],
    "one that it removes": [
        ("user", "no"),
        HumanMessage("never", id="n"),
        {"type": "remove", "content": "", "id": "n"},
        ("user", "hi"),
    ],
}
"""The user's message ``hi`` in all forms."""

REFUSED: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "None in a list": [("user", "hi"), None],
    "three parts": [["user", "hi", "there"]],
    "an unknown role": [["moderator", "hi"]],
    "an empty dict": {},
    "no content": [{"role": "user"}],
    "no role": [{"content": "hi"}],
    "no text": [("user", 5)],
    "a tuple of messages": (HumanMessage("a"), HumanMessage("b")),
    "bytes": b"hi",
    "broken arguments": [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "dig", "arguments": "{"}}],
        }
    ],
    "an overwriting": Overwrite([HumanMessage("hi")]),
    "an overwriting from a client": {"__overwrite__": []},
}


HELLO: Any = {"messages": ["Hello."]}


def chat() -> tuple[ScriptedChatModel, Graph]:
    model = ScriptedChatModel(script=["One.", "Two.", "Three."])
    return model, build_graph(form=ChatForm, model=model, checkpointer=InMemorySaver())


def parts(messages: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Return the parts of messages that a user sees, without their ids."""
    names = ("text", "name", "tool_calls", "status")
    return [(type(one), *(getattr(one, name, None) for name in names)) for one in messages]


def write(graph: Graph, given: Any) -> list[AnyMessage]:  # noqa: ANN401
    """Write to a state, and return the messages that were added."""
    before = len(graph.get_state(CONFIG).values["messages"])
    graph.update_state(CONFIG, {"messages": given})
    added: list[AnyMessage] = graph.get_state(CONFIG).values["messages"][before:]
    return added


@pytest.mark.part(6)
@pytest.mark.parametrize("form", FORMS)
async def test_each_form_is_a_message_of_the_user_at_each_run(form: str) -> None:
    """Every form is the user's message in each run, also after storage, which has no tuples."""
    model, graph = chat()
    for answer in ("One.", "Two."):
        given: Any = FORMS[form]
        found: Any = await graph.ainvoke({"messages": given}, CONFIG)
        assert found["messages"][-1].text == answer
        assert model.calls[-1].messages[-1].text.endswith("hi")
        texts = [one.text for one in (await graph.aget_state(CONFIG)).values["messages"]]
        assert texts == [one.text for one in found["messages"]]
        assert not {"user", "human", "never"} & {*texts}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_that_is_written_to_a_state_is_read_as_langgraph_reads_it(form: str) -> None:
    given, mine = FORMS[form], deepcopy(FORMS[form])
    # `add_messages` adds the ids in place. It can only remove messages that were there before.
    expected: Any = [HumanMessage("no"), HumanMessage("hi")]
    if form != "one that it removes":
        expected = add_messages([], deepcopy(given))
    _, graph = chat()
    graph.invoke(HELLO, CONFIG)
    written = write(graph, given)
    assert parts(written) == parts(expected)
    assert all(one.id for one in written)
    assert "never" not in [one.text for one in log_of(graph.get_state(CONFIG).values)]
    # The caller's messages do not change.
    assert given == mine


async def all_of(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


Write = Callable[[Graph, Any], Any]

WRITES: dict[str, Write] = {
    "run": lambda graph, bad: graph.invoke({"messages": bad}, CONFIG),
    "stream": lambda graph, bad: [*graph.stream({"messages": bad}, CONFIG)],
    "command": lambda graph, bad: graph.invoke(
        Command(resume="And?", update={"messages": bad}), CONFIG
    ),
    "command by pairs": lambda graph, bad: graph.invoke(
        Command(resume="And?", update=[("messages", bad)]), CONFIG
    ),
    "state": lambda graph, bad: graph.update_state(CONFIG, {"messages": bad}),
    "state by a command": lambda graph, bad: graph.update_state(
        CONFIG, Command(update={"messages": bad})
    ),
    "the second of two states": lambda graph, bad: graph.bulk_update_state(
        CONFIG,
        [
            [StateUpdate({"messages": ["fine"]}, "user_agent")],
            [StateUpdate({"messages": bad}, "user_agent")],
        ],
    ),
}

ASYNC_WRITES: dict[str, Write] = {
    "run": lambda graph, bad: graph.ainvoke({"messages": bad}, CONFIG),
    "command": lambda graph, bad: graph.ainvoke(
        Command(resume="And?", update={"messages": bad}), CONFIG
    ),
    "events": lambda graph, bad: all_of(
        graph.astream_events({"messages": bad}, CONFIG, version="v2")
    ),
    "batch": lambda graph, bad: graph.abatch([{"messages": bad}], CONFIG),
    "state": lambda graph, bad: graph.aupdate_state(CONFIG, {"messages": bad}),
    "the second of two states": lambda graph, bad: graph.abulk_update_state(
        CONFIG,
        [
            [StateUpdate({"messages": ["fine"]}, "user_agent")],
            [StateUpdate({"messages": bad}, "user_agent")],
        ],
    ),
}


@pytest.mark.part(8)
@pytest.mark.parametrize("bad", REFUSED)
@pytest.mark.parametrize("way", WRITES)
def test_anything_else_is_one_error_and_nothing_is_written(way: str, bad: str) -> None:
    model, graph = chat()
    graph.invoke({}, CONFIG)
    graph.invoke(Command(resume="Hello."), CONFIG)
    before = graph.get_state(CONFIG)
    assert before.interrupts
    with pytest.raises(SpecError, match=r"^messages") as raised:
        WRITES[way](graph, REFUSED[bad])
    assert "\n" not in str(raised.value)
    assert graph.get_state(CONFIG) == before
    found = graph.invoke(Command(resume="And?"), CONFIG)
    assert [one.text for one in found["messages"]] == ["Hello.", "One.", "And?", "Two."]
    assert len(model.calls) == 2


@pytest.mark.parametrize("bad", ["None", "three parts"])
@pytest.mark.parametrize("way", ASYNC_WRITES)
async def test_anything_else_is_one_error_in_a_loop_too(way: str, bad: str) -> None:
    _, graph = chat()
    await graph.ainvoke(HELLO, CONFIG)
    before = await graph.aget_state(CONFIG)
    with pytest.raises(SpecError, match=r"^messages"):
        await ASYNC_WRITES[way](graph, REFUSED[bad])
    assert await graph.aget_state(CONFIG) == before


def test_what_one_command_writes_twice_is_one_error() -> None:
    _, graph = chat()
    graph.invoke(HELLO, CONFIG)
    twice: Any = Command(update=[("messages", ["a"]), ("messages", ["b"])], resume="And?")
    with pytest.raises(SpecError, match=r"^messages: the command updates it twice"):
        graph.invoke(twice, CONFIG)


@pytest.mark.parametrize("bad", ["hi", ["hi"], 5, [("user", "hi")]])
def test_an_input_that_is_no_dict_is_one_error(bad: Any) -> None:  # noqa: ANN401
    _, graph = chat()
    with pytest.raises(SpecError, match=r"^input: is a "):
        graph.invoke(bad, CONFIG)
    assert not graph.get_state(CONFIG).values


ROLES = st.sampled_from(["user", "human", "ai", "assistant", "tool", "system", "remove", "x", ""])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), ROLES)
DICTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "role": ROLES,
        "type": ROLES,
        "content": st.one_of(LEAVES, st.lists(st.one_of(st.text(max_size=2), st.just({})))),
        "id": st.one_of(st.none(), st.sampled_from(["a", "b"]), st.integers()),
        "name": st.one_of(st.none(), st.just("Ann"), st.integers()),
        "tool_calls": st.lists(st.sampled_from([CALL, OPENAI_CALL, {}]), max_size=1),
        "tool_call_id": st.one_of(st.none(), st.just("c")),
        "additional_kwargs": st.just({"duologue": {"kind": "speech"}, "duologue_place": [0]}),
    },
)
PARTS = st.one_of(LEAVES, DICTS, st.lists(LEAVES, max_size=3), st.tuples(ROLES, LEAVES))


@settings(max_examples=100, deadline=None)
@given(written=st.one_of(PARTS, st.lists(PARTS, max_size=3)))
@example(written={"type": "ai", "content": None, "tool_calls": [OPENAI_CALL]})
@example(written={"type": "tool", "content": None, "tool_call_id": "c"})
def test_whatever_is_written_is_read_as_langgraph_does_or_is_one_error(written: Any) -> None:  # noqa: ANN401
    _, graph = chat()
    graph.invoke(HELLO, CONFIG)
    try:
        expected = parts(add_messages([], deepcopy(written))) if written is not None else None
    except Exception:
        # There are many error types. An unknown id to remove is no error for duologue.
        expected = None
    try:
        read: list[tuple[Any, ...]] | None = parts(write(graph, written))
    except SpecError as error:
        # A blank message can be read, but not be said.
        read = None if expected is None or "is not a message" in str(error) else expected
    assert expected is None or read == expected
