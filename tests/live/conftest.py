"""A real dev server against a scripted model server, for all tests that use it."""

import json
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from tenacity import Retrying, retry_if_not_exception_type, stop_after_delay, wait_fixed

from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.installed import install_package
from support.tables import read_rows

ROOT = Path(__file__).parents[2]


def speak(prompt: Prompt) -> Line:
    """Play any part of a role-play, a group or a blogger, based on the prompt alone.

    A role-play's user ends it after two turns; a critic is satisfied by the third version. In a
    group, each speaker has completed its task after three turns, a separate judge finds all
    objectives met once a speaker says so, and a moderator names the last of its candidates.
    """
    turn, question = turn_of(prompt), prompt[-1]["content"]
    if prompt[0]["content"].startswith("You moderate a conversation."):
        return {"next_speaker": re.split(r": |, |\?", question)[-2]}
    for beginning, play in PARTS.items():
        if prompt[0]["content"].startswith(beginning):
            return play(prompt)
    if prompt[0]["content"].startswith("You judge a conversation."):
        found = "met" if "word 3" in question else "inconclusive"
        return {f"criterion_{number}": found for number in (1, 2)}
    if "Is your task complete?" in question:
        return {"objectives_left": [], "complete": turn > 2}
    if " in a conversation with " in prompt[0]["content"]:
        return f"This is my word {turn}."
    if len(prompt) == 1:
        return "A better task."
    if "Solution:" in prompt[0]["content"]:
        return f"Solution: step {turn} is done.\nNext request."
    if turn == 2 and "for ever" not in prompt[0]["content"]:
        return "<CAMEL_TASK_DONE>"
    return f"Instruction: do step {turn}.\nInput: None"


def use_tools(prompt: Prompt) -> Line:
    """Call all tools of duologue in parallel; then report their results."""
    if prompt[-1]["role"] == "tool":
        return " | ".join(message["content"] for message in prompt if message["role"] == "tool")
    calls = {
        "python": {"code": "print(6 * 7)"},
        "calculator": {"expression": "6 * 7"},
        "get_history": {},
        "clock": {},
        "high_low": {"secret_number": 7, "guessed_number": 6},
    }
    return Reply(
        tool_calls=[ScriptedToolCall(name=name, args=args, id=name) for name, args in calls.items()]
    )


def add_up(prompt: Prompt) -> Line:
    """Call the calculator and speak together with the call, in pieces; then report the result."""
    last = prompt[-1]
    if last["role"] == "tool":
        return f"So: {last['content']}"
    args = json.dumps({"to_user": BESIDE, "expression": last["content"]})
    chunks = tuple(args[at : at + 3] for at in range(0, len(args), 3))
    made = ScriptedToolCall(name="calculator", args=args, chunks=chunks, id=f"sum {len(prompt)}")
    return Reply(tool_calls=[made])


BESIDE = 'I add that up:\n"one moment" …'
"""The text in the same message as the call of the calculator."""


def take_notes(prompt: Prompt) -> Line:
    """Call the tool that uses the server's store, then report its result."""
    if prompt[-1]["role"] == "tool":
        return f"So: {prompt[-1]['content']}"
    return Reply(tool_calls=[ScriptedToolCall(name="note", args={"fact": "bees"}, id="note")])


def write_code(prompt: Prompt) -> str:
    """Write code that keeps a number, then code that uses it, then the answer."""
    said = ["```python\nkept = 6\n```", "```python\nprint(kept * 7)\n```", "It is 42."]
    return said[turn_of(prompt)]


def turn_of(prompt: Prompt) -> int:
    """Return how often the asked speaker has spoken."""
    return sum(message["role"] == "assistant" for message in prompt)


PARTS: dict[str, Callable[[Prompt], Line]] = {
    "You solve": write_code,
    "You use tools": use_tools,
    "You add up": add_up,
    "You take notes": take_notes,
    "You review": lambda prompt: (
        "SATISFIED" if turn_of(prompt) == 2 else f"Mend place {turn_of(prompt)}."
    ),
    "You write": lambda prompt: f"Draft {turn_of(prompt)}.",
    "You play a person": lambda prompt: f"I ask {turn_of(prompt)}.",
    "You count": lambda prompt: f"I count {turn_of(prompt)}.",
    "You plan": lambda prompt: {"bed": f"bed {turn_of(prompt)}"},
}
"""Answers of the speakers that say more than a line, by the first words of the system prompt."""


@pytest.fixture(scope="session")
def model_server() -> Iterator[ScriptedServer]:
    """Yield the model server that the dev server's graphs call."""
    with ScriptedServer(speak, models=["scripted", "big", "small"]) as server:
        yield server


class DevServer:
    """A running dev server, with its address and its log."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


def free_port() -> int:
    """Return a port that no other program gets while the server starts.

    A start takes long on a busy machine, and the system may assign its ephemeral ports to any
    client in between.
    """
    for port in random.sample(range(10_000, 30_000), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


SERVED_FILE = read_rows(__file__, "served_file")


NOTES_PROGRAM = '''
from typing import Any

from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime

from duologue import Conversation, Speaker, build_graph


@tool(response_format="content_and_artifact")
async def note(fact: str, runtime: ToolRuntime[Any, Any]) -> tuple[str, Any]:
    """Note a fact."""
    user = runtime.context["user"]
    await runtime.store.aput((user,), "fact", {"text": fact})
    return f"Noted for {user}.", {"fact": fact, "data": b"\\xff"}


bob = Speaker("Bob", replies=[{"kind": "text", "text": "Good."}])
speakers = [Speaker("Ann", "You take notes.", tools=[note]), bob]
graph = build_graph(
    conversation=Conversation("Take notes.", speakers, end_chat={"max_iterations": 1}),
    name="notes",
    description="Takes notes.",
)
'''

NOTES = {"path": "./notes.py:graph", "description": "Takes notes."}
"""A graph whose tool uses the server's own store and the context of the run."""


def page_blocks(language: str, page: str = "studio") -> list[str]:
    """Return the blocks of a page of docs/ in a language."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_config(folder: Path) -> Path:
    """Write the project's graphs and the conversation that docs/studio.md serves to a folder."""
    config = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))
    program = next(one for one in page_blocks("py") if "garden.toml" in one)
    entry = next(one for one in map(json.loads, page_blocks("json")) if "graphs" in one)
    graphs = {**config["graphs"], **entry["graphs"], "notes": NOTES}
    config |= {"dependencies": [str(ROOT)], "graphs": graphs}
    for name, text in {
        "garden.py": program,
        "garden.toml": SERVED_FILE,
        "notes.py": NOTES_PROGRAM,
        "langgraph.json": json.dumps(config),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "langgraph.json"


@pytest.fixture(scope="session")
def dev_server(
    model_server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DevServer]:
    """Yield a dev server of this project."""
    config = write_config(tmp_path_factory.mktemp("dev"))
    with serve(config, model_server.url, tmp_path_factory.mktemp) as server:
        yield server


@contextmanager
def serve(config: Path, model_url: str, make_folder: Callable[[str], Path]) -> Iterator[DevServer]:
    """Run a dev server that works offline and leaves no file behind.

    Args:
        config: The file that names its graphs. The server works in its folder, and creates its
            state folder there.
        model_url: The address of the model server that duologue's graphs ask.
        make_folder: Returns a new folder whose name begins with the argument.
    """
    port = free_port()
    log = config.with_name("log.txt")
    installed = make_folder("installed")
    install_package(installed)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DUOLOGUE_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_"))
    }
    environment = kept | {
        "DUOLOGUE_MODEL": "scripted",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGGRAPH_NO_VERSION_CHECK": "true",
        "LANGGRAPH_STRICT_MSGPACK": "true",
        "LANGSMITH_TRACING": "false",
        "OPENAI_BASE_URL": model_url,
        "PYTHONPATH": os.pathsep.join([str(installed), *filter(None, [kept.get("PYTHONPATH")])]),
    }
    program = Path(sys.executable).with_name("langgraph")
    command = [str(program), "dev", "--config", str(config), "--no-browser"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--no-reload", "--port", str(port)],
            cwd=config.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = DevServer(f"http://127.0.0.1:{port}", log)
    try:
        # Do not wait for a server that has ended.
        goes_on = retry_if_not_exception_type(AssertionError)
        for attempt in Retrying(
            wait=wait_fixed(0.2), stop=stop_after_delay(120), retry=goes_on, reraise=True
        ):
            with attempt:
                assert process.poll() is None, server.log
                httpx.get(f"{server.url}/ok").raise_for_status()
        yield server
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def serve_graph(name: str, code: str, make_folder: Callable[[str], Path]) -> Iterator[DevServer]:
    """Run a dev server with one graph of a user, whose module assigns it to ``graph``."""
    folder = make_folder(name)
    (folder / f"{name}.py").write_text(code)
    config = folder / "langgraph.json"
    graphs = {name: f"{folder}/{name}.py:graph"}
    config.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    with serve(config, "http://127.0.0.1:1/v1", make_folder) as server:
        yield server


async def new_thread(client: LangGraphClient) -> str:
    return str((await client.threads.create())["thread_id"])


async def run_graph(
    client: LangGraphClient,
    on: str,
    given: Any,  # noqa: ANN401
    graph: str = "role_play",
    **how: Any,
) -> dict[str, Any]:
    """Run a graph on a thread, and return the values or the error."""
    found: Any = await client.runs.wait(on, graph, input=given, raise_error=False, **how)
    assert isinstance(found, dict)
    return found


async def input_schema(client: LangGraphClient, graph: str) -> dict[str, Any]:
    (assistant,) = await client.assistants.search(graph_id=graph)
    schemas = await client.assistants.get_schemas(assistant["assistant_id"])
    assert schemas["input_schema"] is not None
    return dict(schemas["input_schema"])


@asynccontextmanager
async def mcp_session(client: LangGraphClient) -> AsyncIterator[ClientSession]:
    """Connect to the server's MCP endpoint."""
    url = f"{client.http.client.base_url}".rstrip("/")
    async with (
        streamable_http_client(f"{url}/mcp") as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@pytest.fixture(autouse=True)
def show_log_on_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the dev server's log of a test that used it; pytest shows it on failure."""
    server: DevServer | None = None
    if "dev_server" in request.fixturenames:
        server = request.getfixturevalue("dev_server")
    before = len(server.log) if server else 0
    yield
    if server:
        sys.stdout.write(server.log[before:])


@pytest.fixture
async def client(dev_server: DevServer) -> AsyncIterator[LangGraphClient]:
    """Yield a client of the dev server, and check that its log reports no blocking call."""
    async with get_client(url=dev_server.url) as found:
        yield found
    # The server reports calls that block in a coroutine as errors.
    assert "Blocking" not in dev_server.log
