"""Fixtures of the command line's tests: a clean environment, and servers for models."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from duologue.nodes.testing import Line
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import Serve, isolate, serving


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Yield a function that starts a scripted server and sets the environment for it."""
    with ExitStack() as servers:

        def start(*script: Line, **options: Any) -> ScriptedServer:
            return servers.enter_context(serving(monkeypatch, *script, **options))

        yield start


@pytest.fixture
def server(serve: Serve) -> ScriptedServer:
    """Return a server for a chat."""
    return serve("It is 42.", "Bye.")
