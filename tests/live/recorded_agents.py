"""Tests of agents of every kind, which `test_simulated_users` records and replays.

A copy of this file is run by pytest in another process. The environment has the addresses.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import interrupt

from duologue import Scenario
from duologue.nodes.testing import ScriptedChatModel

URL, SERVER, ENDPOINT = (os.environ[f"AGENT_{name}"] for name in ("URL", "SERVER", "ENDPOINT"))

Client = dict[str, Any]
CLIENT: Client = {"base_url": URL, "api_key": "none"}
MODEL = ChatOpenAI(base_url=URL, model="agent", api_key=lambda: "none")


def function(messages: Sequence[BaseMessage]) -> str:
    asked: Any = [{"role": "user", "content": messages[-1].text}]
    found = openai.OpenAI(**CLIENT).chat.completions.create(model="agent", messages=asked)
    return found.choices[0].message.content or ""


async def async_function(messages: Sequence[BaseMessage]) -> str:
    asked: Any = [{"role": "user", "content": messages[-1].text}]
    async with openai.AsyncOpenAI(**CLIENT) as client:
        found = await client.chat.completions.create(model="agent", messages=asked)
    return found.choices[0].message.content or ""


class Shop:
    """An object whose requests contain the ids of the messages."""

    def __call__(self, messages: Sequence[BaseMessage]) -> str:
        said = [{"role": "user", "content": one.text, "name": one.id} for one in messages]
        asked = {"model": "agent", "messages": said}
        found = httpx.post(f"{URL}/chat/completions", json=asked).json()
        return str(found["choices"][0]["message"]["content"])


def look_up(number: int) -> str:
    """Look an order up."""
    return f"Order {number} was charged twice."


def ask(state: MessagesState) -> dict[str, Any]:
    answer = MODEL.invoke(state["messages"])
    return {"messages": [answer, ("ai", f"You said {interrupt('Sure?')}.")]}


def asking_graph() -> object:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    return graph.add_edge(START, "ask").compile(checkpointer=InMemorySaver())


AGENTS: dict[str, Callable[[], object]] = {
    "function": lambda: function,
    "async function": lambda: async_function,
    "object": Shop,
    "chain": lambda: MODEL | RunnableLambda(lambda answer: answer.text),
    "chat model": lambda: MODEL,
    "agent": lambda: create_agent(MODEL, [look_up]),
    "agent with a thread": lambda: create_agent(MODEL, [look_up], checkpointer=InMemorySaver()),
    "graph that asks": asking_graph,
    "assistant of a server": lambda: RemoteGraph("shop", url=SERVER),
    "address": lambda: URL,
    "A2A endpoint": lambda: ENDPOINT,
}


@pytest.mark.parametrize("kind", AGENTS)
def test_agent(simulate: Callable[..., Any], kind: str) -> None:
    user = ScriptedChatModel(["Refund it.", "Yes!", "And now?", "###STOP###"])
    asks = {"on_interrupt": "user"} if kind in ("graph that asks", "assistant of a server") else {}
    # The user leaves some agents while they ask a question.
    scenario = Scenario("Get it.", user_errors="ignore")
    result = simulate(scenario, AGENTS[kind](), model=user, store="memory:", **asks)
    assert result.passed, result.report()
    assert len({text for name, text in result.transcript if name == "Agent"}) > 1
