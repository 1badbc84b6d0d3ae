"""A .env file that somebody else has put into the working folder gets no key and runs nothing."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

from duologue.graphs import ModelError, SpecError, aconverse, role_play
from duologue.graphs.addresses import address, is_loopback
from duologue.graphs.settings import load_settings
from duologue.nodes.scripted_server import ScriptedServer

REAL = "sk-real"
EVIL = "http://evil.example/v1"
LOCAL = "http://localhost:11434/v1"


def dotenv(text: str) -> None:
    # Each test has a working folder of its own.
    Path(".env").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "http://localhost:11434/v1",
        "http://LocalHost:1/",
        "https://127.0.0.1:8000/v1",
        "http://127.9.9.9/",
        "http://[::1]:8000/v1",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://localhost/@evil.example",
    ],
)
def test_an_address_on_this_machine(url: str) -> None:
    assert is_loopback(address(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example:80/v1",
        "http://evil.example/localhost",
        "http://evil.example#@localhost",
        "http://evil.example?@127.0.0.1/",
        # The part before the @ is a user.
        "http://localhost@evil.example",
        "http://localhost:80@evil.example/v1",
        "http://evil.example@localhost",
        "http://evil.example\\@localhost",
        "http://localhost\\.evil.example",
        "http://localhost%2eevil.example",
        # Who resolves these decides where they lead.
        "http://localhost.",
        "http://a.localhost",
        "http://localhost.localdomain",
        "http://127.0.0.1.",
        "http://127.1",
        "http://2130706433",
        "http://0x7f000001",
        "http://0177.0.0.1",
        # Every interface of this machine, and its own network.
        "http://0.0.0.0:8000",
        "http://[::]:8000",
        "http://192.168.1.1",
        "http://[fe80::1]",
        "http://[::1%25eth0]/",
        "http://[::ffff:8.8.8.8]/",
    ],
)
def test_an_address_that_is_not_certain_to_be_on_this_machine(url: str) -> None:
    assert not is_loopback(address(url))


@pytest.mark.parametrize(
    ("environment", "text", "key", "url"),
    [
        # The file's address goes with the file's key.
        ({}, f"OPENAI_API_KEY=filed\nOPENAI_BASE_URL={EVIL}", "filed", EVIL),
        ({}, f"DUOLOGUE_BASE_URL={EVIL}\nOPENAI_API_KEY=filed", "filed", EVIL),
        (
            {"OPENAI_API_KEY": REAL},
            f"OPENAI_API_KEY=filed\nOPENAI_BASE_URL={EVIL}",
            "filed",
            EVIL,
        ),
        (
            {"DUOLOGUE_API_KEY": REAL},
            f"OPENAI_API_KEY=filed\nOPENAI_BASE_URL={EVIL}",
            "filed",
            EVIL,
        ),
        # On this machine it needs none, and gets none of the environment's.
        ({}, f"OPENAI_BASE_URL={LOCAL}", None, LOCAL),
        ({"OPENAI_API_KEY": REAL}, f"OPENAI_BASE_URL={LOCAL}", None, LOCAL),
        ({"OPENAI_API_KEY": REAL}, f"OPENAI_BASE_URL={LOCAL}\nOPENAI_API_KEY=f", "f", LOCAL),
        # The environment's address wins, under either name, with whatever key there is.
        ({"OPENAI_BASE_URL": "http://mine"}, f"DUOLOGUE_BASE_URL={EVIL}", None, "http://mine"),
        (
            {"OPENAI_BASE_URL": "http://mine", "OPENAI_API_KEY": REAL},
            f"DUOLOGUE_BASE_URL={EVIL}\nDUOLOGUE_API_KEY=filed",
            REAL,
            "http://mine",
        ),
        ({"OPENAI_BASE_URL": "http://mine"}, "OPENAI_API_KEY=filed", "filed", "http://mine"),
        ({"OPENAI_API_KEY": REAL}, "DUOLOGUE_API_KEY=filed", REAL, None),
        ({"OPENAI_API_KEY": REAL}, "OPENAI_BASE_URL=", REAL, None),
        ({"OPENAI_API_KEY": REAL}, "OPENAI_BASE_URL", REAL, None),
    ],
)
def test_which_key_goes_with_which_address(
    environment: dict[str, str],
    text: str,
    key: str | None,
    url: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dotenv(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.api_key and settings.api_key.get_secret_value(), settings.base_url) == (
        key,
        url,
    )


@pytest.mark.parametrize(
    ("environment", "text", "names"),
    [
        ({"OPENAI_API_KEY": REAL}, f"OPENAI_BASE_URL={EVIL}", ["OPENAI_BASE_URL", EVIL]),
        ({"OPENAI_API_KEY": REAL}, f"duologue_base_url={EVIL}", ["duologue_base_url", EVIL]),
        ({}, f"OPENAI_BASE_URL={EVIL}", ["OPENAI_BASE_URL", EVIL]),
        ({"OPENAI_API_KEY": REAL}, f"OPENAI_API_KEY=\nOPENAI_BASE_URL={EVIL}", [EVIL]),
        ({}, "OPENAI_BASE_URL=http://me:pass@evil.example/v1", ["http://me:***@evil.example"]),
        # Nothing of the environment is filled in, as a shell would do.
        (
            {"OPENAI_API_KEY": REAL},
            f"OPENAI_API_KEY=${{OPENAI_API_KEY}}\nOPENAI_BASE_URL={EVIL}",
            ["OPENAI_API_KEY", "${…}"],
        ),
        (
            {"SECRET": REAL},
            "OPENAI_API_KEY=x\nOPENAI_BASE_URL=http://evil.example/${SECRET}",
            ["OPENAI_BASE_URL", "${…}"],
        ),
        (
            {"OPENAI_CUSTOM_HEADERS": "X-Secret: s"},
            f"OPENAI_API_KEY=x\nOPENAI_BASE_URL={EVIL}",
            ["OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS"],
        ),
        ({}, "DUOLOGUE_STORE=sessions.db", ["DUOLOGUE_STORE", "--store"]),
        ({}, "duologue_store=sessions.db", ["duologue_store"]),
        ({}, "export DUOLOGUE_MCP_SERVERS='servers.json'", ["DUOLOGUE_MCP_SERVERS"]),
        ({}, "DUOLOGUE_MODEL=./model.gguf", ["DUOLOGUE_MODEL", "--model"]),
    ],
)
def test_what_is_not_for_the_file_to_set_is_one_error_that_says_what_to_do(
    environment: dict[str, str],
    text: str,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dotenv(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SpecError) as caught:
        load_settings()
    sentence = str(caught.value)
    assert "\n" not in sentence
    for name in (*names, ".env", "environment"):
        assert name in sentence
    assert REAL not in sentence
    assert "pass" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DUOLOGUE_STORE", "memory:mine"),
        ("DUOLOGUE_MCP_SERVERS", "mine.json"),
        ("DUOLOGUE_MODEL", "mine"),
        ("OPENAI_BASE_URL", "http://mine"),
    ],
)
def test_what_the_environment_sets_too_is_no_fault_of_the_file(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dotenv(f"DUOLOGUE_STORE=x\nDUOLOGUE_MCP_SERVERS=x\nDUOLOGUE_MODEL=x.gguf\n{name}=http://x")
    for one in ("DUOLOGUE_STORE", "DUOLOGUE_MCP_SERVERS", "DUOLOGUE_MODEL"):
        monkeypatch.setenv(one, "set")
    monkeypatch.setenv(name, value)
    settings = load_settings()
    field = name.partition("_")[2].lower()
    assert str(getattr(settings, field)) == value


def test_a_file_that_is_no_text_is_one_error() -> None:
    Path(".env").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"^\.env: can't be read"):
        load_settings()


@pytest.mark.parametrize(
    ("is_here", "filed", "keys"),
    [
        (False, "", []),
        (False, "OPENAI_API_KEY=filed\n", ["Bearer filed"]),
        (True, "", ["Bearer none"]),
        (True, "OPENAI_API_KEY=filed\n", ["Bearer filed"]),
    ],
)
def test_the_key_of_the_environment_never_reaches_an_address_of_the_file(
    filed: str, keys: list[str], monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    for name in ("OPENAI_API_KEY", "DUOLOGUE_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, REAL)
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    talk = role_play("Plan", "Owner", "Gardener")
    with ScriptedServer(["Plant beans.", "<CAMEL_TASK_DONE>"]) as server:
        # Whatever goes anywhere else comes by here, and finds no such page.
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        dotenv(f"OPENAI_BASE_URL={server.url if is_here else EVIL}\n{filed}")
        with nullcontext() if is_here else pytest.raises((SpecError, ModelError)):
            # In a loop of its own, since the loop's client knows the proxy of its first call.
            asyncio.run(aconverse(talk, model="scripted", store="memory:"))
        requests = list(server.requests)
    assert {request.headers.get("authorization") for request in requests} == set(keys)
    assert not any(REAL in repr(request) for request in requests)
