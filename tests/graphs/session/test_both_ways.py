"""The graph as a component: with and without an event loop, and as part of a user's graph."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from duologue import Conversation, ModelError, Speaker, aconverse, build_graph, chat
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.graphs import Graph

CONFIG: RunnableConfig = {"configurable": {"thread_id": "one"}}
CONVERSATION: Any = {
    "conversation": chat("Hi.", tools=["look", "ask"], max_iterations=1).stored(),
}
SAID = ["Hi.", "", "Seen.", "They say Bob.", "So: Seen. They say Bob."]


def answer(prompt: Prompt) -> Line:
    """Call both tools, then repeat their results."""
    if prompt[-1]["role"] != "tool":
        made = [
            ScriptedToolCall(name="look", args={}, id="c1"),
            ScriptedToolCall(name="ask", args={"what": "Who?"}, id="c2"),
        ]
        return Reply(tool_calls=made)
    return "So: " + " ".join(one["content"] for one in prompt if one["role"] == "tool")


class Tools:
    """Two tools: one counts its calls; the other asks a person and uses the runtime."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def all(self) -> list[BaseTool]:
        @tool
        def look() -> str:
            """Look."""
            self.looks += 1
            return "Seen."

        @tool
        async def ask(what: str, runtime: ToolRuntime[Any]) -> str:
            """Ask a person."""
            if runtime.store is not None:
                await runtime.store.aput(("seen",), "by", {"user": runtime.context["user"]})
            return f"They say {interrupt(what)}."

        return [look, ask]


@pytest.fixture
def tools() -> Tools:
    return Tools()


def built(tools: Tools, **more: Any) -> Graph:
    return build_graph(model=ScriptedChatModel(script=answer), tools=tools.all, **more)


class Parent(TypedDict, total=False):
    """The state of a graph that has a conversation as a part."""

    messages: Annotated[list[AnyMessage], add_messages]
    conversation: dict[str, Any]


def in_loop(graph: Any, given: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = asyncio.run(graph.ainvoke(given, CONFIG, **more))
    return found


def in_thread(graph: Any, given: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = graph.invoke(given, CONFIG, **more)
    return found


BOTH = [pytest.param(in_thread, id="invoke"), pytest.param(in_loop, id="ainvoke")]
Run = Callable[..., dict[str, Any]]


def texts(state: dict[str, Any]) -> list[str]:
    return [message.text for message in state["messages"]]


@pytest.mark.parametrize("begin", BOTH)
@pytest.mark.parametrize("go_on", BOTH)
def test_it_is_begun_and_gone_on_with_either_way_and_no_finished_call_runs_again(
    begin: Run, go_on: Run, tools: Tools
) -> None:
    graph = built(tools, checkpointer=InMemorySaver())
    (asked,) = begin(graph, CONVERSATION)["__interrupt__"]
    assert asked.value == "Who?"
    assert graph.get_state(CONFIG).next == ("tool_executor",)
    ended = go_on(graph, Command(resume="Bob"))
    assert texts(ended) == SAID
    assert ended["outcome"]["reasons"] == ["max_iterations"]
    assert tools.looks == 1


def test_what_is_said_is_streamed_in_pieces_without_a_loop(tools: Tools) -> None:
    graph = built(tools, checkpointer=InMemorySaver())
    graph.invoke(CONVERSATION, CONFIG)
    found: dict[str, list[Any]] = {}
    for mode, part in graph.stream(
        Command(resume="Bob"), CONFIG, stream_mode=["messages", "updates", "custom"]
    ):
        found.setdefault(mode, []).append(part)
    pieces = [chunk.text for chunk, about in found["messages"] if about.get("purpose")]
    assert "".join(pieces) == SAID[-1]
    assert len(pieces) > 3
    assert [name for part in found["updates"] for name in part][-1] == "assistant_agent"


@pytest.mark.parametrize("run", BOTH)
def test_a_subgraph_asks_through_its_parent_whose_store_and_context_reach_tools(
    run: Run, tools: Tools
) -> None:
    builder = StateGraph(Parent)
    builder.add_node("talk", built(tools))
    builder.add_edge(START, "talk")
    store = InMemoryStore()
    parent = builder.compile(checkpointer=InMemorySaver(), store=store)
    # A context of the parent may be any object.
    context = {"user": "Zoe", "model": None}
    # LangGraph (1.2.22) reports a task's interrupt to its parent twice.
    asked = {
        one.id: one.value for one in run(parent, CONVERSATION, context=context)["__interrupt__"]
    }
    assert [*asked.values()] == ["Who?"]
    assert texts(run(parent, Command(resume="Bob"), context=context)) == SAID
    kept = store.get(("seen",), "by")
    assert kept is not None
    assert kept.value == {"user": "Zoe"}
    assert tools.looks == 1


def test_it_is_called_in_a_node_of_a_graph_that_runs_in_a_loop(tools: Tools) -> None:
    """A synchronous node, which LangGraph runs in a thread, can call the graph."""
    spec = chat("Hi.", tools=["look"], max_iterations=1).stored()
    model = ScriptedChatModel(script=["Good day."])

    def node(state: Parent) -> dict[str, Any]:
        graph = build_graph(model=model, tools=tools.all)
        given: Any = {"conversation": spec}
        return {"messages": graph.invoke(given)["messages"]}

    builder = StateGraph(Parent)
    builder.add_node("talk", node)
    builder.add_edge(START, "talk")
    assert texts(in_loop(builder.compile(), {"messages": []})) == ["Hi.", "Good day."]


@pytest.mark.parametrize("begin", BOTH)
@pytest.mark.parametrize("has_parent", [False, True], ids=["alone", "in a parent"])
def test_agents_speak_and_ask_either_way(begin: Run, has_parent: bool) -> None:
    """Agents reply and ask with and without an event loop, with either kind of checkpointer."""

    def think(state: MessagesState) -> dict[str, Any]:
        thought = ScriptedChatModel(script=["Which colour?"]).invoke(state["messages"])
        return {"messages": [thought]}

    async def paint(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['messages'][-1].text} {interrupt('Well?')}")]}

    painter = StateGraph(MessagesState).add_sequence([think, paint])
    agent = painter.add_edge(START, "think").compile(name="painter")
    with SqliteSaver.from_conn_string(":memory:") as threads:
        saver = threads if begin is in_thread else InMemorySaver()
        graph: Any = build_graph(agents={"painter": agent}, checkpointer=saver)
        if has_parent:
            parent = StateGraph(Parent).add_node("talk", build_graph(agents={"painter": agent}))
            graph = parent.add_edge(START, "talk").compile(checkpointer=saver)
        ann, ben = (
            Speaker(name="Ann", replies=[agent]),
            Speaker(name="Ben", replies=[{"kind": "text", "text": "Fine."}]),
        )
        talk = Conversation(task="Paint.", speakers=[ann, ben], end_chat={"max_iterations": 1})
        asked = begin(graph, {"conversation": talk.stored()})["__interrupt__"]
        assert {one.value for one in asked} == {"Well?"}
        assert texts(begin(graph, Command(resume="Red."))) == ["Which colour? Red.", "Fine."]


def test_an_error_is_raised_as_it_is(tools: Tools) -> None:
    graph = build_graph(model=ScriptedChatModel(script=[ValueError("no line")]), tools=tools.all)
    with pytest.raises(ValueError, match="no line"):
        graph.invoke(CONVERSATION)


def test_the_conversation_may_be_the_object_itself_with_what_it_brings(tools: Tools) -> None:
    """The input may be the conversation object, also to continue it with another graph."""
    talk = chat("Hi.", tools=tools.all[:1], max_iterations=1)
    made = ScriptedToolCall(name="look", args={}, id="c1")
    model = ScriptedChatModel(script=[ModelError("no model"), Reply(tool_calls=[made]), "Fine."])
    saver = InMemorySaver()
    with pytest.raises(ModelError):
        in_thread(build_graph(model=model, checkpointer=saver), {"conversation": talk})
    graph = build_graph(model=model, checkpointer=saver)
    given: Any = {"conversation": talk}
    assert texts(graph.invoke(given, CONFIG)) == ["Hi.", "", "Seen.", "Fine."]
    # The same conversation again is the same session, which has ended.
    graph.invoke(given, CONFIG)
    assert len(model.calls) == 3


# Graphs of one form share only their compiled part

LINES = ["Beans first, I would say.", "Peas go next to them.", "Then we need a fence.", "Agreed."]

TALK: dict[str, Any] = {
    "task": "Plan a garden",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 2, "when": {"kind": "predicate", "name": "over"}},
}


def after(count: int) -> Callable[[Sequence[BaseMessage]], bool]:
    """Return a predicate that has the same name but another limit in each graph."""

    def over(messages: Sequence[BaseMessage]) -> bool:
        return len(messages) >= count

    return over


async def test_graphs_that_run_at_once_keep_their_own_functions_and_models() -> None:
    models = [ScriptedChatModel([f"{number}: {line}" for line in LINES]) for number in range(1, 5)]
    runs = [
        aconverse(TALK, model=model, predicates={"over": after(number)}, store=f"memory:{number}")
        for number, model in enumerate(models, start=1)
    ]
    for number, result in enumerate(await asyncio.gather(*runs), start=1):
        assert [text[:1] for _, text in result.transcript] == [str(number)] * number


def test_graphs_in_threads_keep_their_own_functions_and_models() -> None:
    found: dict[int, int] = {}

    def run(number: int) -> None:
        graph = build_graph(
            model=ScriptedChatModel(LINES), predicates={"over": after(number)}, name=f"g{number}"
        )
        found[number] = len(graph.invoke({"conversation": TALK})["messages"])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: 1, 2: 2, 3: 3, 4: 4}


async def test_a_graph_that_runs_within_another_keeps_its_own_functions() -> None:
    inner = build_graph(model=ScriptedChatModel(LINES), predicates={"over": after(1)})

    async def ask(turn: object) -> str:
        state = await inner.ainvoke({"conversation": TALK})
        return f"They said {len(state['messages'])}: {state['messages'][-1].text}"

    outer = Conversation.model_validate(
        {
            **TALK,
            "speakers": [
                {"name": "Ann", "replies": [{"kind": "function", "name": "ask"}]},
                {"name": "Bob"},
            ],
        }
    )
    model = ScriptedChatModel(LINES[1:])
    result = await aconverse(
        outer,
        model=model,
        store="memory:",
        functions={"ask": ask},
        predicates={"over": after(3)},
    )
    assert [name for name, _ in result.transcript] == ["Ann", "Bob", "Ann"]
    assert result.transcript[0][1].startswith("They said 1")


async def test_a_copy_of_a_graph_runs_with_its_functions() -> None:
    graph = build_graph(model=ScriptedChatModel(LINES), predicates={"over": after(2)})
    copied = graph.copy({"checkpointer": InMemorySaver(), "name": "copied"})
    config: Any = {"configurable": {"thread_id": "one"}}
    state = await copied.ainvoke({"conversation": TALK}, config)
    assert (len(state["messages"]), copied.name, graph.checkpointer) == (2, "copied", None)


@pytest.mark.exhaustive
def test_a_graph_that_nobody_uses_is_freed_with_its_models() -> None:
    model = ScriptedChatModel(LINES)
    graph = build_graph(model=model, predicates={"over": after(1)})
    graph.invoke({"conversation": TALK})
    known = weakref.ref(model), weakref.ref(graph)
    del model, graph
    gc.collect()
    assert [one() for one in known] == [None, None]


def test_a_checkpointer_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="Invalid checkpointer"):
        build_graph(checkpointer="sessions.db")  # type: ignore[arg-type]
