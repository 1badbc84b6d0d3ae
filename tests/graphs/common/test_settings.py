"""Settings from the environment and a .env file, with one error that names the fault."""

from pathlib import Path

import pytest

from duologue.graphs import SpecError, converse, role_play
from duologue.graphs.common.settings import Settings, load_settings
from duologue.nodes.testing import ScriptedChatModel
from support.tables import read_rows


def dotenv(*lines: str) -> None:
    # Each test has a separate working folder.
    Path(".env").write_text("\n".join(lines), encoding="utf-8")


def test_without_any_variable_there_is_no_key_no_server_and_no_model() -> None:
    settings = load_settings()
    assert (settings.api_key, settings.base_url, settings.model, settings.store) == (None,) * 4
    assert (settings.timeout, settings.max_retries) == (120, 4)
    assert settings.embedded_context == 8192
    assert settings.max_reply_size == 16 * 2**20


@pytest.mark.parametrize("prefix", ["OPENAI", "DUOLOGUE"])
def test_key_and_address_are_read_under_both_names(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{prefix}_API_KEY", "secret")
    monkeypatch.setenv(f"{prefix}_BASE_URL", "http://here:1/v1")
    settings = load_settings()
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "secret"
    assert settings.base_url == "http://here:1/v1"


def test_our_own_names_come_before_openais(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://theirs/v1")
    monkeypatch.setenv("DUOLOGUE_BASE_URL", "http://ours/v1")
    assert load_settings().base_url == "http://ours/v1"


OTHERS = [
    ("DUOLOGUE_MODEL", "gpt-5", "model", "gpt-5"),
    ("DUOLOGUE_STORE", "memory:x", "store", "memory:x"),
    ("DUOLOGUE_TIMEOUT", "0.5", "timeout", 0.5),
    ("DUOLOGUE_MAX_RETRIES", "0", "max_retries", 0),
    ("DUOLOGUE_EMBEDDED_CONTEXT", "512", "embedded_context", 512),
    ("DUOLOGUE_MAX_REPLY_SIZE", "64MiB", "max_reply_size", 64 * 2**20),
    ("DUOLOGUE_MAX_REPLY_SIZE", "1024", "max_reply_size", 1024),
    ("DUOLOGUE_MCP_SERVERS", "servers.json", "mcp_servers", Path("servers.json")),
    ("duologue_model", "gpt-5", "model", "gpt-5"),
]


@pytest.mark.parametrize(("name", "value", "field", "expected"), OTHERS)
def test_the_others_are_read_from_the_environment(
    name: str, value: str, field: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(load_settings(), field) == Settings.model_fields[field].default
    monkeypatch.setenv(name, value)
    assert getattr(load_settings(), field) == expected


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [one for one in OTHERS if one[2] not in ("store", "mcp_servers")],
)
def test_models_and_numbers_are_read_from_a_file(
    name: str, value: str, field: str, expected: object
) -> None:
    dotenv(f"{name}={value}")
    assert getattr(load_settings(), field) == expected


def test_a_file_in_the_working_folder_is_read_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dotenv('OPENAI_API_KEY="from file"', "DUOLOGUE_MODEL=filed", "ELSE=anything")
    monkeypatch.setenv("DUOLOGUE_MODEL", "set")
    settings = load_settings()
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "from file"
    assert settings.model == "set"


def test_space_around_an_address_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", " http://localhost:1/v1 ")
    assert load_settings().base_url == "http://localhost:1/v1"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    settings = load_settings()
    assert settings.api_key is None
    assert settings.base_url is None


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
