"""One conversation with a faulty server, and the sentence in which it ends. No tests here."""

from collections.abc import Callable
from typing import Any

import pytest

from duologue.graphs import ModelError, converse, load_conversation, stream
from support.faulty_server import Body, FaultyServer, Sent

SPEC: dict[str, Any] = {
    "task": "Plan a garden.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}
TALK = load_conversation(SPEC)
EVENTS = {"Content-Type": "text/event-stream"}


def set_up(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Set the settings of a model without retries, and further settings."""
    given = {"MODEL": "drawn", "MAX_RETRIES": "0", "API_KEY": "k"} | settings
    for name, value in given.items():
        monkeypatch.setenv(f"DUOLOGUE_{name}", value)


def whole() -> None:
    converse(TALK, store="memory:faulty")


def streamed() -> None:
    list(stream(TALK, store="memory:faulty"))


def error_of(
    answer: Callable[[str, Body], Sent], run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the sentence in which a run ends, with URL for the origin of the server's address."""
    with FaultyServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(ModelError) as caught:
            run()
        return str(caught.value).replace(server.url.removesuffix("/v1"), "URL")
