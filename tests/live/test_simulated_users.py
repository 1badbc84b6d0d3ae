"""Simulations of an agent on a real LangGraph server: its thread, calls, interrupts and state."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client

from duologue import AgentError, Scenario, SpecError, asimulate, simulate
from duologue.graphs.scenarios import SimulationResult
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer

from .conftest import DevServer, serve_graph

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

SHOP = """
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

class State(MessagesState):
    refunds: int

async def look_up(state):
    if any(one.type == "tool" for one in state["messages"]):
        return {}
    call = {"name": "get_order", "args": {"number": 1042}, "id": "a"}
    result = ToolMessage("charged twice", tool_call_id="a")
    return {"messages": [AIMessage("", tool_calls=[call]), result]}

async def reply(state):
    said = state["messages"]
    if said[-1].type != "tool":
        return {"messages": [AIMessage(f"I know {len(said)} messages.")]}
    answer = interrupt("Shall I refund it?")
    return {"messages": [AIMessage(f"You said {answer}")], "refunds": 1}

graph = StateGraph(State)
graph.add_node(look_up).add_node(reply)
graph.add_edge("__start__", "look_up").add_edge("look_up", "reply")
graph = graph.compile()
"""
"""A graph that calls a tool and asks a question in its first turn."""


@pytest.fixture(scope="module")
def shop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """Yield a dev server with the graph `SHOP`."""
    with serve_graph("shop", SHOP, tmp_path_factory.mktemp) as server:
        yield server


async def a2a_address(server: DevServer) -> str:
    async with get_client(url=server.url) as client:
        (assistant,) = await client.assistants.search(graph_id="shop")
    return f"a2a:{server.url}/a2a/{assistant['assistant_id']}"


def play(server: DevServer, *says: str, **options: Any) -> SimulationResult:
    agent = RemoteGraph("shop", url=server.url)
    model = ScriptedChatModel([*says, "###STOP###"])
    return simulate(Scenario("Get a refund."), agent, model=model, store="memory:", **options)


def test_the_user_answers_the_interrupts_of_an_agent_on_a_server(shop_server: DevServer) -> None:
    result = play(shop_server, "Refund it.", "Yes!", "And now?", on_interrupt="user")
    texts = [text for name, text in result.transcript if name == "Agent" and text]
    assert texts == ["Shall I refund it?", "You said Yes!", "I know 5 messages."]
    assert result.tool_calls() == [("get_order", {"number": 1042})]
    assert result.agent_state["refunds"] == 1
    assert result.passed


def test_a_function_answers_the_interrupts_of_an_agent_on_a_server(shop_server: DevServer) -> None:
    result = play(shop_server, "Refund it.", on_interrupt=lambda value: f"to {value!r}: yes")
    assert result.transcript[-2][1] == "You said to 'Shall I refund it?': yes"
    assert result.called("get_order", number=1042)
    with pytest.raises(SpecError, match="on_interrupt: the agent 'shop' asks 'Shall I refund it"):
        play(shop_server, "Refund it.")


async def test_an_a2a_endpoint_is_an_agent_with_one_context(shop_server: DevServer) -> None:
    # The server accepts only the id of an assistant, which is found by its name.
    agent = f"a2a:{shop_server.url}/a2a/shop"
    model = ScriptedChatModel(["Refund it.", "Yes!", "And now?", "###STOP###"])
    result = await asimulate(Scenario("Get a refund."), agent, model=model, store="memory:")
    texts = [text for name, text in result.transcript if name == "Agent"]
    assert texts == ["Shall I refund it?", "You said Yes!", "I know 5 messages."]
    assert (result.agent_state, result.tool_calls()) == (None, [])
    model = ScriptedChatModel(["Refund it."])
    with pytest.raises(AgentError, match=r"the A2A endpoint http\S+ does not reply: it answered"):
        await asimulate(Scenario("Get a refund."), f"{agent}s", model=model, store="memory:")


async def test_agents_of_every_kind_are_replayed_by_another_process_without_their_servers(
    shop_server: DevServer, tmp_path: Path
) -> None:
    tests = tmp_path / "test_agents.py"
    tests.write_bytes(Path(__file__).with_name("recorded_agents.py").read_bytes())
    endpoint = await a2a_address(shop_server)
    served = {**os.environ, "AGENT_SERVER": shop_server.url, "AGENT_ENDPOINT": endpoint}

    def recorded(mode: str, *selected: str) -> str:
        command = [sys.executable, "-m", "pytest", tests.name, "--simulate-record", mode, *selected]
        command += ["-p", "no:xdist", "-W", "ignore::pytest.PytestDeprecationWarning"]
        found = run(command, cwd=tmp_path, env=served, capture_output=True, text=True, check=False)
        return found.stdout + found.stderr

    with ScriptedServer(lambda prompt: f"I see {prompt}.", models=["agent"]) as server:
        served["AGENT_URL"] = server.url
        out = await asyncio.to_thread(recorded, "new")
        assert " 11 passed" in out, out
    out = await asyncio.to_thread(recorded, "none")
    assert " 11 passed" in out, out
    # Each kind is the first one of a process that uses a client.
    for kind in ("address", "A2A"):
        out = await asyncio.to_thread(recorded, "none", "-k", kind)
        assert " 1 passed" in out, out
