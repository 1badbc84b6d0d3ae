"""A refused input leaves its thread unchanged, whatever the thread waited for."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from duologue import ModelError, SessionError, SpecError, build_graph
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.fork_help import plain
from support.graphs import ChatForm, Form, RolePlayForm

CONFIG = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=100)
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/bee.png"}}


GARDEN = ["Instruction: dig\nInput: None", "Solution: dug\nNext request.", "<CAMEL_TASK_DONE>"]


class Thread:
    """A thread of a compiled graph, run with or without a loop."""

    def __init__(self, script: list[Any], form: type[Form] | None = ChatForm, **more: Any) -> None:
        self.model = ScriptedChatModel(script=script)
        self.saver = InMemorySaver()
        self.graph = build_graph(form=form, model=self.model, checkpointer=self.saver, **more)
        self.in_loop = True

    async def run(self, given: Any) -> None:  # noqa: ANN401
        if self.in_loop:
            await self.graph.ainvoke(given, CONFIG)
        else:
            self.graph.invoke(given, CONFIG)

    def seen(self) -> dict[str, Any]:
        """Return the thread's state as a client sees it, without ids and times."""
        state = self.graph.get_state(CONFIG)
        messages = state.values.get("messages", ())
        return {
            "said": [(one.type, one.name, one.text) for one in messages],
            "asked": [one.value for one in state.interrupts],
            "next": state.next,
            "prompts": [[one.text for one in call.messages] for call in self.model.calls],
        }


@tool
def dig() -> str:
    """Dig a bed."""
    return "Dug."


CALL = Reply(text="I dig.", tool_calls=[ScriptedToolCall(name="dig", args={}, id="c")])
SAID = ["One.", "Two.", "Three."]
FIRST: dict[str, Any] = {"messages": [HumanMessage("Hi", id="a")]}


class Begun(NamedTuple):
    """State of a thread before a refused input."""

    script: list[Any]
    fields: dict[str, Any]
    following: list[Any]
    error: type[Exception] | None = None


BEGUN: dict[str, Begun] = {
    "waits for a message": Begun(SAID, {}, []),
    "waits for an approval": Begun([CALL, *SAID], {"interrupt_on": {"dig": True}}, []),
    "has ended": Begun(SAID, {}, [Command(resume="exit")]),
    "was broken off": Begun([ModelError("it is down"), *SAID], {}, [], ModelError),
}


async def begin(name: str, *, in_loop: bool) -> Thread:
    """Create a thread and run it to this state."""
    begun = BEGUN[name]
    on = Thread(begun.script, tools=[dig])
    on.in_loop = in_loop
    with pytest.raises(begun.error) if begun.error else nullcontext():
        await on.run(FIRST | {"tools": ["dig"]} | begun.fields)
    for given in begun.following:
        await on.run(given)
    return on


REFUSED: dict[str, Any] = {
    "other prompt": {"messages": ["Other."], "assistant_prompt": "You are a cook."},
    "other tools": {"tools": []},
    "other conversation": {"conversation": plain().stored()},
    "bad conversation": {"messages": ["Other."], "conversation": {"speakers": 5}},
    "no conversation": {"conversation": [1]},
    "bad field": {"messages": ["Other."], "max_iterations": "many"},
    "no message": {"messages": [None], "assistant_prompt": "You are a cook."},
    "messages that are None": {"messages": None},
    "image": {"messages": [{"role": "user", "content": [IMAGE]}], "assistant": "Cook"},
    "blank": {"messages": [("user", " ")]},
    "list": [("user", "Hi")],
}

NEXT: dict[str, Any] = {
    "message": {"messages": [HumanMessage("And?", id="b")]},
    "answer": Command(resume="And?"),
    "approval": Command(resume={"decisions": [{"type": "approve"}]}),
    "None": None,
}


async def outcome(on: Thread, given: Any) -> Any:  # noqa: ANN401
    """Return the state after a run, or its error and the state."""
    try:
        await on.run(given)
    except Exception as error:
        return type(error), str(error), on.seen()
    return on.seen()


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("refused", "in_loop"),
    [*((refused, True) for refused in REFUSED), ("other prompt", False), ("image", False)],
)
@pytest.mark.parametrize("begun", BEGUN)
async def test_a_refused_input_is_as_if_it_had_never_been_sent(
    begun: str, refused: str, in_loop: bool
) -> None:
    for following, given in NEXT.items():
        on, other = await begin(begun, in_loop=in_loop), await begin(begun, in_loop=in_loop)
        before, checkpoints = on.graph.get_state(CONFIG), len([*on.saver.list(CONFIG)])
        for _ in range(2):
            with pytest.raises((SpecError, SessionError)):
                await on.run(REFUSED[refused])
        assert on.graph.get_state(CONFIG) == before
        assert len([*on.saver.list(CONFIG)]) == checkpoints
        assert await outcome(on, given) == await outcome(other, given), following


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "refused",
    [
        {"messages": ["Hi"], "tools": ["saw"]},
        {"messages": ["Hi"], "max_iterations": "many"},
        {"messages": [{"role": "user", "content": [IMAGE]}], "assistant_prompt": "You are a cook."},
        {"messages": ["Hi"], "conversation": {"speakers": 5}},
        {"messages": ["Hi", None], "user": "Ann"},
    ],
)
async def test_a_refused_first_input_leaves_no_thread(refused: dict[str, Any]) -> None:
    on, other = Thread(["One.", "Two."]), Thread(["One.", "Two."])
    with pytest.raises(SpecError):
        await on.run(refused)
    assert [*on.saver.list(CONFIG)] == []
    for one in (on, other):
        await one.run(FIRST)
    assert on.seen() == other.seen()


async def test_of_several_people_a_message_that_names_none_is_never_said() -> None:
    people = [{"name": name, "replies": ["human"]} for name in ("Ann", "Ben")]
    on = Thread([], None)
    await on.run({"conversation": plain(speakers=people).stored()})
    before = on.graph.get_state(CONFIG)
    with pytest.raises(SpecError, match="people speak for 'Ann', 'Ben'"):
        await on.run({"messages": ["Whose?"]})
    assert on.graph.get_state(CONFIG) == before
    await on.run(Command(resume="Ann's."))
    assert [text for _, _, text in on.seen()["said"]] == ["Ann's."]


async def test_a_refused_task_leaves_the_one_that_has_ended() -> None:
    on = Thread(GARDEN, RolePlayForm)
    await on.run({"task": "Dig", "user_role": "A", "assistant_role": "B", "specify_task": False})
    before = on.graph.get_state(CONFIG)
    for refused in ({"task": "Sow"}, {"messages": [("user", [IMAGE])], "task": "Sow"}):
        with pytest.raises((SpecError, SessionError)):
            await on.run(refused)
    assert on.graph.get_state(CONFIG) == before
    await on.run({"messages": []})
    assert on.seen()["said"] == [
        ("ai", "A", "Instruction: dig\nInput: None"),
        ("ai", "B", "Solution: dug\nNext request."),
    ]


async def test_an_assistants_settings_count_where_an_input_is_checked() -> None:
    on = Thread(["One.", "Two."])
    cook: dict[str, Any] = {"assistant_prompt": "You are a cook."}
    hi: Any = {"messages": ["Hi"]}
    then: Any = {"messages": ["And?"]}
    await on.graph.ainvoke(hi, CONFIG, context=cook)
    await on.graph.ainvoke(then | cook, CONFIG)
    with pytest.raises(SessionError):
        await on.graph.ainvoke(then | {"assistant": "Cook"}, CONFIG, context=cook)
    assert [text for _, _, text in on.seen()["said"]] == ["Hi", "One.", "And?", "Two."]


async def test_a_copy_of_the_graph_checks_its_inputs_too() -> None:
    """A copy of the graph, as LangGraph's servers make for each run, checks its inputs, too."""
    saver = InMemorySaver()
    graph = build_graph(form=ChatForm, model=ScriptedChatModel(script=["One."]))
    copy: Any = graph.copy({"checkpointer": saver}).with_config(tags=["copied"])
    await copy.ainvoke(FIRST, CONFIG)
    before = await copy.aget_state(CONFIG)
    with pytest.raises(SessionError):
        await copy.ainvoke({"assistant_prompt": "You are a cook."}, CONFIG)
    assert await copy.aget_state(CONFIG) == before


async def test_as_the_node_of_another_graph_it_refuses_what_that_gives_it() -> None:
    parent = StateGraph(MessagesState)
    parent.add_node("talk", build_graph(form=ChatForm, model=ScriptedChatModel(script=["One."])))
    parent.add_edge(START, "talk")
    parent.add_edge("talk", END)
    graph = parent.compile(checkpointer=InMemorySaver())
    with pytest.raises(SpecError, match=r"messages\.content\.0: an address"):
        await graph.ainvoke({"messages": [HumanMessage([IMAGE])]}, CONFIG)
    found: Any = await graph.ainvoke({"messages": [HumanMessage("Hi")]}, CONFIG)
    assert [one.text for one in found["messages"]][-2:] == ["Hi", "One."]
    assert "__interrupt__" not in found
