"""duologue's client sends the same bodies as LangChain's own, for any messages and options."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from duologue.graphs.log.metadata import Reflection
from support.cases import drawn_cases
from support.models import ChatModel, chosen, model_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.none() | st.sampled_from(["ann", "bob"])
CONTENTS = TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}))
CALLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("add"), "args": st.dictionaries(TEXTS, TEXTS), "id": TEXTS}
    ),
    max_size=2,
)
BROKEN = st.lists(
    st.fixed_dictionaries({"name": st.just("add"), "args": TEXTS, "id": TEXTS, "error": st.none()}),
    max_size=1,
)
EXTRA = st.sampled_from([{}, {"name": "cem"}])
MESSAGES = st.lists(
    st.builds(SystemMessage, CONTENTS, name=NAMES)
    | st.builds(HumanMessage, CONTENTS, name=NAMES, additional_kwargs=EXTRA)
    | st.builds(
        AIMessage,
        CONTENTS,
        name=NAMES,
        tool_calls=CALLS,
        invalid_tool_calls=BROKEN,
        additional_kwargs=EXTRA,
    )
    | st.builds(ToolMessage, TEXTS, tool_call_id=TEXTS, name=NAMES),
    min_size=1,
    max_size=6,
)
# Together with a response format, the stock client accepts only strict tools.
FUNCTION = {"name": "add", "strict": True, "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
FORM = {"type": "json_schema", "json_schema": {"name": "sum", "schema": {"type": "object"}}}
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.none() | st.floats(0, 1),
        "stop": st.lists(TEXTS, max_size=2),
        "seed": st.none() | st.integers(0, 9),
        "max_tokens": st.none() | st.integers(1, 9),
        "extra_body": st.just({"top_k": 3, "temperature": 1}) | st.none(),
        "tools": st.just([TOOL]),
        "tool_choice": st.sampled_from(["none", "auto"]),
        "response_format": st.just(FORM),
    },
)
NAMED = st.sampled_from(["scripted", "o3-mini", "gpt-4.1-mini"])
REPLY = {
    "id": "1",
    "object": "chat.completion",
    "created": 0,
    "model": "scripted",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "{}"}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
EVENT = {**REPLY, "choices": [{"index": 0, "delta": {"content": "{}"}, "finish_reason": "stop"}]}


def connected(kind: type[ChatOpenAI], name: str, client: httpx2.AsyncClient) -> ChatOpenAI:
    return kind(
        model=name,
        base_url="http://server/v1",
        api_key=SecretStr("k"),
        http_async_client=client,
        stream_usage=True,
    )


async def sent(
    kind: type[ChatOpenAI], name: str, messages: list[BaseMessage], options: dict[str, Any]
) -> list[object]:
    """Return the bodies of a normal and of a streamed call, followed by the answers' texts."""
    found: list[object] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        found.append(body)
        if not body.get("stream"):
            return httpx2.Response(200, json=REPLY)
        events = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"
        return httpx2.Response(200, text=events, headers={"content-type": "text/event-stream"})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        chat = connected(kind, name, client)
        found.append((await chat.ainvoke(messages, **options)).text)
        if "response_format" not in options:
            # With a response format, the stock client uses a different method, which cannot stream
            # this way.
            found.append([piece.text async for piece in chat.astream(messages, **options)])
    return found


@drawn_cases(5, 120, name=NAMED, messages=MESSAGES, options=OPTIONS)
def test_our_client_sends_what_the_stock_one_sends(
    name: str, messages: list[BaseMessage], options: dict[str, Any]
) -> None:
    stock, ours = (
        asyncio.run(sent(kind, name, messages, options)) for kind in (ChatOpenAI, ChatModel)
    )
    assert ours == stock


class Sum(BaseModel):
    """A sum, with the terms in words."""

    model_config = ConfigDict(extra="forbid")

    total: int
    terms: list[str] = Field(max_length=3, description="As they were given.")


class Open(BaseModel):
    """A schema that OpenAI's strict form cannot express."""

    by_name: dict[str, Sum]


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ["scripted", "o3-mini", "gpt-4", "gpt-4.1", "gpt-4-turbo"])
@pytest.mark.parametrize("schema", [Sum, Open])
@pytest.mark.filterwarnings("ignore:Cannot use method='json_schema'")
async def test_a_schema_is_sent_as_by_the_stock_client(name: str, schema: type[BaseModel]) -> None:
    bodies = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, json=REPLY)

    settings = chosen(temperature=0.5, seed=1, stop=["END"], top_p=0.1, max_tokens=9)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        for kind in (ChatOpenAI, ChatModel):
            await model_of(name, connected(kind, name, client)).answer_by_schema(
                [HumanMessage("Hi")], schema, settings, purpose=Reflection, instead="x"
            )
    stock, ours = bodies
    assert ours == stock
