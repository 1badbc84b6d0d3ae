"""A graph of LangGraph as users write it: an edge that looks for the word in the last message."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

Rule = Callable[[dict[str, Any]], str | None]


class Said(TypedDict):
    texts: Annotated[list[str], operator.add]
    ended: bool


def begin(variant: str, header: dict[str, Any]) -> Rule:
    """Return the rule for a dialogue."""
    assert variant == "by_hand"
    words = [word["token"] for word in header["words"]]

    def route(state: Said) -> str:
        return END if any(word in state["texts"][-1] for word in words) else "next"

    builder = StateGraph(Said)
    builder.add_node("speak", lambda state: {"ended": True})
    builder.add_node("next", lambda state: {"ended": False})
    builder.add_edge(START, "speak")
    builder.add_conditional_edges("speak", route, {END: END, "next": "next"})
    builder.add_edge("next", END)
    graph = builder.compile()

    def stops(turn: dict[str, Any]) -> str | None:
        return "end" if graph.invoke({"texts": [turn["text"]], "ended": False})["ended"] else None

    return stops
