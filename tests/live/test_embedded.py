"""The embedded model itself: a real child, real weights, asked through the ordinary client."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from duologue.graphs import ModelError
from duologue.graphs.common.settings import Settings
from duologue.graphs.log.metadata import Speech
from duologue.nodes.models.adapters import embedded
from duologue.nodes.models.adapters.embedded import (
    MAX_TOKENS,
    SAMPLING,
    EmbeddedServer,
    embedded_server,
    grammar,
)
from support.models import Models, chosen

pytestmark = pytest.mark.live


@pytest.fixture
def server() -> EmbeddedServer:
    return embedded_server()


def client(server: EmbeddedServer, **parameters: object) -> ChatOpenAI:
    """Return the ordinary client; parameters are ChatOpenAI's own and override these."""
    defaults: dict[str, Any] = {
        "model": server.model,
        "base_url": server.url,
        "api_key": SecretStr(server.api_key),
        "max_completion_tokens": 24,
        "temperature": 0.2,
        "max_retries": 0,
        "extra_body": dict(SAMPLING),
    }
    return ChatOpenAI(**{**defaults, **parameters})


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait for another process's action; the deadline only limits a failing test."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, also if its parent has not collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_it_answers(server: EmbeddedServer) -> None:
    reply = client(server).invoke("Say hello.")
    assert reply.text.strip()


@pytest.mark.exhaustive
async def test_it_streams_to_two_at_once(server: EmbeddedServer) -> None:
    one = client(server, stream_usage=True).astream("Count to ten.")
    two = client(server).astream("Name some colours.")
    chunks = [chunk async for chunk in one]
    assert len(chunks) > 1
    assert any(chunk.usage_metadata for chunk in chunks)
    assert "".join([chunk.text async for chunk in two]).strip()


@pytest.mark.exhaustive
def test_a_seed_gives_the_same_text(server: EmbeddedServer) -> None:
    model = client(server, seed=7, temperature=1.0)
    assert model.invoke("Tell a story.").text == model.invoke("Tell a story.").text


def test_without_its_key_it_refuses(server: EmbeddedServer) -> None:
    with pytest.raises(openai.AuthenticationError):
        client(server, api_key=SecretStr("another")).invoke("Say hello.")


def test_neither_key_nor_model_path_can_be_read_from_the_process_list(
    server: EmbeddedServer,
) -> None:
    assert server.api_key.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert server.api_key.encode() not in Path(f"/proc/{server.pid}/environ").read_bytes()


def test_it_holds_nothing_but_the_model(server: EmbeddedServer) -> None:
    # duologue's other processes also run Python, but every import of duologue loads this module.
    assert "pydantic_core" not in Path(f"/proc/{server.pid}/maps").read_text()


def test_threads_share_one_child() -> None:
    with ThreadPoolExecutor(4) as pool:
        servers = list(pool.map(lambda _: embedded_server(), range(4)))
    assert len({each.pid for each in servers}) == 1


@pytest.mark.process
def test_a_killed_child_is_replaced(server: EmbeddedServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    # Its many threads take a moment to end, and until then it counts as running.
    assert eventually(lambda: embedded_server().pid != server.pid)
    assert client(embedded_server()).invoke("Say hello.").text.strip()


def test_a_broken_model_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + b"not a model" * 10)
    with pytest.raises(ModelError, match=r"broken\.gguf could not be loaded"):
        embedded_server(path)


@pytest.mark.exhaustive
def test_a_copy_of_the_weights_gets_its_own_child(server: EmbeddedServer, tmp_path: Path) -> None:
    source = embedded.weights()
    assert source is not None
    copy = tmp_path / "other.gguf"
    copy.symlink_to(source)
    assert embedded_server(copy) == server  # the same file under another name
    copy.unlink()
    copy.hardlink_to(source)
    other = embedded_server(copy)
    assert (other.model, other.pid == server.pid) == ("other", False)


PARENT = """
import sys, threading
from duologue.nodes.models.adapters.embedded import embedded_server
import openai
server = embedded_server()
print(server.pid, flush=True)
if sys.argv[1] == "generate":
    client = openai.OpenAI(base_url=server.url, api_key=server.api_key)
    chunks = client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": "Count."}],
        stream=True, extra_body={"ignore_eos": True, "max_tokens": 4000},
    )
    for number, chunk in enumerate(chunks):
        if number == 3:
            print("generating", flush=True)
else:
    child = __import__("os").fork()
    if child == 0:
        print("forked", flush=True)
        threading.Event().wait()
    print(child, flush=True)
    threading.Event().wait()
"""


@pytest.mark.process
@pytest.mark.parametrize("when", ["generate", "forked"])
def test_the_child_dies_with_a_killed_parent(when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, when], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        said = [parent.stdout.readline().strip() for _ in range(1 if when == "generate" else 2)]
        assert not is_gone(pid)
        parent.kill()
        try:
            assert eventually(lambda: is_gone(pid))
        finally:
            # A forked sibling of the child is still running, and must not have kept the child
            # alive.
            for line in said:
                if line.isdigit():
                    os.kill(int(line), signal.SIGKILL)


@pytest.mark.process
def test_the_child_dies_while_it_loads() -> None:
    weights = embedded.weights()
    with subprocess.Popen(
        [sys.executable, str(Path(embedded.__file__).with_name("embedded_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        settings = f'{{"path": "{weights}", "model": "m", "api_key": "k", "n_ctx": 512'
        child.stdin.write(f'{settings}, "threads": 1}}\n'.encode())
        child.stdin.flush()
        assert eventually(lambda: str(weights) in Path(f"/proc/{child.pid}/maps").read_text())
        child.stdin.close()
        assert child.stdout.read() == b""  # gone before it was ready
        child.wait()


@pytest.mark.process
def test_a_program_that_ends_leaves_nothing_behind() -> None:
    program = (
        "from duologue.nodes.models.adapters.embedded import embedded_server as s; print(s().pid)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert is_gone(int(done.stdout))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("lines", "end"),
    [
        (("Instruction:", "Input:"), None),
        (("Solution:",), "Next request."),
        (('Say "hé" \\ [x]:', "→ 日本 🎈"), "<END>"),
    ],
)
def test_a_grammar_holds_the_reply(
    server: EmbeddedServer, lines: tuple[str, ...], end: str | None
) -> None:
    model = client(server, max_completion_tokens=MAX_TOKENS, seed=1)
    body = {**SAMPLING, "grammar": grammar(lines, end)}
    reply = model.invoke("How do I bake bread?", extra_body=body)
    assert reply.response_metadata["finish_reason"] == "stop"
    said = reply.text.split("\n")
    assert len(said) == len(lines)
    assert all(line.startswith(f"{mark} ") for line, mark in zip(said, lines, strict=True))
    assert reply.text.endswith(end or (".", "None"))


async def test_a_proxy_is_not_asked_for_the_embedded_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    model = await Models(settings=Settings()).get("embedded", print)
    answer = await model.answer([HumanMessage("Hi")], chosen(max_tokens=8), purpose=Speech)
    assert answer.text
