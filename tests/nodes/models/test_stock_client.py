"""duologue's client and LangChain's own send the same requests, and read the same replies."""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
import httpx2
import openai
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
from openai.resources.chat.completions import AsyncCompletions
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from duologue.graphs import ask
from duologue.nodes.testing import Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.cases import drawn_cases
from support.models import ChatModel

Asked = Callable[[ChatOpenAI], Coroutine[Any, Any, object]]

KINDS: Final = (ChatOpenAI, ChatModel)


def client_at(kind: type[ChatOpenAI], url: str, **options: Any) -> ChatOpenAI:
    """Return a client of a server, whose answers contain the usage."""
    given = {"model": "scripted", "base_url": url, "api_key": SecretStr("k"), **options}
    return kind(stream_usage=True, **given)


# Answers


class Sum(BaseModel):
    """A sum, with the terms in words."""

    model_config = ConfigDict(extra="forbid")

    total: int
    terms: list[str] = Field(max_length=3, description="As they were given.")


class Open(BaseModel):
    """A schema that OpenAI's strict form cannot express."""

    by_name: dict[str, Sum]


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
    body = {"cache_prompt": True} if ask is _plain else None
    with ScriptedServer(lambda _: line) as server:
        answers = [await ask(client_at(kind, server.url, extra_body=body)) for kind in KINDS]
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
        assert await ask(client_at(ChatModel, server.url))


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ["scripted", "o3-mini", "gpt-4", "gpt-4.1", "gpt-4-turbo"])
@pytest.mark.parametrize("schema", [Sum, Open])
@pytest.mark.filterwarnings("ignore:Cannot use method='json_schema'")
def test_a_schema_is_sent_as_by_the_stock_client(name: str, schema: type[BaseModel]) -> None:
    settings = {"temperature": 0.5, "seed": 1, "stop": ["END"], "top_p": 0.1, "max_tokens": 9}
    answer = {"by_name": {"x": SUM.model_dump()}} if schema is Open else SUM
    ann = {"name": "Ann", "model_settings": settings}
    with ScriptedServer([answer] * 2, models=(name,)) as server:
        for kind in KINDS:
            chat = client_at(kind, server.url, model=name)
            ask(ann, "Add.", schema=schema, model=chat, store="memory:")
        stock, ours = (call.body for call in server.calls)
    assert ours == stock


# Any messages and options

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
EVENTS = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"


def reply_to(request: httpx2.Request) -> httpx2.Response:
    """Return a reply in the form that a request asks for."""
    if json.loads(request.content).get("stream"):
        return httpx2.Response(200, text=EVENTS, headers={"content-type": "text/event-stream"})
    return httpx2.Response(200, json=REPLY)


async def call_both(
    kind: type[ChatOpenAI], name: str, messages: list[BaseMessage], options: dict[str, Any]
) -> list[object]:
    """Return the bodies of a normal and of a streamed call, with the answers' texts."""
    found: list[object] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        found.append(json.loads(request.content))
        return reply_to(request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        chat = client_at(kind, "http://server/v1", model=name, http_async_client=http)
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
    stock, ours = (asyncio.run(call_both(kind, name, messages, options)) for kind in KINDS)
    assert ours == stock


# Requests and failures

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "environment": {
        "environ": {
            "OPENAI_ORG_ID": "org",
            "OPENAI_PROJECT_ID": "project",
            "OPENAI_CUSTOM_HEADERS": "X-Gateway: one\nX-Other: two",
        }
    },
    "own authorization": {"environ": {"OPENAI_CUSTOM_HEADERS": "Authorization: Basic abc"}},
    "extra headers": {"more": {"extra_headers": {"x-one": "1", "OpenAI-Organization": "other"}}},
    "an extra cookie": {"more": {"extra_headers": {"Cookie": "mine=1"}}, "cookies": {"sid": "2"}},
    "extra body": {"more": {"extra_body": {"top_k": 3, "model": "other"}}},
    "a large number": {"more": {"extra_body": {"seed": 10**30}}},
    "cookies of a gateway": {"cookies": {"__cf_bm": "abc"}},
    "a query": {"options": {"base_url": "https://server/openai?api-version=1"}},
    "a path with a slash": {"options": {"base_url": "https://server/v1/"}},
    "a name and a password": {"options": {"base_url": "https://name:password@server/v1"}},
    "times": {"options": {"timeout": openai.Timeout(7, connect=2, pool=None)}},
    "no time limit": {"options": {"timeout": None}},
}

MOVED: Final = httpx2.Response(307, headers={"location": "https://other/v1"})

FAILURES: Final[dict[str, list[httpx2.Response | Exception]]] = {
    "a redirect": [MOVED],
    "a redirect to nowhere": [httpx2.Response(304)],
    "an endless redirect": [MOVED] * 30,
    **{
        f"status {status}": [
            httpx2.Response(status, json={"error": {"message": "no", "code": "c", "param": "p"}})
        ]
        for status in (400, 401, 403, 404, 408, 409, 418, 422, 429, 500, 503)
    },
    "a page": [httpx2.Response(502, text=" <html>Bad gateway</html> ")],
    "a text": [httpx2.Response(500, json="no")],
    "a list": [httpx2.Response(400, json=[{"error": {"message": "no"}}])],
    **{
        type(error).__name__: [error]
        for error in (
            httpx2.ReadTimeout("slow"),
            httpx2.ConnectTimeout("slow"),
            httpx2.PoolTimeout("full"),
            httpx2.ConnectError("refused"),
            httpx2.RemoteProtocolError("half"),
            httpx2.UnsupportedProtocol("what"),
            httpx2.DecodingError("packed"),
            ssl.SSLError("TLS"),
            anyio.EndOfStream(),
            KeyError("not of a connection"),
        )
    },
}


async def call_twice(
    kind: type[ChatOpenAI], case: dict[str, Any], failures: list[Any], *, stream: bool
) -> list[Any]:
    """Return the requests of two calls, and the reply or the exception of each."""
    seen: list[Any] = []
    left: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {**request.headers}
        # A backslash escape and the character itself mean the same.
        del headers["content-length"]
        seen.append((request.method, str(request.url), headers, json.loads(request.content)))
        seen.append(request.extensions["timeout"])
        if not left:
            return reply_to(request)
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return httpx2.Response(given.status_code, headers=given.headers, content=given.content)

    http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(answer),
        cookies=case.get("cookies"),
        follow_redirects=True,
    )
    options = {"base_url": "https://server/v1", "timeout": 9.0} | case.get("options", {})
    api = openai.AsyncOpenAI(api_key="k", max_retries=0, http_client=http, **options)
    url = str(options["base_url"])
    chat = client_at(kind, url, root_async_client=api, async_client=api.chat.completions)
    for _ in range(2):
        left[:] = failures
        try:
            if stream:
                pieces = chat.astream("ünïcode \U0001f600", **case.get("more", {}))
                seen.append([piece.text async for piece in pieces])
            else:
                seen.append((await chat.ainvoke("ünïcode \U0001f600", **case.get("more", {}))).text)
        except (openai.APIError, KeyError) as error:
            seen.append((type(error), str(error), vars(error).get("body"), type(error.__cause__)))
            seen.append([getattr(error, name, None) for name in ("status_code", "code", "param")])
    await http.aclose()
    return seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_and_its_failure_are_those_of_openais_client(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = []
    cases: list[tuple[str, dict[str, Any], list[Any]]]
    cases = [(name, case, []) for name, case in SETTINGS.items()]
    cases += [(name, {}, failures) for name, failures in FAILURES.items()]
    for name, case, failures in cases:
        with monkeypatch.context() as patch:
            for variable, value in case.get("environ", {}).items():
                patch.setenv(variable, value)
            theirs, ours = [await call_twice(kind, case, failures, stream=stream) for kind in KINDS]
        if ours != theirs:
            failed.append(f"{name}:\n{theirs}\n{ours}")
    assert not failed, "\n\n".join(failed)
