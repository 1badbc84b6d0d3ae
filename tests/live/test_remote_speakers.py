"""Graphs on a real LangGraph server as speakers, by LangGraph's own client."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client

from duologue.graphs import Conversation, MaxMessages, Result, Session, Speaker, aconverse

from .conftest import DevServer, serve_graph

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

ECHO = """
from langchain_core.messages import AIMessage
from langgraph.graph import MessagesState, StateGraph

async def echo(state):
    seen = state["messages"]
    return {"messages": [AIMessage(f"{len(seen)} {seen[0].text[:11]}")]}

graph = StateGraph(MessagesState)
graph.add_node(echo).set_entry_point("echo").set_finish_point("echo")
graph = graph.compile()
"""
"""A graph that replies with the number of messages in its state, and the start of the first."""


@pytest.fixture(scope="module")
def echo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """Yield a dev server with the graph `ECHO`."""
    with serve_graph("echo", ECHO, tmp_path_factory.mktemp) as server:
        yield server


async def threads(server: DevServer) -> dict[str, list[tuple[str, str]]]:
    """Return the messages of all threads of the server, as types and texts, by thread id."""
    async with get_client(url=server.url) as client:
        found = await client.threads.search(limit=100)
    return {
        one["thread_id"]: [(said["type"], said["content"]) for said in one["values"]["messages"]]
        for one in found
        if isinstance(one["values"], dict)
    }


async def test_each_remote_speaker_has_a_thread_with_its_view_of_the_session(
    echo_server: DevServer, tmp_path: Path
) -> None:
    remote = RemoteGraph("echo", url=echo_server.url)
    talk = Conversation(
        "Count.",
        [
            Speaker("Ann", "You are Ann.", replies=[remote]),
            Speaker("Ben", "You are Ben.", replies=[remote]),
        ],
        end_chat=MaxMessages(4),
    )

    async def run(session: str | None = None) -> tuple[Result, dict[str, list[tuple[str, str]]]]:
        before = await threads(echo_server)
        result = await aconverse(talk, session=session, store=tmp_path / "s.db")
        after = await threads(echo_server)
        return result, {key: said for key, said in after.items() if key not in before}

    result, made = await run()
    texts = [text for _, text in result.transcript]
    assert texts == ["2 You are Ann", "2 You are Ben", "4 You are Ann", "4 You are Ben"]
    for said in made.values():
        assert [kind for kind, _ in said] == ["system", "human", "ai", "human", "ai"]
    replies = [[text for kind, text in said if kind == "ai"] for said in made.values()]
    assert sorted(replies) == [texts[::2], texts[1::2]]
    # Servers accept these alone.
    assert all(str(UUID(thread)) == thread for thread in made)

    _, first = await run("count")
    await Session("count", store=tmp_path / "s.db").adelete()
    again, second = await run("count")
    assert len(first) == len(second) == 2
    assert [text for _, text in again.transcript] == texts
