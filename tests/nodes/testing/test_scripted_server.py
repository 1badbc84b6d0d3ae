"""The scripted server, through the client that real conversations use."""

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import ChatOpenAI

from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer

from .test_scripted import BROKEN, CALL, Verdict

TALK: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("Add.", name="bob"),
    AIMessage(
        "",
        name="ann",
        tool_calls=[{"name": "add", "args": {"a": 1, "é": "ü"}, "id": "c1"}],
        invalid_tool_calls=[{"name": "add", "args": "{a", "id": "c2", "error": None}],
    ),
    ToolMessage("2", tool_call_id="c1", name="add"),
    ToolMessage("bad", tool_call_id="c2"),
    HumanMessage([{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]),
]


@pytest.fixture(scope="module")
def http() -> Iterator[dict[str, Any]]:
    """Yield a pair of HTTP clients and close them; the client's cached ones are never closed."""
    client = openai.DefaultHttpxClient()
    yield {"http_client": client, "max_retries": 0, "api_key": "any", "model": "scripted"}
    client.close()


def ask(server: ScriptedServer, http: dict[str, Any], **changed: object) -> ChatOpenAI:
    return ChatOpenAI(**{**http, "base_url": server.url, "stream_usage": True, **changed})


def joined(model: ChatOpenAI | ScriptedChatModel) -> AIMessage:
    whole: BaseMessageChunk | None = None
    for chunk in model.stream("How are you?"):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessage)
    return whole


def test_a_transcript(http: dict[str, Any]) -> None:
    with ScriptedServer(["Hello.", Verdict(done=True)]) as server:
        model = ask(server, http, temperature=0.5)
        assert model.invoke("Hi").content == "Hello."
        assert model.invoke("So?").content == '{"done":true}'
    assert [call.prompt for call in server.calls] == [
        [{"role": "user", "content": "Hi"}],
        [{"role": "user", "content": "So?"}],
    ]
    assert all(call.answered for call in server.requests)
    assert server.calls[0].body["temperature"] == 0.5
    assert server.calls[0].headers["authorization"] == "Bearer any"


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="one  two\nthree"),
        Reply(text="abc", chunks=("a", "bc"), finish_reason="length"),
        Reply(text="x", tool_calls=[CALL]),
        Reply(tool_calls=[CALL, BROKEN]),
        Reply(text=""),
        Reply(text="lone \ud800 surrogate"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_and_the_server_say_the_same(
    reply: Reply, stream: bool, http: dict[str, Any]
) -> None:
    with ScriptedServer([reply]) as server:
        models = (ask(server, http), ScriptedChatModel([reply]))
        there, here = (joined(m) if stream else m.invoke("How are you?") for m in models)
    assert there.content == here.content
    assert there.tool_calls == here.tool_calls
    # The scripted model raises the same reason as duologue's client.
    broken = [
        [{**call, "error": None} for call in message.invalid_tool_calls]
        for message in (there, here)
    ]
    assert broken[0] == broken[1]
    for field in ("finish_reason", "model_name"):
        assert there.response_metadata[field] == here.response_metadata[field]
    assert there.usage_metadata is not None
    assert here.usage_metadata is not None
    assert there.usage_metadata.items() >= here.usage_metadata.items()


def test_streamed_chunks_and_usage_only_on_request(http: dict[str, Any]) -> None:
    with ScriptedServer(lambda _: Reply(text="abc", chunks=("a", "bc"))) as server:
        chunks = list(ask(server, http, stream_usage=False).stream("x"))
        assert [c.content for c in chunks if c.content] == ["a", "bc"]
        assert all(c.usage_metadata is None for c in chunks)


def test_a_retry_is_a_further_call(http: dict[str, Any]) -> None:
    limited = Reply(error=429, retry_after=0.01, code="rate_limit_exceeded")
    with ScriptedServer([limited, "Here.", "There."]) as server:
        model = ask(server, http, max_retries=2)
        assert [model.invoke(n).content for n in "ab"] == ["Here.", "There."]
    assert [call.prompt[0]["content"] for call in server.calls] == ["a", "a", "b"]


def test_wrong_keys_models_and_paths(http: dict[str, Any]) -> None:
    with ScriptedServer([], models=("m1", "m2"), api_key="right") as server:
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(server, http).invoke("x")
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError) as missing:
            ask(server, http, api_key="right", model="m3").invoke("x")
        assert missing.value.code == "model_not_found"
        client = openai.OpenAI(
            api_key="right", base_url=server.url, http_client=http["http_client"], max_retries=0
        )
        assert [model.id for model in client.models.list()] == ["m1", "m2"]
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="m1", input="x")
    assert server.calls == []
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        (ValueError("mine"), "script_raised", "mine"),
        (StopIteration("mine"), "script_raised", "mine"),
        (None, "script_exhausted", "user: why"),
    ],
)
def test_a_script_that_fails_is_a_400(
    line: Line | None, code: str, why: str, http: dict[str, Any]
) -> None:
    with ScriptedServer([] if line is None else [line]) as server:
        with pytest.raises(openai.BadRequestError, match=why) as caught:
            ask(server, http, max_retries=2).invoke("why")
        assert caught.value.code == code
    assert len(server.calls) == 1


def test_dropped_connections(http: dict[str, Any]) -> None:
    with ScriptedServer(lambda _: Reply(text="a b c d", error="drop")) as server:
        model = ask(server, http)
        with pytest.raises(openai.APIConnectionError):
            model.invoke("x")
        stream = model.stream("x")
        assert [next(stream).content for _ in range(3)] == ["", "a ", "b "]
        with pytest.raises(openai.APIConnectionError):
            next(stream)
    assert [call.answered for call in server.calls] == [False, False]


def test_hold_wait_release(http: dict[str, Any]) -> None:
    def echo(prompt: Prompt) -> str:
        return str(prompt[-1]["content"])

    with ScriptedServer(echo, hold=[0]) as server, ThreadPoolExecutor() as pool:
        model = ask(server, http)
        first = pool.submit(model.invoke, "first")
        server.wait_for(1)
        assert model.invoke("second").content == "second"  # Only this reply waits.
        assert [call.answered for call in server.calls] == [False, True]
        server.release()
        assert first.result().content == "first"
        assert server.calls[0].answered
        with pytest.raises(TimeoutError, match="2 of 3 calls"):
            server.wait_for(3, timeout=0.01)


CHILD = """
import sys, urllib.request
body = b'{"model": "scripted", "messages": [{"role": "user", "content": "x"}]}'
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/chat/completions", body)).read()
"""


def test_a_client_killed_in_flight_is_seen_and_said_by_nobody(
    capfd: pytest.CaptureFixture[str], http: dict[str, Any]
) -> None:
    with ScriptedServer(["lost", "found"]) as server:
        server.hold(0)
        child = subprocess.Popen([sys.executable, "-c", CHILD, server.url])
        server.wait_for(1)
        child.kill()
        child.wait()
        server.release()
        assert ask(server, http).invoke("x").content == "found"
    assert [call.answered for call in server.calls] == [False, True]
    assert capfd.readouterr() == ("", "")


def test_closing_breaks_held_and_delayed_calls(
    capfd: pytest.CaptureFixture[str], http: dict[str, Any]
) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(2) as pool:
        with ScriptedServer(["x", Reply(text="y", delay=3600)], hold=[0]) as server:
            model = ask(server, http)
            asked = [pool.submit(model.invoke, "x") for _ in range(2)]
            server.wait_for(2)
        for call in asked:
            with pytest.raises(openai.APIConnectionError):
                call.result()
    assert threading.active_count() == before
    assert capfd.readouterr() == ("", "")


def test_the_model_and_the_server_see_the_same_prompt(http: dict[str, Any]) -> None:
    seen: list[Prompt] = []

    def listen(prompt: Prompt) -> str:
        seen.append(prompt)
        return "ok"

    with ScriptedServer(listen) as server:
        there = ask(server, http).invoke(TALK)
    here = ScriptedChatModel(script=listen).invoke(TALK)
    assert seen[0] == seen[1]
    assert [message["role"] for message in seen[0]] == [
        "system", "user", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    assert seen[0][2]["content"] == ""
    assert seen[0][-1]["content"] == "And now?"
    assert here.usage_metadata is not None
    assert there.usage_metadata is not None
    assert there.usage_metadata["input_tokens"] == here.usage_metadata["input_tokens"]


@pytest.mark.parametrize("package", ["starlette.requests", "uvicorn"])
def test_without_its_packages_the_server_names_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "duologue.nodes.testing.server", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"{package}.*; run `pip install .*testing"):
        importlib.import_module("duologue.nodes.testing.server")
