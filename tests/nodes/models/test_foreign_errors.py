"""Exceptions of a program around a conversation pass through its model calls unchanged."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from duologue.graphs import Conversation, MaxMessages, ModelError, Session, Speaker, converse
from duologue.nodes.testing.server import ScriptedServer
from support.tables import read_rows

PAIR = Conversation("Greet.", [Speaker("Ann"), Speaker("Ben")], end_chat=MaxMessages(4))
STORE = "memory:foreign"


class BudgetSpentError(Exception):
    """An exception by which a program around a conversation stops it."""


class LibraryError(Exception):
    """An exception of a library, as its ``__module__`` says."""


def raise_at(number: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error in the call of this number, in the place of OpenAI's client that sends it."""
    send: Any = AsyncOpenAI.request
    calls: list[object] = []

    async def counted(self: AsyncOpenAI, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        calls.append(arguments)
        if len(calls) == number:
            raise error
        return await send(self, *arguments, **options)

    monkeypatch.setattr(AsyncOpenAI, "request", counted)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    script = [f"Hello {number}." for number in range(9)]
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield


@pytest.mark.usefixtures("server")
def test_a_programs_own_exception_stops_a_session_that_resumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raise_at(3, BudgetSpentError("no budget is left"), monkeypatch)
    with pytest.raises(BudgetSpentError, match="no budget is left"):
        converse(PAIR, model="scripted", session="one", store=STORE)
    stopped = Session("one", store=STORE).state()
    assert [said for _, said in stopped.transcript] == ["Hello 0.", "Hello 1."]
    resumed = Session("one", store=STORE).resume(model="scripted")
    assert resumed.transcript[:2] == stopped.transcript
    assert resumed.outcome is not None


@pytest.mark.usefixtures("server")
def test_an_exception_of_python_means_that_the_reply_is_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raise_at(1, KeyError("choices"), monkeypatch)
    with pytest.raises(ModelError, match="does not answer like OpenAI's API: KeyError: 'choices'"):
        converse(PAIR, model="scripted", store="memory:")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("model", ["scripted", "deepseek:deepseek-chat"])
@pytest.mark.parametrize(
    ("module", "passes"),
    read_rows(__file__, "an_exceptions_package_decides_whether_it_passes"),
)
def test_an_exceptions_package_decides_whether_it_passes(
    monkeypatch: pytest.MonkeyPatch, model: str, module: str, passes: bool
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    monkeypatch.setattr(LibraryError, "__module__", module)
    raise_at(1, LibraryError("enough"), monkeypatch)
    with pytest.raises(LibraryError if passes else ModelError, match="enough"):
        converse(PAIR, model=model, store="memory:")
