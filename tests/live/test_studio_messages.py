"""The chat protocol on the real dev server, with the requests of chats, agents and supervisors."""

import asyncio
from collections import Counter
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient

from support.graphs import forms_by_kind
from support.tables import read_rows

from .conftest import mcp_session, new_thread, run_graph, text_of

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

GROUP: dict[str, Any] = {
    "speakers": [
        {"name": "Ann", "task": "Sow.", "checks_completion": True},
        {"name": "Bob", "task": "Reap."},
    ],
    "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 6},
}
BESIDE: dict[str, dict[str, Any]] = read_rows(__file__, "beside")
"""The fields of each graph's input in addition to a message."""

ANSWERS = read_rows(__file__, "answers")
"""The first words of each graph's answer."""


def user(text: str, message_id: str | None = None) -> dict[str, Any]:
    """Return an input in the form of agent-chat-ui."""
    said = {"type": "human", "content": [{"type": "text", "text": text}]}
    return {"messages": [said | {"id": message_id or str(uuid4())}]}


def texts(found: dict[str, Any]) -> list[str]:
    return [text_of(message) for message in found["messages"]]


class Shown:
    """The display of a client that joins pieces by their ids, as `useStream` does."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.streamed: dict[str, str] = {}
        self.most: Counter[str] = Counter()

    def take(self, event: str, data: Any) -> None:  # noqa: ANN401
        mode = event.split("|")[0]
        if mode == "messages":
            piece, _ = data
            begun = self.messages.get(piece["id"], "") if "Chunk" in piece["type"] else ""
            self.messages[piece["id"]] = begun + text_of(piece)
            self.streamed[piece["id"]] = self.messages[piece["id"]]
        elif mode == "values" and "messages" in data and "|" not in event:
            self.values = data
            self.messages = {one["id"]: text_of(one) for one in data["messages"]}
        self.most |= Counter(self.messages.values())


async def test_each_reply_is_shown_once_in_every_stream_mode(client: LangGraphClient) -> None:
    """A client that joins pieces by their ids shows each text once, and all of the thread."""
    await asyncio.gather(*(_shown_once(client, graph) for graph in BESIDE))


async def _shown_once(client: LangGraphClient, graph: str) -> None:
    shown = Shown()
    on = await new_thread(client)
    given = user("Begin.", "mine") | BESIDE[graph]
    modes: Any = ["values", "updates", "messages-tuple", "events", "debug", "custom", "tasks"]
    async for part in client.runs.stream(
        on, graph, input=given, stream_mode=[*modes, "checkpoints"], stream_subgraphs=True
    ):
        assert part.event != "error", part.data
        shown.take(part.event, part.data)
    state: Any = await client.threads.get_state(on)
    kept = {one["id"]: text_of(one) for one in state["values"]["messages"]}
    assert shown.messages == kept
    held = Counter(kept.values())
    assert all(number <= held[text] for text, number in shown.most.items() if held[text])
    assert next(iter(kept)) == "mine"
    # Every displayed text is kept, so no done token and no rewritten task is displayed.
    assert {text for key, text in shown.streamed.items() if kept.get(key) != text} == set()
    assert list(kept.values())[-1].startswith(ANSWERS[graph])


async def test_a_person_writes_messages_until_it_ends_and_after_that(
    client: LangGraphClient,
) -> None:
    await asyncio.gather(*(_writes(client, graph) for graph in ("chat", "user_proxy")))


async def _writes(client: LangGraphClient, graph: str) -> None:
    on = await new_thread(client)
    await run_graph(client, on, user("One", "a") | BESIDE[graph], graph)
    assert (await client.threads.get(on))["status"] == "idle"
    found = await run_graph(client, on, user("Two", "b"), graph)
    assert texts(found) == ["One", "I count 0.", "Two", "I count 1."]
    assert [one["id"] for one in found["messages"]][::2] == ["a", "b"]
    found = await run_graph(client, on, user("exit"), graph)
    assert found["outcome"]["reasons"] == ["quit"]
    image = {"type": "image_url", "image_url": {"url": "https://example.org/bee.png"}}
    found = await run_graph(client, on, {"messages": [{"role": "user", "content": [image]}]}, graph)
    assert found["__error__"]["message"].startswith("messages.content.0: an address")
    found = await run_graph(client, on, {"messages": [{"role": "user", "content": "Three"}]}, graph)
    assert texts(found)[-2:] == ["Three", "I count 2."]


async def rpc(client: LangGraphClient, graph: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message to a graph by A2A."""
    (assistant,) = await client.assistants.search(graph_id=graph)
    sent = {"role": "user", "messageId": str(uuid4()), "kind": "message"} | message
    call = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": {"message": sent}}
    async with httpx.AsyncClient(base_url=client.http.client.base_url, timeout=60) as http:
        headers = {"Accept": "application/json"}
        came = await http.post(f"/a2a/{assistant['assistant_id']}", json=call, headers=headers)
    found = came.json()
    assert "error" not in found, found
    return dict(found["result"])


async def test_each_graph_answers_by_a2a(client: LangGraphClient) -> None:
    await asyncio.gather(*(_answers(client, graph) for graph in BESIDE))


async def _answers(client: LangGraphClient, graph: str) -> None:
    parts: list[dict[str, Any]] = [{"kind": "text", "text": "Begin."}]
    if BESIDE[graph]:
        parts.append({"kind": "data", "data": BESIDE[graph]})
    task = await rpc(client, graph, {"parts": parts})
    assert answer_of(task).startswith(ANSWERS[graph])
    if graph not in ("chat", "user_proxy"):
        return
    on = {"contextId": task["contextId"]}
    for count in (1, 2):
        task = await rpc(client, graph, on | {"parts": [{"kind": "text", "text": "Go on."}]})
        assert answer_of(task) == f"I count {count}."


def answer_of(task: dict[str, Any]) -> str:
    """Return the only artifact of a completed A2A task, which is a text."""
    assert task["status"]["state"] == "completed"
    (artifact,) = task["artifacts"]
    (part,) = artifact["parts"]
    return str(part["text"])


async def test_each_graph_is_called_by_mcp_with_messages(client: LangGraphClient) -> None:
    async with mcp_session(client) as session:
        given = {graph: user("Begin.") | BESIDE[graph] for graph in forms_by_kind()}
        called = await asyncio.gather(*(session.call_tool(*call) for call in given.items()))
    for graph, answer in zip(given, called, strict=True):
        assert not answer.isError, answer
        assert ANSWERS[graph].splitlines()[0] in str(answer.content)
