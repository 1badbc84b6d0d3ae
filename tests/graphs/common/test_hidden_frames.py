"""Tracebacks of errors: they show the user's own code and no frame of this or another library."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from langchain_core.messages import BaseMessage

from duologue import DuologueError, Scenario, Session, converse, role_play, simulate, stream
from duologue.nodes.testing import ScriptedChatModel

USER = Path(__file__)


def find_files(error: BaseException) -> set[Path]:
    return {Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)}


def ask_agent() -> None:
    def fails(messages: Sequence[BaseMessage]) -> str:
        raise LookupError("the database is down")

    model = ScriptedChatModel(["Refund order 7."])
    simulate(Scenario("Get order 7 refunded."), fails, model=model, store="memory:")


def ask_server() -> None:
    model = ScriptedChatModel(["Refund order 7."])
    agent = "http://127.0.0.1:9/v1"
    simulate(Scenario("Get order 7 refunded."), agent, model=model, store="memory:")


def read_events() -> None:
    list(stream(role_play("A garden", "Cook", "Gardener"), model="gpt-4o", store="memory:"))


@pytest.mark.parametrize(
    "call",
    [
        ask_agent,
        ask_server,
        read_events,
        lambda: converse(role_play("A garden", "Cook", "Gardener"), model="gpt-4o"),
        lambda: Session("unknown", store="memory:").resume(),
    ],
)
def test_an_error_shows_the_user_s_frames_only(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(DuologueError) as caught:
        call()
    shown = traceback.format_exception(caught.value)
    assert len("".join(shown).splitlines()) <= 40
    inner = [one for one in find_files(caught.value) if one != USER]
    assert len(inner) <= 1, "the public function may be shown"


def test_the_cause_begins_in_the_user_s_function() -> None:
    with pytest.raises(DuologueError) as caught:
        ask_agent()
    cause = caught.value.__cause__
    assert isinstance(cause, LookupError)
    assert find_files(cause) == {USER}
    assert traceback.extract_tb(cause.__traceback__)[0].name == "fails"
    assert not getattr(caught.value, "__notes__", [])
