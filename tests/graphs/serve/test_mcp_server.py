"""Conversations as tools of an MCP server, called by the official client."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.context import RequestContext
from mcp.types import (
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)
from pydantic import BaseModel

from duologue.graphs import (
    Conversation,
    MaxMessages,
    SchemaFormat,
    Session,
    Speaker,
    chat,
    role_play,
)
from duologue.nodes.testing import Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import duologue, isolate, serving
from support.served import TOKEN, connect, serve_by_http, serve_tools
from support.tables import read_rows

GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
GARDEN_SCRIPT = ["Instruction: Dig.", "Solution: Dug a bed. Next request.", "<CAMEL_TASK_DONE>"]


class Bed(BaseModel):
    """A bed of a garden."""

    plant: str
    rows: int


def answers_by_schema() -> Conversation:
    planner = Speaker("Planner", format=SchemaFormat(Bed), writes_output=True)
    return Conversation("Plan a bed", [planner, Speaker("Gardener")], end_chat=MaxMessages(1))


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def session_of(result: CallToolResult) -> str:
    assert result.meta is not None
    return str(result.meta["session"])


class Person:
    """A person at a client, who fills in forms."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.answers = list(answers)
        self.asked: list[ElicitRequestParams] = []

    async def __call__(
        self, context: RequestContext[ClientSession, Any], params: ElicitRequestParams
    ) -> ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return ElicitResult.model_validate({"action": answer})
        return ElicitResult(action="accept", content=answer)


async def test_a_call_runs_the_conversation_and_returns_its_output(store: str) -> None:
    async with connect(serve_tools(store, *GARDEN_SCRIPT, garden=GARDEN)) as client:
        result = await client.call_tool("garden", {"task": "Plan a balcony"})
    assert not result.isError
    assert text_of(result) == "Solution: Dug a bed. Next request."
    stored = Session(session_of(result), store=store).state()
    assert stored.conversation.task == "Plan a balcony"
    assert result.meta == {"session": stored.session_id, "stop_reason": "done_token"}


async def test_an_output_with_a_schema_is_structured(store: str) -> None:
    reply = '{"plant": "bean", "rows": 3}'
    async with connect(serve_tools(store, reply, garden=answers_by_schema())) as client:
        result = await client.call_tool("garden", {})
    assert result.structuredContent == {"plant": "bean", "rows": 3}
    assert json.loads(text_of(result)) == result.structuredContent


@pytest.mark.part(1)
@pytest.mark.parametrize("letter", ["x", "園", "\N{SEEDLING}", "\N{ZERO WIDTH SPACE}"])
async def test_a_tool_of_a_large_conversation_has_less_than_2_kb(letter: str, store: str) -> None:
    task = letter * 50_000
    talks = {
        "long": GARDEN.replace(task=task, title=letter * 5_000),
        "titled": chat().replace(title=task),
        "many": Conversation(task=task, speakers=[Speaker(f"{letter}{n}" * 20) for n in range(9)]),
    }
    async with connect(serve_tools(store, **talks)) as client:
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == [*talks]
    for tool in listed:
        assert len(tool.model_dump_json(exclude_none=True).encode()) < 2_000


async def test_the_schema_contains_only_what_is_left_open(store: str) -> None:
    async with connect(serve_tools(store, garden=GARDEN, bees=chat())) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    first = {name: next(iter(tool.inputSchema["properties"])) for name, tool in listed.items()}
    assert first == {"garden": "task", "bees": "message"}
    assert listed["garden"].description == "Plan a garden. A conversation of Owner and Gardener."


async def test_each_message_is_a_progress_notification(store: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with connect(serve_tools(store, *GARDEN_SCRIPT, garden=GARDEN)) as client:
        result = await client.call_tool("garden", {}, progress_callback=progress)
    assert seen == [
        (1, f"Session {session_of(result)} starts."),
        (2, "Owner: Instruction: Dig. Input: None"),
        (3, "Gardener: Solution: Dug a bed. Next request."),
        (4, "Owner: <CAMEL_TASK_DONE>"),
    ]
    # Without an argument, the conversation has its own task.
    assert Session(session_of(result), store=store).state().conversation.task == "Plan a garden"


async def test_a_client_without_forms_answers_by_a_further_call(store: str) -> None:
    async with connect(serve_tools(store, "They dance.", "They do.", bees=chat())) as client:
        asked = await client.call_tool("bees", {"message": "How do bees talk?"})
        name = session_of(asked)
        assert not asked.isError
        assert text_of(asked).startswith("They dance.\n\nUser, it is your turn.")
        assert "call bees again with this session and the answer" in text_of(asked)
        more = await client.call_tool("bees", {"session": name, "answer": "At night?"})
        assert text_of(more).startswith("They do.")
        again = await client.call_tool("bees", {"session": name})
        assert text_of(again) == text_of(more)
        ended = await client.call_tool("bees", {"session": name, "answer": "exit"})
        assert text_of(ended) == "They do."
        assert ended.meta == {"session": name, "stop_reason": "quit"}
        late = await client.call_tool("bees", {"session": name, "answer": "Hello?"})
        assert late.isError
        assert "does not wait for an answer" in text_of(late)


async def test_a_person_who_declines_can_answer_later(store: str) -> None:
    person = Person("decline", "cancel", {"text": "Really?"}, {"text": "exit"})
    server = serve_tools(store, "Hi.", "Hi.", "Yes.", garden=chat())
    async with connect(server, elicitation_callback=person) as client:
        for _ in range(2):
            asked = await client.call_tool("garden", {"message": "Hello"})
            assert "waits for an answer" in text_of(asked)
        ended = await client.call_tool("garden", {"session": session_of(asked)})
    assert person.asked[0].message.startswith("Hi.")
    assert text_of(ended) == "Yes."
    assert ended.meta is not None
    assert ended.meta["stop_reason"] == "quit"


CALL = ScriptedToolCall(name="calculator", args={"expression": "2*3"}, id="c1")
APPROVED = Reply(tool_calls=[CALL])


def sums() -> Conversation:
    return chat(
        "How many?", tools=["calculator"], interrupt_on={"calculator": True}, max_iterations=1
    )


async def test_a_tool_call_is_approved_by_a_form_of_choices(store: str) -> None:
    person = Person({"decision0": "edit", "args0": "no JSON"}, {"decision0": "approve"}, "cancel")
    server = serve_tools(store, APPROVED, "Six.", garden=sums())
    async with connect(server, elicitation_callback=person) as client:
        await client.call_tool("garden", {})
    first, second = person.asked[:2]
    fields = first.model_dump()["requestedSchema"]["properties"]
    assert "approve" in fields["decision0"]["enum"]
    assert 'calculator with {"expression": "2*3"}' in first.message
    assert "not valid JSON" in second.message


async def test_a_tool_call_is_approved_by_a_further_call(store: str) -> None:
    async with connect(serve_tools(store, APPROVED, "Six.", garden=sums())) as client:
        asked = await client.call_tool("garden", {})
        sample = '{"decisions": [{"type": "approve"}]}'
        assert sample in text_of(asked)
        more = await client.call_tool("garden", {"session": session_of(asked), "answer": sample})
        assert text_of(more).startswith("Six.")


async def test_a_session_is_unknown_to_other_clients_and_to_other_tools(store: str) -> None:
    server = serve_tools(store, "They dance.", "Yes.", bees=chat(), ants=chat())
    async with connect(server) as mine, connect(server) as other:
        name = session_of(await mine.call_tool("bees", {"message": "How do bees talk?"}))
        for client, tool in ((other, "bees"), (mine, "ants")):
            for given in ({"session": name}, {"session": name, "answer": "Hello"}):
                refused = await client.call_tool(tool, given)
                assert refused.isError
                known, unknown = text_of(refused), await client.call_tool(tool, {"session": "x"})
                assert known.replace(name, "x") == text_of(unknown)
        result = await mine.call_tool("bees", {"session": name, "answer": "Really?"})
        assert text_of(result).startswith("Yes.")


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    read_rows(__file__, "wrong_arguments"),
)
async def test_wrong_arguments_are_one_sentence_and_call_no_model(
    tool: str, arguments: dict[str, Any], problem: str, store: str
) -> None:
    # The script is empty, so a call of the model would be another error.
    async with connect(serve_tools(store, garden=GARDEN, bees=chat())) as client:
        result = await client.call_tool(tool, arguments)
    assert result.isError
    assert text_of(result).startswith(problem)


async def test_an_error_names_the_session_that_can_be_continued(store: str) -> None:
    async with connect(serve_tools(store, GARDEN_SCRIPT[0], garden=GARDEN)) as client:
        failed = await client.call_tool("garden", {})
        assert failed.isError
        found = re.search(
            r"Call garden again with session '(garden-\w+)' to continue\.$", text_of(failed)
        )
        assert found is not None
        assert Session(found[1], store=store).state().outcome is None


async def test_a_cancelled_call_can_be_continued(store: str) -> None:
    is_asked, is_cancelled = asyncio.Event(), asyncio.Event()
    started: list[str] = []

    async def wait(
        context: RequestContext[ClientSession, Any], params: ElicitRequestParams
    ) -> ElicitResult:
        is_asked.set()
        # The client receives nothing else meanwhile.
        await asyncio.wait_for(is_cancelled.wait(), 60)
        return ElicitResult(action="accept", content={"text": "exit"})

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        if message is not None and message.endswith(" starts."):
            started.append(message.split()[1])

    server = serve_tools(store, "They dance.", garden=chat())
    async with connect(server, elicitation_callback=wait) as client:
        first = {"message": "How do bees talk?"}
        call = asyncio.create_task(client.call_tool("garden", first, progress_callback=progress))
        await asyncio.wait_for(is_asked.wait(), 60)
        cancelled = CancelledNotificationParams(requestId=client._request_id - 1)
        await client.send_notification(ClientNotification(CancelledNotification(params=cancelled)))
        is_cancelled.set()
        with pytest.raises(McpError, match="cancelled"):
            await call
        arguments = {"session": started[0]}
        ended = await client.call_tool("garden", arguments, progress_callback=progress)
    assert text_of(ended) == "They dance."


def test_a_body_that_is_deep_large_or_no_json_is_refused(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    deep = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": %b1%b}'
    with serve_by_http(serve_tools(store, garden=GARDEN)) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        client.headers["Accept"] = "application/json, text/event-stream"
        client.headers["Content-Type"] = "application/json"
        for body in (
            b"[" * 200_000,
            deep % (b'{"a":' * 20_000, b"}" * 20_000),
            b"[" + b"{}," * 70_000 + b"{}]",
            b"{",
            b'"\xff"',
        ):
            response = client.post("/mcp", content=body)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["code"] == -32700
            assert error["message"].startswith("the body can't be read as JSON (")
        assert client.post("/mcp", content=b" " * 300_001).status_code == 413
    assert [one for one in caplog.records if one.exc_info] == []


def test_files_and_the_token_are_checked_before_they_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    risky = GARDEN.replace(sandbox={"level": "host"})
    for name, talk in (("a/garden", GARDEN), ("b/garden", GARDEN), ("risky", risky)):
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.json").write_text(json.dumps(talk.stored()))
    # Without a check, the command would find that its port is not free, instead of serving.
    with serving(monkeypatch), socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for names, token, problem in (
            (["a/garden", "b/garden"], "", "another file is served as 'garden', too; rename"),
            (["risky"], "", "risky.json: sandbox.level: 'host' is not allowed"),
            (["a/garden"], "short", "DUOLOGUE_MCP_TOKEN: must have at least 16"),
        ):
            monkeypatch.setenv("DUOLOGUE_MCP_TOKEN", token)
            ran = duologue("mcp", *(f"{name}.json" for name in names), "--http", port)
            assert (ran.exit_code, ran.stdout) == (2, "")
            assert problem in ran.stderr


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a server whose model answers from a script."""
    with ScriptedServer(["They dance.", "They do.", "Yes."]) as model:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        yield kept | {
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "any",
            "DUOLOGUE_MODEL": "scripted",
            "DUOLOGUE_STORE": str(tmp_path / "sessions.db"),
        }


# The log on stdout is as noisy as a tool that prints.
PROGRAM = (
    "import logging, sys; logging.basicConfig(stream=sys.stdout, level=logging.INFO); "
    "from duologue.graphs.cli.app import main; main()"
)

PAGE = Path(__file__).parents[3].joinpath("docs", "studio.md").read_text(encoding="utf-8")
CONFIGURED = [
    *map(json.loads, re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)),
]
"""The configurations on the page."""


def arguments_on_page(folder: Path) -> list[str]:
    """Return the arguments that the page configures for Claude Desktop, with files of the test."""
    (found,) = (one["mcpServers"]["conversations"] for one in CONFIGURED if "mcpServers" in one)
    assert Path(found["command"]).name == "duologue"
    assert {*found["env"]} == {"OPENAI_API_KEY"}
    command, *files = found["args"]
    for file in files:
        (folder / Path(file).name).write_text('kind = "chat"\n')
    return ["-c", PROGRAM, command, *(str(folder / Path(file).name) for file in files)]


def requests_on_page(port: str, token: str) -> tuple[str, dict[str, str]]:
    """Return the address and the headers that the page configures for an editor."""
    (found,) = (one for one in CONFIGURED if "servers" in one)
    (asked,) = found["inputs"]
    server = found["servers"]["conversations"]
    header = server["headers"]["Authorization"].replace(f"${{input:{asked['id']}}}", token)
    return server["url"].replace(":8765/", f":{port}/"), {"Authorization": header}


async def converse_about_bees(client: ClientSession) -> None:
    """Start a chat, and answer its question by a form and by a further call."""
    await client.initialize()
    assert [tool.name for tool in (await client.list_tools()).tools] == ["garden", "review"]
    seen: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    first = {"message": "How do bees talk?"}
    asked = await client.call_tool("review", first, progress_callback=progress)
    assert text_of(asked).startswith("They do.")
    assert seen[1:] == [
        "User: How do bees talk?",
        "Assistant: They dance.",
        "User: At night?",
        "Assistant: They do.",
    ]
    ended = await client.call_tool("review", {"session": session_of(asked), "answer": "exit"})
    assert ended.meta is not None
    assert ended.meta["stop_reason"] == "quit"


LOUD = """
from langchain_core.tools import tool
print("The tools are loaded.", flush=True)
@tool
def dance() -> str:
    "Dance."
    return ""
"""
"""A module of tools that prints."""


@pytest.mark.exhaustive
async def test_the_command_serves_a_file_on_stdin_and_stdout(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    arguments = [*arguments_on_page(tmp_path), "--tools", "loud"]
    command = StdioServerParameters(
        command=sys.executable, args=arguments, env={**environment, "PYTHONPATH": str(tmp_path)}
    )
    person, received = Person({"text": "At night?"}, "decline"), list[object]()

    async def receive(message: object) -> None:
        received.append(message)

    async with (
        stdio_client(command) as (reads, writes),
        ClientSession(
            reads, writes, elicitation_callback=person, message_handler=receive
        ) as client,
    ):
        await converse_about_bees(client)
    # A line that is not of the protocol is received as an error.
    assert [one for one in received if isinstance(one, Exception)] == []


@asynccontextmanager
async def http_client(address: str, token: str, person: Person) -> AsyncIterator[ClientSession]:
    port = str(urlsplit(address).port)
    url, headers = requests_on_page(port, token)
    assert url == address
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (reads, writes, _),
        ClientSession(reads, writes, elicitation_callback=person) as client,
    ):
        yield client


@pytest.fixture
def web(tmp_path: Path, environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the address and the token that the command prints."""
    arguments = [sys.executable, *arguments_on_page(tmp_path), "--http", "0"]
    log = tmp_path / "stderr"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next(line for line in lines if line.startswith("http"))
        token = next(lines).rpartition(" ")[2].strip()
        yield address.strip(), token
    finally:
        process.terminate()
        rest, _ = process.communicate()
    # The clients have closed their connections.
    assert "Traceback" not in log.read_text() + rest


@pytest.mark.exhaustive
async def test_the_command_serves_a_file_over_streamable_http(web: tuple[str, str]) -> None:
    mine, others = Person({"text": "At night?"}, "decline"), Person("decline")
    async with httpx.AsyncClient(headers={"Authorization": "Bearer another"}) as http:
        assert (await http.post(web[0])).status_code == 401
    async with http_client(*web, mine) as client:
        await converse_about_bees(client)
        async with http_client(*web, others) as other:
            await other.initialize()
            asked = await other.call_tool("review", {"message": "Is it true?"})
            refused = await client.call_tool("review", {"session": session_of(asked)})
            assert refused.isError
            assert "there is no session" in text_of(refused)
