"""LangGraph's runtime under `converse`: the context and the store that tools and agents read."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import InjectedStore, ToolRuntime
from langgraph.runtime import get_runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from duologue import (
    Conversation,
    Hook,
    Predicate,
    Session,
    Speaker,
    SpecError,
    aask,
    aconverse,
    alist_sessions,
    arun_batch,
    astream,
    build_graph,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.graphs import Graph
from support.results import StoredSession


@dataclass
class User:
    """The context of a run."""

    name: str


@tool
async def remember(fact: str, runtime: ToolRuntime[User, Any]) -> str:
    """Remember a fact about the user."""
    assert runtime.store is not None
    await runtime.store.aput((runtime.context.name,), "fact", {"text": fact})
    return f"{runtime.context.name} {fact}."


@tool
def recall(store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Recall the fact about the user."""
    found = store.get((get_runtime(User).context.name,), "fact")
    return "Nothing." if found is None else str(found.value["text"])


def calls(name: str, **args: str) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args=args, id=name)])


def talk(*tools: Any, **fields: Any) -> Conversation:
    return Conversation(
        "Talk.",
        [Speaker("Ann", tools=tools, **fields), Speaker("Bob")],
        end_chat={"max_iterations": 1},
    )


def told(result: StoredSession) -> list[str]:
    return [one.text for one in result.messages if isinstance(one, ToolMessage)]


ZOE = User("Zoe")
LIKES = calls("remember", fact="likes beans")


async def test_tools_of_two_sessions_share_the_store_and_each_run_has_its_context(
    tmp_path: Path,
) -> None:
    store, runtime_store = tmp_path / "sessions.db", InMemoryStore()
    options: Any = {"store": store, "runtime_store": runtime_store}
    model = ScriptedChatModel([LIKES, "I know.", "Good."])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = await aconverse(talk(remember), model=model, context=ZOE, **options)
    assert told(first) == ["Zoe likes beans."]
    for user, fact in (("Zoe", "likes beans"), ("Max", "Nothing.")):
        model = ScriptedChatModel([calls("recall"), "I know.", "Good."])
        found = await aconverse(talk(recall), model=model, context=User(user), **options)
        assert told(found) == [fact]
    # The store of the sessions contains neither the fact's value nor the context.
    assert runtime_store.search(("Zoe",))[0].value == {"text": "likes beans"}
    assert first.conversation == talk(remember)


async def test_every_way_to_run_passes_both(tmp_path: Path) -> None:
    options: Any = {"context": ZOE, "runtime_store": InMemoryStore(), "tools": [remember]}
    person = Conversation(
        "Talk.",
        [Speaker("Ann", tools=["remember"]), Speaker("Bob", replies=["human"])],
        end_chat={"max_iterations": 2},
    )
    store = tmp_path / "sessions.db"
    model = ScriptedChatModel([LIKES, "Hello."])
    waiting = [
        one async for one in astream(person, session="s", model=model, store=store, **options)
    ]
    assert waiting[-1].event == "question"
    session = Session("s", store=store)
    assert told(await session.astate()) == ["Zoe likes beans."]
    model = ScriptedChatModel([LIKES, "Hello."])
    assert told(await session.aanswer("Hi.", model=model, **options)) == ["Zoe likes beans."] * 2
    model = ScriptedChatModel([LIKES, "Hello."])
    asked = await aask(Speaker("Ann"), "Who?", model=model, store="memory:", **options)
    assert told(asked) == ["Zoe likes beans."]
    given = {"conversation": talk("remember").stored(), "vary": {"seed": [1, 2]}}
    model = ScriptedChatModel([LIKES, "I know.", "Good."] * 2)
    await arun_batch(given, name="b", concurrency=1, model=model, store=store, **options)
    batch = [one.session for one in await alist_sessions(store=store) if one.session != "s"]
    found = [told(await Session(one, store=store).astate()) for one in batch]
    assert found == [["Zoe likes beans."]] * 2


async def test_a_context_sets_no_field_of_the_conversation(tmp_path: Path) -> None:
    context = {"model": "nosuch", "temperature": 0.9, "prompts": {"rounds_left": "{count}!"}}
    seen: list[object] = []

    def reply(turn: Turn) -> str:
        seen.append(get_runtime().context)
        return "Hello."

    conversation = talk(replies=[reply])
    model = ScriptedChatModel(["Good."])
    result = await aconverse(conversation, model=model, store="memory:", context=context)
    assert result.conversation == conversation
    assert seen == [context]
    assert len(model.calls) == 1


async def test_functions_hooks_predicates_and_agents_find_both() -> None:
    seen: list[tuple[str, object, bool]] = []
    store = InMemoryStore()

    def note(who: str) -> None:
        runtime = get_runtime()
        seen.append((who, runtime.context, runtime.store is store))

    def function(turn: Turn) -> str:
        note("function")
        return "Hello."

    async def hook(turn: Turn, reply: AIMessage) -> None:
        note("hook")

    def ends(said: object) -> bool:
        note("predicate")
        return False

    @tool
    def look(runtime: ToolRuntime[User, Any]) -> str:
        """Look around."""
        note("tool of the agent")
        assert (runtime.context, runtime.store) == (ZOE, store)
        return "Seen."

    model = ScriptedChatModel([calls("look"), "Done."])
    agent = create_agent(model, [look], context_schema=User)
    conversation = Conversation(
        "Talk.",
        [
            Speaker("Ann", replies=[function], hooks=[Hook(after_speaker=hook)]),
            Speaker("Bob", replies=[agent]),
        ],
        end_chat={"max_iterations": 1, "when": Predicate(ends)},
    )
    await aconverse(conversation, store="memory:", context=ZOE, runtime_store=store)
    who = ["function", "hook", "predicate", "tool of the agent", "predicate"]
    assert seen == [(one, ZOE, True) for one in who]


@pytest.mark.parametrize("is_passed", [False, True])
async def test_an_agent_keeps_its_own_store_unless_the_run_has_one(*, is_passed: bool) -> None:
    own, passed = InMemoryStore(), InMemoryStore()
    seen: list[object] = []

    @tool
    def look(runtime: ToolRuntime[Any, Any]) -> str:
        """Look around."""
        seen.append(runtime.store)
        return "Seen."

    model = ScriptedChatModel([calls("look"), "Done.", "Good."])
    agent = create_agent(model, [look], store=own)
    options: Any = {"runtime_store": passed} if is_passed else {}
    await aconverse(talk(replies=[agent]), model=model, store="memory:", **options)
    assert seen == [passed if is_passed else own]


@pytest.mark.parametrize("name", ["invoke", "ainvoke"])
async def test_a_graph_passes_its_own_store_or_that_of_its_parent(name: str) -> None:
    own, parents = InMemoryStore(), InMemoryStore()
    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    given: Any = {"conversation": talk("remember").stored()}

    def built(**options: Any) -> Graph:
        model = ScriptedChatModel([LIKES, "I know.", "Good."])
        return build_graph(model=model, tools=[remember], **options)

    async def run(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
        if name == "invoke":
            graph.invoke(given, config, context=ZOE)
        else:
            await graph.ainvoke(given, config, context=ZOE)

    await run(built(runtime_store=own, checkpointer=InMemorySaver()))
    assert len(own.search(("Zoe",))) == 1
    builder = StateGraph(_State)
    builder.add_node("talk", built())
    builder.add_edge(START, "talk")
    await run(builder.compile(store=parents))
    assert len(parents.search(("Zoe",))) == 1
    # LangGraph's servers copy a graph with their store.
    servers = InMemoryStore()
    await run(built().copy({"store": servers}))
    assert len(servers.search(("Zoe",))) == 1


class _State(MessagesState):
    conversation: dict[str, Any]


# Errors, before a model is called


@tool("search", args_schema={"type": "object", "properties": {}})
def plain() -> str:
    """Search without a store."""
    return "Found."


async def test_a_tool_without_its_store_is_an_error_before_a_model_is_called(
    tmp_path: Path,
) -> None:
    model, store = ScriptedChatModel(["Hello.", "Good."]), tmp_path / "sessions.db"
    refusal = r"^speakers\.0\.tools: 'recall' needs a store of LangGraph; pass one as runtime_store"
    with pytest.raises(SpecError, match=refusal):
        await aconverse(talk(plain, recall), session="s", model=model, store=store)
    assert model.calls == []
    before = await aconverse(talk(plain), session="s", model=model, store=store)
    with pytest.raises(SpecError, match=refusal):
        await aconverse(talk(recall), session="s", reset=True, model=model, store=store)
    assert await Session("s", store=store).astate() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"runtime_store": "sessions.db"},
            "runtime_store: must be a store of LangGraph (a BaseStore), not str; pass the store of "
            "the sessions as store",
        ),
        (
            {"store": InMemoryStore()},
            "store: must be the path or address of the store of the sessions; pass LangGraph's "
            "store as runtime_store",
        ),
    ],
)
async def test_the_two_kinds_of_stores_are_told_apart(options: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError) as caught:
        await aconverse(talk(), **options)
    assert str(caught.value) == error
