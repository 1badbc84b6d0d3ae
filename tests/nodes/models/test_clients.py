"""Connections live as long as the event loop that they were made in, and no longer."""

import asyncio
import gc
from contextlib import aclosing
from pkgutil import resolve_name
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from tenacity import Retrying, stop_after_delay, wait_fixed
from typer.testing import CliRunner

from duologue.graphs import (
    ModelError,
    ModelUnavailableError,
    aconverse,
    ask,
    astream,
    converse,
    role_play,
)
from duologue.nodes.testing import Prompt, Reply
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import app
from support.faulty_server import FaultyServer, Sent
from support.tables import read_rows

GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False, max_iterations=1)
STORE = "memory:clients"
MODELS = ("scripted", "other")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    def speak(prompt: Prompt) -> str:
        if "You are Owner" in prompt[0]["content"]:
            return "Instruction: dig.\nInput: None"
        return "Solution: dug.\nNext request."

    with ScriptedServer(speak, models=MODELS) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        yield server


def connections(server: ScriptedServer) -> int:
    return len(server._thread.connections)


def wait_for_connections(server: ScriptedServer, count: int) -> None:
    """Wait, because the server notices a little later that a client has left."""
    for attempt in Retrying(wait=wait_fixed(0.01), stop=stop_after_delay(10), reraise=True):
        with attempt:
            assert connections(server) == count


def test_a_loop_that_ends_leaves_no_connection_behind(connect: ScriptedServer) -> None:
    for _ in range(5):
        result = asyncio.run(aconverse(GARDEN, store=STORE))
        assert len(result.transcript) == 2
        wait_for_connections(connect, 0)
    assert len(connect.calls) == 10
    # Python would warn about connections that were left open.
    gc.collect()


def test_what_runs_in_one_loop_shares_its_connections(connect: ScriptedServer) -> None:
    async def several() -> None:
        await aconverse(GARDEN, store=STORE)
        first = connections(connect)
        assert first > 0
        for _ in range(3):
            await aconverse(GARDEN, store=STORE)
        assert connections(connect) == first
        await asyncio.gather(*(aconverse(GARDEN, store=STORE) for _ in range(4)))

    asyncio.run(several())
    wait_for_connections(connect, 0)


def test_a_run_that_fails_or_is_left_closes_its_connections_with_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def left() -> None:
        async with aclosing(astream(GARDEN, store=STORE)) as events:
            async for event in events:
                if event.event == "message":
                    return

    with ScriptedServer(["Instruction: dig.\nInput: None", Reply(error=400)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        with pytest.raises(ModelError):
            asyncio.run(aconverse(GARDEN, store=STORE))
        wait_for_connections(server, 0)
    with ScriptedServer(lambda _: "Instruction: dig.\nInput: None") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        asyncio.run(left())
        wait_for_connections(server, 0)


def test_the_background_loop_keeps_its_connections(connect: ScriptedServer) -> None:
    converse(GARDEN, store=STORE)
    first = connections(connect)
    assert first > 0
    for _ in range(3):
        converse(GARDEN, store=STORE)
    assert connections(connect) == first


def test_a_model_is_looked_for_once_in_a_loop(
    connect: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn uses the same client, and two models of a server the same connections."""
    place = "duologue.nodes.models.adapters.families.reach_model"
    reach, reached = resolve_name(place), list[str]()

    def count(name: str, *options: Any) -> Any:  # noqa: ANN401
        reached.append(name)
        return reach(name, *options)

    monkeypatch.setattr(place, count)
    speakers = [one.replace(model=name) for one, name in zip(GARDEN.speakers, MODELS, strict=True)]
    talk = GARDEN.replace(speakers=speakers, end_chat={"max_iterations": 3})

    async def run() -> None:
        await aconverse(talk, store=STORE)
        assert connections(connect) == 1

    for calls in (6, 12):
        asyncio.run(run())
        assert len(connect.calls) == calls
        assert reached == [*MODELS] * (calls // 6)


def test_a_server_sees_the_stock_client(connect: ScriptedServer) -> None:
    timeout = openai.Timeout(120.0, connect=10, pool=None)
    stock = ChatOpenAI(
        model="scripted", base_url=connect.url, api_key=SecretStr("none"), timeout=timeout
    )
    for model in ("scripted", stock):
        ask({"name": "Ann"}, "You are Owner", model=model, store="memory:")
    first, second = (call.headers for call in connect.calls)
    assert first == second


HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        (Sent(b'[{"id": "one"}, {"id": "two"}]'), ["one", "two"]),
        (Sent(b'{"data": [{"id": "one"}]}', headers=HTML), ["one"]),
        (Sent(b'{"data": [{"name": "x"}, 1, {"id": 2}, {"id": " "}, {"id": "two"}]}'), ["two"]),
        (Sent(b'{"data": [{"id": "\\u001b[2J"}, {"id": "a\\u202eb"}, {"id": "two"}]}'), ["two"]),
        (Sent(b'{"data": []}'), []),
    ],
)
def test_models_are_listed_in_other_forms_too(
    sent: Sent, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyServer(lambda *_: sent) as server:
        url = server.url
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        ran = CliRunner().invoke(app, ["models"])
    _, _, listed = ran.stdout.partition(f"At {url}:\n")
    assert listed.partition("Default:")[0].split() == names


NO_LISTS: dict[str, tuple[Sent, str]] = {
    name: (Sent(row["body"].encode(), headers=HTML if row.get("html") else {}), row["words"])
    for name, row in read_rows(__file__, "no_lists").items()
} | {
    "no UTF-8": (Sent(b"\xff\xfe{"), "the reply is not JSON: "),
    "much": (Sent(b'{"models": "' + b"x" * 10**6 + b'"}'), "characters in all)"),
}


@pytest.mark.part(5)
@pytest.mark.parametrize("name", NO_LISTS)
def test_what_is_no_list_of_models_is_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, words = NO_LISTS[name]
    with FaultyServer(lambda *_: sent) as server:
        url = server.url
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ModelUnavailableError) as caught:
            converse(GARDEN, store=STORE)
        ran = CliRunner().invoke(app, ["models"])
    said = str(caught.value)
    assert " ".join(ran.stderr.split()).endswith(said)
    assert said.startswith(f"the model server at {url} does not list its models (")
    assert words in said
    assert said.endswith("check its address, which usually ends in /v1, or name a model")
    assert "Error" not in said
    assert len(said) < 400
    assert said.isprintable()


@pytest.mark.parametrize(
    ("name", "value"), [("SSL_CERT_FILE", "/missing.pem"), ("HTTP_PROXY", "gopher://proxy")]
)
def test_an_environment_without_connections_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://m.test")
    with pytest.raises(ModelUnavailableError, match="SSL_CERT_FILE, SSL_CERT_DIR and the proxies"):
        asyncio.run(aconverse(GARDEN, model="m", store=STORE))
