"""Secrets in the addresses of agents, models, MCP servers, stores and files reach no output."""

import asyncio
import json
import logging
import sqlite3
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from duologue import (
    BatchRun,
    ModelUnavailableError,
    Scenario,
    Session,
    Speaker,
    SpecError,
    asimulate,
    ask,
    chat,
    converse,
    list_sessions,
    simulate,
)
from duologue.graphs.common.settings import load_settings
from duologue.graphs.scenarios import run_suite
from duologue.graphs.scenarios.recording import RecordOptions, record
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools.mcp.servers import read_given_servers
from support.cli_help import app

USER, PASSWORD, TOKEN = "planted-user-7d1", "planted-p%40ss-8e2", "planted-token-9f3"
PATH, FRAGMENT = "Pl4ntedPathAb12Cd34Ef56", "planted-fragment-4c5"
PLANTED = (
    *(USER, PASSWORD, "planted-p@ss-8e2", TOKEN, PATH, FRAGMENT),
    b64encode(f"{USER}:planted-p@ss-8e2".encode()).decode().rstrip("="),
)
"""All secrets of the addresses, and the header that clients make of the user and the password."""


class Server(NamedTuple):
    """A server that repeats the address and the keys of each request."""

    origin: str
    answers: list[tuple[int, str]]
    """The status and the body of each next response. A 404 with the request's secrets if empty."""
    seen: list[str]
    """The address and the header with the key of each request."""


@pytest.fixture
def server() -> Iterator[Server]:
    answers, seen = list[tuple[int, str]](), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            seen.append(f"{self.path} {self.headers.get('authorization')}")
            status, body = answers.pop(0) if answers else (404, f"Cannot POST {seen[-1]}")
            self.send_response(status)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST  # noqa: N815  # its name for another method

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield Server(f"http://127.0.0.1:{made.server_port}", answers, seen)
        made.shutdown()


def plant(origin: str) -> str:
    """Return an address with all secrets."""
    scheme, _, host = origin.partition("//")
    return f"{scheme}//{USER}:{PASSWORD}@{host}/x/{PATH}?token={TOKEN}&v=1#{FRAGMENT}"


def reach(server: Server, prefix: str = "") -> list[str]:
    """Return addresses with all secrets: of a server, of no server, and invalid ones."""
    return [
        prefix + plant(server.origin),
        prefix + plant("http://127.0.0.1:1"),
        f"{prefix}http://{USER}:{PASSWORD}/x@shop.example/v1",
        prefix + plant("http://shop.example:port"),
    ]


GOAL = Scenario("Get a refund.", max_iterations=1)
SUITE = {
    "scenarios": {"refund": {"goal": "Get a refund.", "max_iterations": 1}},
}
A2A_ANSWER = json.dumps({"result": {"parts": [{"kind": "text", "text": "Refunded."}]}})


def user() -> ScriptedChatModel:
    return ScriptedChatModel(script=lambda _: "Refund it.")


def run(*words: str) -> str:
    """Run a command, and return its output."""
    ran = CliRunner().invoke(app, words)
    return ran.stdout_bytes.decode() + ran.stderr_bytes.decode() + repr(ran.exception)


def simulated(agent: str, store: str) -> object:
    return simulate(GOAL, agent, model=user(), store=store)


def in_suite(agent: str, store: str) -> object:
    report = run_suite(SUITE, agent, name="b", model=user(), store=store)
    return [repr(report), report.model_dump_json(), repr(BatchRun("b", store=store))]


def by_command(agent: str, store: str) -> object:
    folder = Path(store).parent
    (folder / "suite.toml").write_text('[scenarios.refund]\ngoal = "Get a refund."\n')
    page = folder / "page.html"
    with ScriptedServer(lambda _: "Refund it.") as models, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUOLOGUE_BASE_URL", models.url)
        words = ("--name", "b", "--store", store, "--model", "scripted", "--output", str(page))
        shown = run("simulate", str(folder / "suite.toml"), "--agent", agent, *words)
    return [shown, page.read_text() if page.exists() else ""]


def recorded(agent: str, store: str) -> object:
    place = Path(store).with_suffix(".json")
    work = partial(asimulate, GOAL, agent, model=user(), store=store)
    asyncio.run(record(place, RecordOptions("all"), GOAL, work))
    return place.read_text(encoding="utf-8")


def by_setting(address: str, store: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUOLOGUE_BASE_URL", address)
        patch.setenv("DUOLOGUE_MAX_RETRIES", "0")
        shown = run("models", "--json")
        return [shown, converse(chat("Hi", model="m"), store=store), repr(load_settings())]


def by_mcp(address: str, store: str) -> object:
    servers = {"shop": {"url": address}}
    shown = repr(read_given_servers(servers))
    return [shown, converse(chat("Hi", tools=["shop.find"]), mcp_servers=servers, store=store)]


def by_image(address: str, store: str) -> object:
    return ask(Speaker("Ann", system_prompt="Look."), "Hi", images=[address], store=store)


def as_store(address: str, store: str) -> object:
    return [repr(Session("s", store=address)), converse(chat("Hi"), store=address, model=user())]


def as_name_of_model(address: str, store: str) -> object:
    return converse(chat("Hi", model=address), model=user(), store=store)


def as_name_of_agent(address: str, store: str) -> object:
    spec = {"kind": "simulation", "goal": "Get a refund.", "agent": address}
    return converse(spec, model=user(), store=store)


USES: dict[str, tuple[Callable[[str, str], object], str]] = {
    "A2A agent": (simulated, "a2a:"),
    "agent": (simulated, ""),
    "A2A agent of a suite": (in_suite, "a2a:"),
    "agent of a suite": (in_suite, ""),
    "agent of a command": (by_command, "a2a:"),
    "A2A agent in a recording": (recorded, "a2a:"),
    "model server": (by_setting, ""),
    "MCP server": (by_mcp, ""),
    "image": (by_image, ""),
    "store": (as_store, ""),
    "name of a model": (as_name_of_model, ""),
    "name of an agent": (as_name_of_agent, "a2a:"),
}
"""The uses of addresses, each with the function that uses one, and the beginning of the address."""


def outputs(use: Callable[[str, str], object], address: str, store: str) -> Iterator[str]:
    """Use an address, and yield all texts that follow: results, errors, and the whole store."""
    try:
        found = use(address, store)
        yield from map(str, found if isinstance(found, list) else [found, repr(found)])
    except Exception as error:
        yield from (str(error), repr(error))
        if not isinstance(error.__cause__, ValueError):
            yield "".join(traceback.format_exception(error))
    if Path(store).exists():
        yield from stored(store)


def stored(store: str) -> Iterator[str]:
    """Yield each value of a store, and all pages and exports of its sessions and batches."""
    with closing(sqlite3.connect(store)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608  # ours
                yield from (
                    one.decode("latin-1") if isinstance(one, bytes) else str(one) for one in row
                )
    for row in list_sessions(store=store):
        session = Session(str(row.session), store=store)
        yield json.dumps(session.dump())
        yield from (session.export(one) for one in ("html", "markdown", "jsonl"))
        for words in ("show", "show --why", "show --json", "session dump"):
            yield run(*words.split(), session.id, "--store", store)
    page = str(Path(store).with_name("batch.html"))
    for words in ("sessions --json", "batch list --json", "batch status b", "batch report b"):
        yield run(*words.split(), "--store", store, *(["-o", page] if "report" in words else []))
    yield Path(page).read_text() if Path(page).exists() else ""


@pytest.mark.part(5)
@pytest.mark.parametrize("name", USES)
def test_no_output_contains_a_secret_of_an_address(
    name: str,
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    use, prefix = USES[name]
    texts = list[str]()
    with caplog.at_level(logging.DEBUG):
        # A batch waits for a model server that is down.
        most = 1 if name == "agent of a suite" else None
        for place, address in enumerate(reach(server, prefix)[:most]):
            texts += outputs(use, address, str(tmp_path / f"{place}.db"))
        if name.startswith("A2A"):
            server.answers.extend([(200, A2A_ANSWER)] * 2)
            texts += outputs(use, reach(server, prefix)[0], str(tmp_path / "answered.db"))
    texts += [*capfd.readouterr(), caplog.text]
    texts += (file.read_text(errors="replace") for file in tmp_path.rglob("*.json"))
    assert {one: text for one in PLANTED for text in texts if one in text} == {}
    assert any("***" in text for text in texts)
    # The control: the server has received the secrets, and has repeated them.
    if name not in ("store", "name of a model", "name of an agent"):
        assert all(TOKEN in one and PATH in one for one in server.seen)
        assert any(PLANTED[-1] in one for one in server.seen)


def test_a_resumed_session_needs_the_address_of_its_agent_again(
    server: Server, tmp_path: Path
) -> None:
    """No session contains the address. As a key, it is passed to each run."""
    store, agent = str(tmp_path / "x.db"), "a2a:" + plant(server.origin)
    options: dict[str, Any] = {"name": "b", "model": user(), "store": store}
    first = run_suite(SUITE, agent, **options)
    (row,) = list_sessions(store=store)
    with pytest.raises(SpecError, match="there is no agent 'agent'; pass it in Python, as agents"):
        Session(str(row.session), store=store).resume(model=user())
    server.answers.extend([(200, A2A_ANSWER)] * 2)
    again = run_suite(SUITE, agent, retry_failed=True, **options)
    assert (first.count("error"), again.count("error")) == (1, 0)
    messages = Session(str(row.session), store=store).state().transcript
    assert ("Agent", "Refunded.") in messages


def test_a_name_with_a_secret_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    store = str(tmp_path / "x.db")
    secret, plain = f"http://ann:{TOKEN}@h/v1", "http://h/v1"
    for refused in (secret, f"https://h/mcp?api_key={TOKEN}"):
        with pytest.raises(SpecError, match="model: must be a name, not an address with a secret"):
            chat("Hi", model=refused)
        with pytest.raises(ModelUnavailableError, match="is an address with a secret; set OPENAI_"):
            converse(chat("Hi"), model=refused, store=store)
    assert chat("Hi", model=plain).model == plain
