"""Tools of MCP servers, over stdio and HTTP, and the errors if a server or tool is missing."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import ToolMessage
from mcp import ClientSession
from mcp.types import CallToolResult
from typer.testing import CliRunner

from duologue.graphs import (
    Conversation,
    DuologueError,
    Session,
    SpecError,
    ToolServerError,
    aconverse,
    build_graph,
    converse,
    load_conversation,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools.mcp.servers import CommandServer, configured_servers, read_given_servers
from duologue.tools.mcp.tools import ask_server, result_text, tools_of
from duologue.tools.registry.functions import check_arguments
from duologue.tools.registry.hooks import ArgumentsError, languages_of, timeout_of
from duologue.tools.registry.registry import Registry
from support.cli_help import app
from support.log import Failure, fields_of
from support.results import StoredSession, make_session
from support.tables import each_row, read_rows

SERVED = str(Path(__file__).with_name("served.py"))


@pytest.fixture
def command(tmp_path: Path) -> dict[str, Any]:
    """Return a server that is a command and records its events in the test's folder."""
    return {"command": sys.executable, "args": [SERVED, str(tmp_path)]}


class Web:
    """A running server that records its events in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, SERVED, str(folder), "http"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self.server = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    web = Web(tmp_path_factory.mktemp("web"))
    yield web
    web.close()


def talk(*tools: str, **fields: object) -> Conversation:
    given: dict[str, object] = {
        "task": "Sum up.",
        "speakers": [
            # This context needs the estimated tokens of the tools.
            {"name": "Ann", "tools": tools, "context": {"kind": "tokens", "limit": 4000}},
            {"name": "Bob", "replies": [{"kind": "text", "text": "Yes."}]},
        ],
        "end_chat": {"max_iterations": 1},
    }
    return load_conversation(given | fields)


def calls(*wanted: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(
        tool_calls=tuple(
            ScriptedToolCall(name=name, args=args, id=f"c{place}")
            for place, (name, args) in enumerate(wanted)
        )
    )


def run(
    script: Sequence[Line], conversation: Conversation, servers: dict[str, Any]
) -> list[tuple[str, Failure | None]]:
    """Run a conversation; return the results of its calls."""
    model = ScriptedChatModel(script=script)
    return told(converse(conversation, model=model, store="memory:", mcp_servers=servers))


def told(result: StoredSession) -> list[tuple[str, Failure | None]]:
    return [
        (it.text, fields_of(it).failure) for it in result.messages if isinstance(it, ToolMessage)
    ]


def refused(
    conversation: Conversation,
    servers: dict[str, Any],
    kind: type[DuologueError] = SpecError,
) -> str:
    """Run an invalid conversation; return the error's message."""
    model = ScriptedChatModel(script=[])
    with pytest.raises(kind) as caught:
        converse(conversation, model=model, store="memory:", mcp_servers=servers)
    assert model.calls == []
    return str(caught.value)


def still_running(folder: Path) -> list[int]:
    """Return the servers over stdio that have started in this folder and not ended."""
    started = [int(path.stem) for path in folder.glob("*.pid")]
    assert started

    def runs(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    return [pid for pid in started if runs(pid)]


# The tools of a speaker.


@pytest.mark.exhaustive
def test_tools_of_two_servers_run_side_by_side_and_answer_in_order(
    command: dict[str, Any], web: Web, tmp_path: Path
) -> None:
    """G4, A8: their results are text; servers that no speaker names are not started."""
    # Each call waits for the other.
    both = calls(
        ("disk.meet", {"folder": str(tmp_path), "name": "here", "other": "there"}),
        ("web.meet", {"folder": str(tmp_path), "name": "there", "other": "here"}),
    )
    servers = {"disk": command, "web": web.server, "broken": {"command": "no-such-command"}}
    found = run([both, "Well."], talk("web.meet", "disk.meet"), servers)
    assert found == [("here met there", None), ("there met here", None)]
    assert still_running(tmp_path) == []


@each_row("whatever_a_call_comes_to_is_told_to_the_model")
def test_whatever_a_call_comes_to_is_told_to_the_model(
    name: str, args: dict[str, Any], text: str, failure: str | None, web: Web
) -> None:
    """Y19, G4: the server's errors are text; wrong arguments are the model's mistake."""
    # A call may take longer than the connection timeout.
    is_slow = "hang" in name
    conversation = talk(name, tool_timeout=6 if is_slow else 60)
    servers = {"web": web.server | {"connect_timeout": 5 if is_slow else 60}}
    assert run([calls((name, args)), "Well."], conversation, servers) == [(text, failure)]


def test_structured_content_is_the_artifact_unless_it_only_repeats_the_text(web: Web) -> None:
    asked = calls(("web.survey", {"bed": 7}), ("web.note", {"number": 7}))
    model = ScriptedChatModel(script=[asked, "Well."])
    conversation, servers = talk("web.survey", "web.note"), {"web": web.server}
    result = converse(conversation, model=model, store="memory:", mcp_servers=servers)
    found = [one.artifact for one in result.messages if isinstance(one, ToolMessage)]
    assert found == [{"structured_content": {"bed": 7, "plants": ["bean", "pea"]}}, None]


def test_a_session_that_goes_on_does_not_repeat_a_call(web: Web, tmp_path: Path) -> None:
    web.folder.joinpath("notes").unlink(missing_ok=True)
    store = tmp_path / "s.db"
    options: Any = {"mcp_servers": {"web": web.server}}
    script: list[Line] = [calls(("web.note", {"number": 1})), OSError("gone")]
    with pytest.raises(OSError, match="gone"):
        converse(
            talk("web.note"),
            session="s",
            model=ScriptedChatModel(script=script),
            store=store,
            **options,
        )
    result = Session("s", store=store).resume(model=ScriptedChatModel(script=["Well."]), **options)
    assert told(result) == [("2", None)]
    assert web.folder.joinpath("notes").read_text() == "1\n"


@pytest.mark.process
async def test_a_call_that_is_cut_short_leaves_no_process(
    command: dict[str, Any], tmp_path: Path
) -> None:
    model = ScriptedChatModel(script=[calls(("disk.hang", {}))])
    servers = {"disk": command}
    run = asyncio.create_task(
        aconverse(talk("disk.hang"), model=model, store="memory:", mcp_servers=servers)
    )
    while not tmp_path.joinpath("hangs").exists():
        assert not run.done()
        await asyncio.sleep(0.01)
    assert len(still_running(tmp_path)) == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert still_running(tmp_path) == []


async def test_who_is_cancelled_ends_so_whatever_breaks_meanwhile(web: Web) -> None:
    (server,) = read_given_servers({"web": web.server}).values()
    begun = asyncio.Event()

    async def breaks(session: ClientSession) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("broken") from None

    run = asyncio.create_task(ask_server(server, breaks))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_server_that_has_gone_meanwhile_is_told_to_the_model(web: Web) -> None:
    server = {"url": web.server["url"]}
    tools = await tools_of(read_given_servers({"web": server})["web"], "web")
    (gone,) = read_given_servers({"web": {"url": f"http://127.0.0.1:{free_port()}/mcp"}}).values()
    tool = tools["web.note"].model_copy(update={"server": gone})
    model = ScriptedChatModel(script=[calls(("web.note", {"number": 1})), "Well."])
    graph = build_graph(model=model, tools=[tool])
    conversation = talk("web.note")
    state = await graph.ainvoke({"conversation": conversation.stored()})
    ((text, failure),) = told(make_session("s", conversation, dict(state)))
    assert text.startswith("web.note failed: its MCP server can't be reached at ")
    assert failure is Failure.TOOL


@pytest.mark.exhaustive
async def test_nothing_blocks_the_loop(command: dict[str, Any], web: Web) -> None:
    """The dev server refuses blocking calls."""
    for server in read_given_servers({"disk": command, "web": web.server}).values():
        with blockbuster_ctx():
            tools = await tools_of(server, "x")
            assert await tools["x.note"].ainvoke({"number": 1}) == "2"


async def test_what_a_server_says_of_its_tools_gives_them_no_rights(web: Web) -> None:
    tools = await tools_of(read_given_servers({"web": web.server})["web"], "web")
    assert languages_of(tools["web.meet"]) == ()
    assert timeout_of(tools["web.meet"]) is None


@each_row("arguments_are_held_against_the_schema_as_far_as_it_goes")
def test_arguments_are_held_against_the_schema_as_far_as_it_goes(
    schema: dict[str, Any], arguments: dict[str, Any], wrong: str | None
) -> None:
    if wrong is None:
        check_arguments(schema, arguments)
        return
    with pytest.raises(ArgumentsError) as caught:
        check_arguments(schema, arguments)
    assert str(caught.value) == wrong


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_schema_refers_to_elsewhere_is_not_fetched(tmp_path: Path) -> None:
    refers = tmp_path / "schema.json"
    refers.write_text('{"required": ["secret"]}')
    check_arguments({"$ref": refers.as_uri()}, {"a": 1})


@each_row("what_is_no_text_is_named", "result", "text")
def test_what_is_no_text_is_named(result: dict[str, Any], text: str) -> None:
    assert result_text(CallToolResult.model_validate(result)) == text


# Missing servers.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Page(BaseHTTPRequestHandler):
    """A server that answers every request with a web page."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_web_page_is_no_server_and_nobody_waits_for_more() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever).start()
        url = f"http://127.0.0.1:{pages.server_address[1]}/mcp"
        server = {"url": url, "connect_timeout": 10_000}
        said = refused(talk("page.it"), {"page": server}, ToolServerError)
        pages.shutdown()
    assert said == (
        "speakers.0.tools: the MCP server 'page' does not speak MCP (Unexpected content type: "
        "text/html); correct its url"
    )


def python(code: str, **fields: object) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", code], **fields}


HOSTILE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "hostile", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "it", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            print("noise\\n{}", flush=True)
            text = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": "RESULT"})
            print(text.replace('"RESULT"', RESULT), flush=True)
            continue
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A server with one tool, which replies with the text RESULT."""

TEXT = '{"content": [{"type": "text", "text": "%s"}]}'

REPLIES = read_rows(__file__, "replies")
"""Replies of a tool as Python's expressions, with a part of its result and whether it failed."""


@pytest.mark.part(4)
@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_that_is_no_result_is_an_error_of_the_tool(reply: str) -> None:
    server = python(f"RESULT = {reply}\n{HOSTILE}")
    # The test would take hours if the call waited for its timeout.
    conversation = talk("hostile.it", tool_timeout=10_000)
    ((text, failure),) = run(
        [calls(("hostile.it", {})), "Done."], conversation, {"hostile": server}
    )
    words, is_failed = REPLIES[reply]
    assert words in text
    assert (failure is not None) == is_failed


@each_row("a_server_that_is_not_there_is_one_error_before_any_model_is_called", "server", "words")
def test_a_server_that_is_not_there_is_one_error_before_any_model_is_called(
    server: dict[str, Any], words: str, web: Web
) -> None:
    if "args" in server:
        server = {"command": sys.executable, **server}
    ports = {"{free}": str(free_port()), "{web}": web.server["url"].split(":")[2].split("/")[0]}
    for name, port in ports.items():
        words = words.replace(name, port)
        server = server | ({"url": server["url"].replace(name, port)} if "url" in server else {})
    said = refused(talk("get.it"), {"get": server}, ToolServerError)
    assert said == f"speakers.0.tools: the MCP server 'get' {words}"


@each_row("a_tool_that_no_server_has_is_one_error", "tool", "words")
def test_a_tool_that_no_server_has_is_one_error(tool: str, words: str, web: Web) -> None:
    said = refused(talk(tool), {"web": web.server})
    assert said.startswith(f"speakers.0.tools: {words}")


def test_without_the_extra_it_is_said_what_to_install(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duologue.tools.mcp.tools", None)
    said = refused(talk("web.note"), {"web": web.server})
    assert said.startswith(
        "speakers.0.tools: 'web.note' is a tool of an MCP server, which needs more packages ("
    )
    assert said.endswith("--extra mcp` in a clone of duologue")


# Ways to configure servers.


@each_row("a_server_that_is_described_wrongly_is_one_error", "given", "words")
def test_a_server_that_is_described_wrongly_is_one_error(
    given: Any,  # noqa: ANN401
    words: str,
) -> None:
    for refuse in (Registry, lambda registered: build_graph(**registered)):
        with pytest.raises(SpecError) as caught:
            refuse({"mcp_servers": given})
        assert str(caught.value).startswith(words)


@pytest.mark.parametrize("transport", ["http", "streamable-http", "streamable_http"])
def test_a_file_that_other_programs_share_is_read(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "servers.json"
    servers = {
        "disk": {"command": "x", "args": ["y"], "autoApprove": ["z"], "timeout": 60000},
        "net": {"type": transport, "url": "http://x/mcp", "headers": {"Key": "the ${KEY}"}},
    }
    path.write_text(json.dumps({"mcpServers": servers, "theme": "dark"}))
    monkeypatch.setenv("KEY", "secret")
    assert configured_servers() == {}
    monkeypatch.setenv("DUOLOGUE_MCP_SERVERS", str(path))
    found = configured_servers()
    assert found["disk"] == CommandServer(command="x", args=["y"])
    assert found["net"].given() == {
        "transport": "streamable_http",
        "url": "http://x/mcp",
        "headers": {"Key": "the secret"},
    }


@each_row("a_wrong_file_is_one_error_where_a_tool_is_named")
def test_a_wrong_file_is_one_error_where_a_tool_is_named(
    text: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each test has a separate working folder.
    monkeypatch.setenv("DUOLOGUE_MCP_SERVERS", "servers.json")
    if text is not None:
        Path("servers.json").write_text(text)
    assert refused(talk("a.b"), {}).startswith(words)
    run(["Well."], talk(), {})


@pytest.mark.exhaustive
def test_the_command_line_runs_tools_of_the_file_without_handing_on_keys(
    command: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = command | {"env": {"TOKEN": "a ${SECRET}"}}
    tmp_path.joinpath("servers.json").write_text(json.dumps({"mcpServers": {"disk": server}}))
    tmp_path.joinpath("talk.json").write_text(json.dumps(talk("disk.variables").stored()))
    monkeypatch.setenv("DUOLOGUE_MCP_SERVERS", "servers.json")
    monkeypatch.setenv("SECRET", "token")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    wanted = calls(("disk.variables", {"names": ["TOKEN", "SECRET", "OPENAI_API_KEY"]}))
    with ScriptedServer([wanted, "Well."]) as models:
        monkeypatch.setenv("OPENAI_BASE_URL", models.url)
        arguments = ["run", "talk.json", "--store", "s.db", "--json", "--model", "scripted"]
        ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert models.calls[1].prompt[-1]["content"] == "a token, not set, not set"
