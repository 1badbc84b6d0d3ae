"""LangGraph's streams and traces show each reply of a conversation once, and nothing else."""

from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from duologue.graphs import Conversation, build_graph
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.fork_help import FUNCTIONS, plain

CONFIG = RunnableConfig(configurable={"thread_id": "t"}, recursion_limit=200)
CALL = ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")
SCRIPT: list[Any] = [
    *("Plan a park.", "Seven.", "A1", Reply(text="Let me see.", tool_calls=[CALL]), "B1"),
    {"objectives_left": [], "complete": True},
]
SPOKEN = ["A1", "Let me see.", "Monday: sun", "B1"]


def everything(**fields: Any) -> Conversation:
    """Return a conversation with all internal messages except drafts."""
    return plain(
        speakers=[
            {"name": "Ann", "private_opening": {"prompt": "Choose a number."}},
            {"name": "Ben", "checks_completion": True, "tools": ["weather"]},
        ],
        task_specification={},
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 1},
        **fields,
    )


class Talks(MessagesState):
    """The state of a user's program."""

    conversation: dict[str, Any]


def graph_of(model: ScriptedChatModel, *, has_parent: bool) -> Any:  # noqa: ANN401
    if not has_parent:
        return build_graph(model=model, checkpointer=InMemorySaver(), **FUNCTIONS)
    parent = StateGraph(Talks)
    for node, after in (("first", "second"), ("second", END)):
        parent.add_node(node, build_graph(model=model, **FUNCTIONS))
        parent.add_edge(node, after)
    parent.add_edge(START, "first")
    return parent.compile(checkpointer=InMemorySaver())


@pytest.mark.part(3)
@pytest.mark.parametrize("has_parent", [False, True], ids=["alone", "two in a parent"])
@pytest.mark.parametrize("subgraphs", [False, True], ids=["own", "subgraphs"])
@pytest.mark.parametrize("streaming", [True, False], ids=["pieces", "whole"])
async def test_only_what_is_said_is_streamed_and_once(
    has_parent: bool, subgraphs: bool, streaming: bool
) -> None:
    model = ScriptedChatModel(script=SCRIPT * (1 + has_parent))
    model.disable_streaming = not streaming
    given = {"conversation": everything().stored()}
    shown: dict[str, str] = {}
    values: Any = {}
    async for namespace, mode, found in graph_of(model, has_parent=has_parent).astream(
        given, CONFIG, stream_mode=["messages", "values"], subgraphs=True
    ):
        if namespace and not subgraphs:
            continue
        if mode == "messages":
            piece = found[0]
            key, is_piece = str(piece.id), isinstance(piece, AIMessageChunk)
            shown[key] = (shown.get(key, "") if is_piece else "") + piece.text
        elif not namespace:
            values = found
    kept = {one.id: one.text for one in values["messages"]}
    assert [*kept.values()] == SPOKEN * (1 + has_parent)
    if subgraphs or not has_parent:
        assert shown == kept


class Names(AsyncCallbackHandler):
    """A callback that records the names of model calls."""

    def __init__(self) -> None:
        self.found: list[str] = []

    async def on_chat_model_start(self, *_: Any, name: str | None = None, **__: Any) -> None:
        self.found.append(str(name))


@pytest.mark.parametrize("streaming", [True, False], ids=["pieces", "whole"])
async def test_traces_and_messages_tell_who_spoke_by_which_model_for_how_much(
    streaming: bool,
) -> None:
    model = ScriptedChatModel(script=[*SCRIPT[:-1], "Nothing.", "Yes."])
    model.disable_streaming = not streaming
    graph, names = graph_of(model, has_parent=False), Names()
    given = {"conversation": everything(judge={"form": "two_questions"}).stored()}
    async for _ in graph.astream(given, {**CONFIG, "callbacks": [names]}, stream_mode="messages"):
        pass
    assert names.found == [
        *("Task specification", "Ann speaks", "Ann speaks", "Ben speaks", "Ben speaks"),
        *("Ben judges", "Ben judges"),
    ]
    values = (await graph.aget_state(CONFIG)).values
    answers = [
        one for one in (*values["messages"], *values["unspoken"]) if isinstance(one, AIMessage)
    ]
    assert len(answers) == len(names.found) - 1
    assert {one.response_metadata["model_name"] for one in answers} == {"scripted"}
    (used,) = values["usage"].values()
    told = [one.usage_metadata for one in answers]
    # The specified task is no speaker's message.
    assert 0 < sum(one["output_tokens"] for one in told if one) < used["output_tokens"]


async def test_of_an_agent_that_is_no_graph_the_reply_alone_is_streamed_and_once() -> None:
    """Only the reply of a plain agent is streamed, once, however many models the agent calls."""
    model = ScriptedChatModel(script=["Red or blue?", "Blue.", "A secret."])
    agent: Any = (
        RunnableLambda(lambda heard: model.invoke([model.invoke(heard)])) | StrOutputParser()
    )
    tells = {"name": "Ben", "replies": [model], "speaks_to": ["Ann"]}
    speakers = [{"name": "Ann", "replies": [agent.with_config(run_name="both")]}, tells]
    graph = build_graph(checkpointer=InMemorySaver())
    fields = {"task": "Choose.", "speakers": speakers, "end_chat": {"max_iterations": 1}}
    given: Any = {"conversation": Conversation.model_validate(fields)}
    streamed: Any = graph.astream(given, CONFIG, stream_mode="messages")
    assert [piece.text async for piece, _ in streamed] == ["Blue."]
