"""Graphs of one form share only their compiled part."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs import Conversation, aconverse
from duologue.graphs.build import build_graph
from duologue.nodes.testing import ScriptedChatModel

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
