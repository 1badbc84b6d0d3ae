"""Settings from the environment and a .env file, with one error that names the fault."""

import asyncio
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import SecretStr

from duologue.graphs import ModelError, SpecError, astream, converse, list_sessions, role_play
from duologue.graphs.common.addresses import check_address, is_loopback, show_address
from duologue.graphs.common.settings import Settings, environment_variables, load_settings
from duologue.graphs.events import Notice
from duologue.nodes.models.client.failures import address_of
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.tables import each_row, read_rows


def dotenv(*lines: str) -> None:
    # Each test has a separate working folder.
    Path(".env").write_text("\n".join(lines), encoding="utf-8")


def test_without_any_variable_there_is_no_key_no_server_and_no_model() -> None:
    settings = load_settings()
    assert (settings.api_key, settings.base_url, settings.model, settings.store) == (None,) * 4
    assert (settings.timeout, settings.max_retries) == (120, 4)
    assert settings.embedded_context == 8192
    assert settings.max_reply_size == 16 * 2**20


def test_the_page_names_all_variables() -> None:
    page = Path(__file__).parents[3].joinpath("docs/models.md").read_text(encoding="utf-8")
    columns = "".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    named = re.findall(r"`((?:DUOLOGUE|OPENAI)_[A-Z_]+)`", columns)
    assert {*named} == {*environment_variables(), "DUOLOGUE_TRACEBACK"}


def text_of(value: object) -> str:
    """Return the value of a setting as text. Empty for None."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return "" if value is None else str(value)


@pytest.mark.parametrize(
    ("environment", "text", "expected"), read_rows(__file__, "which_value_is_read")
)
def test_which_value_is_read(
    environment: dict[str, str],
    text: str,
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dotenv(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert {name: text_of(getattr(settings, name)) for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "value"),
    read_rows(__file__, "a_wrong_value_is_one_error_that_names_the_variable"),
)
@pytest.mark.parametrize("filed", [True, False])
def test_a_wrong_value_is_one_error_that_names_the_variable(
    name: str, value: str, *, filed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if filed:
        dotenv(f"{name}={value}")
    else:
        monkeypatch.setenv(name, value)
    field = next(one for one in Settings.model_fields if name.lower().endswith(one))
    with pytest.raises(SpecError) as caught:
        getattr(load_settings(), field)
    sentence = str(caught.value)
    assert name in sentence
    assert value in sentence
    assert "\n" not in sentence


def test_a_wrong_setting_shows_before_the_model_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", "soon")
    model = ScriptedChatModel(script=[])
    with pytest.raises(SpecError, match="DUOLOGUE_TIMEOUT"):
        converse(role_play("Plan", "Owner", "Gardener"), model=model, store="memory:")
    assert model.calls == []


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert "sk-very-secret" not in repr(load_settings())
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", "soon")
    with pytest.raises(SpecError) as caught:
        load_settings()
    assert "sk-very-secret" not in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-sécret")
    with pytest.raises(SpecError, match=r"OPENAI_API_KEY: must be printable ASCII$"):
        load_settings()


# A .env file from someone else in the working folder gets no key and runs nothing.


REAL = "sk-real"
EVIL = "http://evil.example/v1"


def refused() -> dict[str, str]:
    """Return the settings that can't be read, with their errors."""
    settings, found = load_settings(), {}
    for name in Settings.model_fields:
        try:
            getattr(settings, name)
        except SpecError as error:
            found[name] = str(error)
    return found


@each_row("an_address_on_this_machine")
def test_an_address_on_this_machine(url: str) -> None:
    assert is_loopback(check_address(url))


@each_row("an_address_that_is_not_certain_to_be_on_this_machine")
def test_an_address_that_is_not_certain_to_be_on_this_machine(url: str) -> None:
    assert not is_loopback(check_address(url))


@pytest.mark.parametrize(
    ("environment", "text", "names"),
    read_rows(__file__, "what_is_not_for_the_file_to_set_is_one_error_that_says_what_to_do"),
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
    (sentence,) = refused().values()
    assert "\n" not in sentence
    for name in (*names, ".env", "environment"):
        assert name in sentence
    assert REAL not in sentence
    assert "pass" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    read_rows(__file__, "what_the_environment_sets_too_is_no_fault_of_the_file"),
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


def test_a_file_that_is_no_text_is_one_error_for_all_it_may_set() -> None:
    Path(".env").write_bytes(b"\xff\xfe\x00")
    found = refused()
    assert found.keys() == Settings.model_fields.keys() - {"store", "mcp_servers"}
    (sentence,) = set(found.values())
    assert sentence.startswith(".env: can't be read")


def test_a_line_in_another_encoding_or_in_none_spoils_no_other(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    Path(".env").write_bytes(b"OPENAI_API_KEY=\xe9\nif this: that\nDUOLOGUE_MODEL=filed\nX=\xff")
    assert load_settings().model == "filed"
    found = refused()
    assert found.keys() == {"api_key"}
    assert found["api_key"].startswith("OPENAI_API_KEY: its value in .env is not UTF-8")
    assert (capfd.readouterr().err, caplog.text) == ("", "")


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "text",
    read_rows(__file__, "a_fault_in_the_file_stops_nothing_that_does_not_need_it"),
)
def test_a_fault_in_the_file_stops_nothing_that_does_not_need_it(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    Path(".env").write_bytes(text.encode("latin-1"))
    assert len(refused()) == 1
    script = ["Instruction: Plant.", "Solution: Planted. Next request.", "<CAMEL_TASK_DONE>"]
    model = ScriptedChatModel(script=script)
    talk = role_play("Plan", "Owner", "Gardener", specify_task=False)
    assert converse(talk, model=model, store="memory:").outcome is not None
    assert list_sessions(store="memory:none") == []
    with pytest.raises(SpecError) if "STORE" in text else nullcontext():
        assert list_sessions() == []


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_openais_own_address_gets_the_key_of_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dotenv(f"OPENAI_BASE_URL={url}")
    assert refused().keys() == {"base_url"}
    monkeypatch.setenv("OPENAI_API_KEY", REAL)
    settings = load_settings()
    assert settings.base_url == url
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == REAL
    for other in ("https://api.openai.com/v1@evil.example", "https://api.openai.com.evil/v1"):
        dotenv(f"OPENAI_BASE_URL={other}")
        assert refused().keys() == {"base_url"}


@each_row("what_is_shown_of_an_address_holds_no_secret", "url", "seen")
def test_what_is_shown_of_an_address_holds_no_secret(url: str, seen: str) -> None:
    assert show_address(check_address(url)) == seen
    assert address_of(Settings(base_url=url)) == seen


@pytest.mark.parametrize(
    ("is_here", "filed", "keys"),
    read_rows(__file__, "the_key_of_the_environment_never_reaches_an_address_of_the_file"),
)
def test_the_key_of_the_environment_never_reaches_an_address_of_the_file(
    filed: str, keys: list[str], monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    for name in ("OPENAI_API_KEY", "DUOLOGUE_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, REAL)
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    talk = role_play("Plan", "Owner", "Gardener")
    with ScriptedServer(["Plant beans.", *["<CAMEL_TASK_DONE>"] * 2]) as server:
        # Requests to any other address pass this proxy and get "not found".
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        dotenv(f"OPENAI_BASE_URL={server.url if is_here else EVIL}\n{filed}")
        notices: list[str] = []

        async def run() -> None:
            async for event in astream(talk, model="scripted", store="memory:"):
                if isinstance(event, Notice):
                    notices.append(event.text)

        with nullcontext() if is_here else pytest.raises((SpecError, ModelError)):
            # Use a new loop, because a loop's client keeps the proxy of its first call.
            asyncio.run(run())
        requests = list(server.requests)
    assert {request.headers.get("authorization") for request in requests} == set(keys)
    assert not any(REAL in repr(request) for request in requests)
    if is_here:
        assert len(notices) == (not filed)
        assert all("but the key is in the environment" in notice for notice in notices)


def test_a_process_elsewhere_has_the_settings_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another process gets the settings without the file, and no key of an unrelated address."""
    for name in environment_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "of the environment")
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "1")
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9/v1\nDUOLOGUE_MODEL=m\n")
    here, sent = load_settings(), environment_variables()
    assert (here.api_key, here.model, here.max_retries) == (None, "m", 1)
    monkeypatch.chdir(tmp_path.parent)
    for name, value in sent.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == here.model_dump()
