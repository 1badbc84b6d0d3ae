"""Graphs behind the real AG-UI adapter, as CopilotKit drives them over HTTP."""

import json
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from duologue.graphs import build_graph
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.graphs import Graph, RolePlayForm

from .conftest import page_blocks

# The adapter calls functions of LangGraph that are deprecated.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SOLUTION = "Solution: Dug.\nNext request."
GARDEN = ["A bed of beans.", "Instruction: Dig.\nInput: None", SOLUTION, "<CAMEL_TASK_DONE>"]


class Client:
    """A client of AG-UI that keeps the messages of its thread, as CopilotKit does."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401  # FastAPI is not always installed
        transport = httpx.ASGITransport(app)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://agent", timeout=60)
        self.messages: list[dict[str, Any]] = []
        self.streamed: list[str] = []
        self.interrupts: list[Any] = []

    async def send(self, text: str) -> None:
        """Send a message of the user, and read the events of the run."""
        self.messages.append({"id": str(uuid4()), "role": "user", "content": text})
        pieces: dict[str, str] = {}
        self.interrupts = []
        async for event in self._events():
            assert event["type"] != "RUN_ERROR", event
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                key = event["messageId"]
                pieces[key] = pieces.get(key, "") + event["delta"]
            elif event["type"] == "MESSAGES_SNAPSHOT":
                self.messages = event["messages"]
            elif event["type"] == "CUSTOM" and event["name"] == "on_interrupt":
                self.interrupts.append(event["value"])
        self.streamed = [*pieces.values()]

    async def _events(self) -> AsyncIterator[dict[str, Any]]:
        empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        body = {"threadId": "thread", "runId": str(uuid4()), "messages": self.messages, **empty}
        async with self._http.stream("POST", "/", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    @property
    def texts(self) -> list[str]:
        return [str(one.get("content")) for one in self.messages]


def serve_graph(graph: Graph) -> Client:
    """Serve a graph by the adapter, and return a client of it."""
    # Imported here, because the packages are not among those of the other tests.
    app, adapter = import_module("fastapi").FastAPI(), import_module("ag_ui_langgraph")
    agent = adapter.LangGraphAgent(name="agent", graph=graph)
    adapter.add_langgraph_fastapi_endpoint(app, agent, "/")
    return Client(app)


def client_of(form: Any, script: Sequence[Any], **more: Any) -> Client:  # noqa: ANN401
    model = ScriptedChatModel([*script])
    return serve_graph(build_graph(form=form, model=model, checkpointer=InMemorySaver(), **more))


async def test_the_server_of_the_page_answers_three_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (program,) = [code for code in page_blocks("py") if "ag_ui_langgraph" in code]
    with ScriptedServer(["One.", "Two.", "Three."], models=["scripted"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        names: dict[str, Any] = {}
        exec(program, names)  # noqa: S102  # the page's own program
        client = Client(names["app"])
        for text, answer in {"1?": "One.", "2?": "Two.", "3?": "Three."}.items():
            await client.send(text)
            assert (client.streamed, client.interrupts) == ([answer], [])
        assert client.texts == ["1?", "One.", "2?", "Two.", "3?", "Three."]


async def test_each_task_ends_with_its_output_and_no_done_token_is_shown() -> None:
    client = client_of(RolePlayForm, GARDEN * 3)
    for task in ("A garden.", "A balcony.", "A park."):
        await client.send(task)
        assert client.streamed == [SOLUTION]
        assert client.texts[-3:] == [task, *GARDEN[1:3]]


async def test_an_approval_interrupts() -> None:
    @tool
    def water(bed: str) -> str:
        """Water a bed."""
        return f"{bed} is wet"

    call = ScriptedToolCall(name="water", args={"bed": "left"}, id="1")
    graph = build_graph(
        conversation={"kind": "chat", "tools": ["water"], "interrupt_on": {"water": True}},
        model=ScriptedChatModel([Reply(tool_calls=[call])]),
        tools=[water],
        checkpointer=InMemorySaver(),
    )
    client = serve_graph(graph)
    await client.send("Water it.")
    assert "water" in str(client.interrupts)
