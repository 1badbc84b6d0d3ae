"""duologue's client and the stock client send the same requests and read the same replies."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import ChatOpenAI
from openai.resources.chat.completions import AsyncCompletions
from pydantic import BaseModel, ConfigDict, SecretStr

from duologue.nodes.testing import Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.models import ChatModel

Asked = Callable[[ChatOpenAI], Coroutine[Any, Any, object]]


class Sum(BaseModel):
    """A sum, with the terms in words."""

    model_config = ConfigDict(extra="forbid")

    total: int
    terms: list[str]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


PLAIN: list[BaseMessage] = [SystemMessage("Be brief."), HumanMessage('Hi {ünïcode} "q"\n')]
TOOLS: list[BaseMessage] = [
    HumanMessage("Add."),
    AIMessage(
        "Adding.",
        tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}],
        invalid_tool_calls=[{"name": "add", "args": "{a", "id": "c2", "error": None}],
    ),
    ToolMessage("3", tool_call_id="c1"),
    ToolMessage("not JSON", tool_call_id="c2", status="error"),
    HumanMessage("Go on."),
]


async def _plain(chat: ChatOpenAI) -> object:
    return await chat.ainvoke(PLAIN)


async def _streamed(chat: ChatOpenAI) -> object:
    parts = [part async for part in chat.astream(PLAIN)]
    return [part.model_dump(exclude={"id"}) for part in parts]


async def _bound(chat: ChatOpenAI) -> object:
    return await chat.bind_tools([add], tool_choice="any", parallel_tool_calls=False).ainvoke(TOOLS)


async def _structured(chat: ChatOpenAI) -> object:
    return await chat.with_structured_output(Sum, method="json_schema").ainvoke(PLAIN)


async def _structured_with_raw(chat: ChatOpenAI) -> object:
    return await chat.with_structured_output(Sum, include_raw=True).ainvoke(PLAIN)


async def _blocking(chat: ChatOpenAI) -> object:
    return await asyncio.to_thread(chat.invoke, PLAIN)


SUM = Sum(total=3, terms=["one", "two"])
CALLED = Reply(
    text="So:",
    tool_calls=(ScriptedToolCall(name="add", args={"a": 1, "b": 2}, id="c3"),),
)


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (_plain, "Hello there."),
        (_blocking, "Hello there."),
        (_streamed, "Hello there, you two."),
        (_bound, CALLED),
        (_structured, SUM),
        (_structured_with_raw, SUM),
    ],
)
async def test_the_wire_and_the_answer_are_those_of_the_stock_client(
    ask: Asked, line: str | Reply | Sum
) -> None:
    with ScriptedServer(lambda _: line) as server:
        answers = []
        for kind in (ChatOpenAI, ChatModel):
            chat = kind(
                model="scripted",
                base_url=server.url,
                api_key=SecretStr("k"),
                stream_usage=True,
                extra_body={"cache_prompt": True} if ask is _plain else None,
            )
            answers.append(await ask(chat))
        stock, ours = (json.dumps(call.body, sort_keys=True) for call in server.calls)
    assert ours == stock
    assert json.loads(ours)["messages"]
    assert _comparable(answers[1]) == _comparable(answers[0])


def _comparable(answer: object) -> object:
    """Return an answer without its random parts, usage included."""
    if isinstance(answer, dict):
        return {key: _comparable(value) for key, value in answer.items()}
    if isinstance(answer, AIMessage):
        assert answer.usage_metadata is not None
        found = answer.model_dump(exclude={"id"})
        # The server numbers its answers.
        found["response_metadata"].pop("id", None)
        return found
    if isinstance(answer, list):
        # Streamed parts: their ids name the call.
        return json.loads(re.sub(r"chatcmpl-\d+", "chatcmpl", json.dumps(answer)))
    return answer


@pytest.mark.parametrize("ask", [_plain, _streamed])
async def test_nothing_is_walked_against_the_clients_types(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walked(*_: object, **__: object) -> None:
        raise AssertionError("the client's typed method was called")

    monkeypatch.setattr(AsyncCompletions, "create", walked)
    with ScriptedServer(["Hello."]) as server:
        chat = ChatModel(model="scripted", base_url=server.url, api_key=SecretStr("k"))
        assert await ask(chat)
