"""Messages that a caller writes to a thread's state, and the run that answers them."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from duologue import SpecError, build_graph, chat, role_play
from duologue.graphs.build import Graph
from duologue.nodes.testing import Reply, ScriptedChatModel

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
HELLO: Any = {"messages": [HumanMessage("Hello")]}
MORE: Any = {"messages": [HumanMessage("And bees?")]}


def _graph(*script: str | Reply) -> Graph:
    model = ScriptedChatModel(script=[*script])
    return build_graph(conversation=chat(), model=model, checkpointer=InMemorySaver())


def _texts(graph: Graph) -> list[str]:
    messages: list[AnyMessage] = graph.get_state(CONFIG).values["messages"]
    return [one.text for one in messages]


@pytest.mark.parametrize(
    "update",
    [
        MORE,
        {"messages": "And bees?"},
        {"messages": [("user", "And bees?")]},
        {"messages": [{"role": "user", "content": "And bees?"}]},
        Command(update=MORE),
    ],
)
def test_a_message_written_to_the_state_is_answered(update: Any) -> None:  # noqa: ANN401
    """The next run without an input answers the message, in each form of it."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, update)
    graph.invoke(None, CONFIG)
    assert _texts(graph) == ["Hello", "Hi.", "And bees?", "They dance."]
    graph.invoke(None, CONFIG)
    assert len(_texts(graph)) == 4


async def test_a_finished_session_answers_a_written_message() -> None:
    """The session continues, as after a run's input."""
    graph = _graph("Hi.", "They dance.")
    await graph.ainvoke(HELLO, CONFIG)
    await graph.ainvoke({"messages": ["exit"]}, CONFIG)
    await graph.aupdate_state(CONFIG, MORE)
    await graph.ainvoke(None, CONFIG)
    assert _texts(graph) == ["Hello", "Hi.", "And bees?", "They dance."]


def test_messages_written_in_two_updates_are_joined() -> None:
    """A later update that adds no user's message does not hide an earlier one."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, MORE)
    graph.update_state(CONFIG, {"messages": [HumanMessage("And wasps?"), AIMessage("A note.")]})
    graph.invoke(None, CONFIG)
    assert "And bees?\n\nAnd wasps?" in _texts(graph)
    assert _texts(graph)[-1] == "They dance."


def test_a_message_that_replaces_another_one_is_answered() -> None:
    """One update may remove the newest messages and add a new one."""
    graph = _graph("Hi.", "They dance.")
    graph.invoke(HELLO, CONFIG)
    known = graph.get_state(CONFIG).values["messages"]
    removed = [RemoveMessage(id=one.id) for one in known]
    graph.update_state(CONFIG, {"messages": [*removed, *MORE["messages"]]})
    graph.invoke(None, CONFIG)
    assert _texts(graph) == ["And bees?", "They dance."]


def test_a_written_message_cancels_an_approval() -> None:
    """The call does not run, and the message is answered."""

    def look() -> str:
        """Look."""
        raise AssertionError

    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    graph = build_graph(
        conversation=chat(assistant={"tools": ["look"], "interrupt_on": {"look": True}}),
        model=ScriptedChatModel(script=[call, "They dance."]),
        checkpointer=InMemorySaver(),
        tools=[look],
    )
    graph.invoke(HELLO, CONFIG)
    assert graph.get_state(CONFIG).interrupts
    graph.update_state(CONFIG, MORE)
    graph.invoke(None, CONFIG)
    assert not graph.get_state(CONFIG).interrupts
    assert _texts(graph)[2:] == [
        "Not run: User sent a message instead.",
        "And bees?",
        "They dance.",
    ]


def test_a_written_task_begins_a_new_conversation() -> None:
    """If no person takes part, the message is a new task, as a run's input is."""
    tasks: list[str] = []

    def reply(prompt: list[Any]) -> str:
        tasks.append(str(prompt[0]))
        return "Instruction: Go on."

    spec = role_play("Cook", "Gardener", "Dig", specify_task=False, max_iterations=1)
    model = ScriptedChatModel(script=reply)
    graph = build_graph(conversation=spec, model=model, checkpointer=InMemorySaver())
    graph.invoke({"messages": ["Dig a bed"]}, CONFIG)
    graph.update_state(CONFIG, {"messages": ["Plant a tree"]})
    graph.invoke(None, CONFIG)
    assert "Plant a tree" in tasks[-1]
    assert "Dig a bed" not in tasks[-1]


def test_an_invalid_message_is_not_written() -> None:
    """A blank message is refused, and the thread is unchanged."""
    graph = _graph("Hi.")
    graph.invoke(HELLO, CONFIG)
    before = graph.get_state(CONFIG)
    with pytest.raises(SpecError, match="must not be empty"):
        graph.update_state(CONFIG, {"messages": [HumanMessage(" ")]})
    assert graph.get_state(CONFIG) == before


def test_a_named_node_is_kept() -> None:
    """The caller of an update may name the node, and thus the next one."""
    graph = _graph("Hi.")
    graph.invoke(HELLO, CONFIG)
    graph.update_state(CONFIG, MORE, as_node="assistant_agent")
    assert graph.get_state(CONFIG).next == ()
