"""The command `duologue serve`, called by the clients of OpenAI, LangChain and duologue."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import openai
import pytest
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from duologue.graphs import Session, converse, list_sessions, role_play
from duologue.nodes.testing import Prompt, Reply
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import COMMAND, duologue, isolate
from support.served import turns

pytestmark = pytest.mark.exhaustive

GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
SOLUTION = "Solution: Dug a bed. Next request."


class Server(NamedTuple):
    """A running server."""

    url: str
    names: str
    keys: tuple[str, ...]
    process: subprocess.Popen[str]

    @asynccontextmanager
    async def client(self, key: int = 0) -> AsyncIterator[openai.AsyncOpenAI]:
        async with openai.AsyncOpenAI(
            base_url=self.url, api_key=self.keys[key], max_retries=0, timeout=120
        ) as client:
            yield client

    def chat_model(self, name: str) -> ChatOpenAI:
        return ChatOpenAI(
            model=name,
            base_url=self.url,
            api_key=SecretStr(self.keys[0]),
            max_retries=0,
            stream_usage=True,
        )


@contextmanager
def running(
    folder: Path, *arguments: str, model: ScriptedServer | None = None, **variables: str
) -> Iterator[Server]:
    """Run the command in a folder until the block ends, with the model of a scripted server."""
    if model is not None:
        variables |= {
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "any",
            "DUOLOGUE_MODEL": "scripted",
        }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # The person's own store is left alone.
    kept["DUOLOGUE_STORE"] = str(folder / "served.db")
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments],
        env=kept | variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url, names = process.stdout.readline().strip(), process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.communicate()
        keys = tuple(variables.get("DUOLOGUE_SERVE_TOKEN", "").split())
        keys = keys or (process.stdout.readline().split()[-1],)
        yield Server(url, names, keys, process)
    finally:
        process.terminate()
        process.communicate()


def says(prompt: Prompt) -> Reply:
    """Play the roles of the garden, and answer questions about bees."""
    system, last = str(prompt[0]["content"]), str(prompt[-1]["content"])
    if "Owner" not in system:
        return Reply(text=f"{last.upper()} They dance.")
    if "Dug" in str(prompt):
        return Reply(text="<CAMEL_TASK_DONE>")
    return Reply(text=SOLUTION if "Dig" in last else "Instruction: Dig.")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "bees.toml").write_text('kind = "chat"\n')
    (tmp_path / "garden.json").write_text(json.dumps(GARDEN.stored()))
    return tmp_path


@pytest.fixture
def server(files: Path) -> Iterator[Server]:
    with (
        ScriptedServer(says) as model,
        running(
            files,
            *("bees.toml", "garden.json"),
            model=model,
            DUOLOGUE_STORE=str(files / "sessions.db"),
            DUOLOGUE_SERVE_TOKEN="the-token-of-the-first the-token-of-the-second",  # noqa: S106  # samples
        ) as server,
    ):
        yield server


async def test_the_client_of_openai_talks_to_the_command(server: Server, files: Path) -> None:
    assert server.names == "Models: bees, garden"
    async with server.client() as client, server.client(1) as other:
        messages = turns("How do bees talk?")
        stream = await client.chat.completions.create(model="bees", messages=messages, stream=True)
        pieces = [part.choices[0].delta.content or "" async for part in stream]
        assert "".join(pieces) == "HOW DO BEES TALK? They dance."
        assert len(list(filter(None, pieces))) > 3
        begun = await client.chat.completions.with_raw_response.create(
            model="garden", messages=messages, extra_headers={"X-Duologue-Session": "new"}
        )
        assert begun.parse().choices[0].message.content == SOLUTION
        headers = {"X-Duologue-Session": begun.headers["X-Duologue-Session"]}
        with pytest.raises(openai.NotFoundError):
            await other.chat.completions.create(model="garden", messages=[], extra_headers=headers)
    (row,) = list_sessions(store=files / "sessions.db")
    stored = Session(row.session, store=files / "sessions.db").state()
    assert (row.session, stored.stop_reason) == (headers["X-Duologue-Session"], "done_token")


def read_store(folder: Path) -> bytes:
    """Return the bytes of a store's files."""
    return b"".join(one.read_bytes() for one in folder.glob("sessions.db*") if one.is_file())


async def test_sessions_belong_to_their_keys_after_the_server_was_killed(files: Path) -> None:
    first, second = "the-token-of-the-first", "the-token-of-the-second"
    hello, again = turns("How do bees talk?"), turns("Really?")
    names = "bees.toml", "garden.json"
    with ScriptedServer(says) as model:
        variables = {"DUOLOGUE_STORE": str(files / "sessions.db")}
        variables["DUOLOGUE_SERVE_TOKEN"] = f"{first} {second}"
        with running(files, *names, model=model, **variables) as server:
            started = {}
            async with server.client() as client, server.client(1) as other:
                for one, name in ((client, "bees"), (client, "garden"), (other, "bees")):
                    begun = await one.chat.completions.with_raw_response.create(
                        model=name, messages=hello, extra_headers={"X-Duologue-Session": "new"}
                    )
                    headers = {"X-Duologue-Session": begun.headers["X-Duologue-Session"]}
                    started[one, name] = headers
                    assert begun.parse().choices
                mine, garden, others = started.values()
            server.process.kill()
            server.process.wait()
        # The file has changed and the keys have another order, but a session stays as it began.
        (files / "bees.toml").write_text('kind = "chat"\ntask = "Ask about ants."\n')
        variables["DUOLOGUE_SERVE_TOKEN"] = f"{second} {first}"
        with running(files, *names, model=model, **variables) as server:
            async with server.client(1) as client, server.client(0) as other:
                create = client.chat.completions.create
                answer = await create(model="bees", messages=again, extra_headers=mine)
                assert answer.choices[0].message.content == "REALLY? They dance."
                assert answer.usage is not None
                assert answer.usage.completion_tokens == 3
                ended = await create(model="garden", messages=[], extra_headers=garden)
                assert ended.choices[0].message.content == SOLUTION
                unknown = {"X-Duologue-Session": mine["X-Duologue-Session"][:-1] + "x"}
                for one, name, headers in (
                    (other, "bees", mine),
                    (client, "bees", others),
                    (client, "garden", mine),
                    (client, "bees", unknown),
                ):
                    with pytest.raises(openai.NotFoundError):
                        await one.chat.completions.create(
                            model=name, messages=again, extra_headers=headers
                        )
                answer = await other.chat.completions.create(
                    model="bees", messages=again, extra_headers=others
                )
                assert answer.choices[0].message.content == "REALLY? They dance."
        prompt = [one["content"] for one in model.calls[-1].prompt[1:]]
    assert prompt == ["How do bees talk?", "HOW DO BEES TALK? They dance.", "Really?"]
    stored = read_store(files)
    assert mine["X-Duologue-Session"].encode() in stored
    assert not any(key.encode() in stored for key in (first, second))


def test_the_program_on_the_page_talks_to_the_command(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[3].joinpath("docs", "studio.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (program,) = (one for one in programs if "from openai import" in one)
    program = program.replace("http://127.0.0.1:8000/v1", server.url)
    exec(program.replace("the printed key", server.keys[0]), {})  # noqa: S102  # our own page
    assert capsys.readouterr().out == f"{SOLUTION}\n"


async def test_langchain_talks_to_the_command(server: Server) -> None:
    bees, garden = server.chat_model("bees"), server.chat_model("garden")
    whole = await bees.ainvoke([("system", "Be brief."), ("user", "How do bees talk?")])
    assert whole.text == "BE BRIEF.\n\nHOW DO BEES TALK? They dance."
    chunks = [chunk async for chunk in garden.astream("Plan a balcony")]
    joined = sum(chunks[1:], chunks[0])
    assert isinstance(joined, AIMessageChunk)
    assert joined.text == SOLUTION
    assert joined.usage_metadata is not None
    assert joined.usage_metadata["output_tokens"] > 5


def test_duologue_talks_to_the_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", server.keys[0])
    talk = role_play("Ask", "Asker", "Bees", specify_task=False, max_iterations=1)
    plain = {name: {"format": None, "system_prompt": f"You are {name}."} for name in talk.names}
    result = converse(talk.replace(model="bees", speakers=plain), store="memory:nested")
    assert result.outcome is not None
    assert [text.endswith(" They dance.") for _, text in result.transcript] == [True, True]
    assert result.outcome.total.estimated_calls == 0


async def test_ctrl_c_ends_the_open_requests_with_one_sentence(files: Path) -> None:
    with (
        ScriptedServer([Reply(text="Later.", delay=3600)]) as model,
        running(files, "bees.toml", model=model) as server,
    ):
        async with server.client() as client:
            request = asyncio.create_task(
                client.chat.completions.create(model="bees", messages=turns("Hello"))
            )
            while not model.calls:  # noqa: ASYNC110  # the server is in a thread
                await asyncio.sleep(0.05)
            server.process.send_signal(signal.SIGINT)
            with pytest.raises(openai.InternalServerError, match="The server stops"):
                await request
        _, told = await asyncio.to_thread(server.process.communicate)
    assert server.process.returncode == 0
    assert told == "Ctrl-C stops the server. Anyone with a key can use it.\n"


async def test_the_embedded_model_speaks_in_a_served_conversation(files: Path) -> None:
    (files / "bees.toml").write_text(
        'kind = "chat"\nassistant = {model_settings = {max_tokens = 20}}\n'
    )
    with running(files, "bees.toml", "--model", "embedded") as server:
        async with server.client() as client:
            answer = await client.chat.completions.create(
                model="bees", messages=turns("Say hello.")
            )
    (choice,) = answer.choices
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_files_and_tokens_are_checked_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    people = GARDEN.replace(speakers={name: {"replies": ["human"]} for name in GARDEN.names})
    file = tmp_path / "people.json"
    file.write_text(json.dumps(people.stored()))
    people_speak = "people.json: people speak for 'Owner', 'Gardener'; at"
    # Without a check, the command would find that its port is not free, instead of serving.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for tokens, problem in (
            ([], people_speak),
            (["a token that is long", "short"], "--token: must have at least 16 ASCII characters"),
        ):
            options = [part for one in tokens for part in ("--token", one)]
            ran = duologue("serve", str(file), "--port", port, *options)
            assert (ran.exit_code, ran.stdout) == (2, "")
            assert problem in ran.stderr
