"""Tracebacks of errors: they show the user's own code and no frame of this or another library."""

import asyncio
import json
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult

from duologue import (
    BatchRun,
    Conversation,
    DoneToken,
    DuologueError,
    MaxMessages,
    Scenario,
    Session,
    Speaker,
    aconverse,
    alist_sessions,
    astream,
    build_graph,
    converse,
    load_conversation,
    role_play,
    run_batch,
    simulate,
    stream,
)
from duologue.nodes.testing import ScriptedChatModel, ScriptExhaustedError

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


def ask_unknown_speaker() -> None:
    model = ScriptedChatModel(lambda prompt: "CAMEL_TASK_DONE")
    result = converse(GARDEN, model=model, store="memory:")
    result.last_message("Zoe")


def read_events() -> None:
    list(stream(role_play("A garden", "Cook", "Gardener"), model="gpt-4o", store="memory:"))


GARDEN = role_play("A garden", "Cook", "Gardener")
BUSY = Scenario("Get order 7 refunded.")


def run(work: Callable[[], Coroutine[object, object, object]]) -> Callable[[], None]:
    """Return a function that awaits this file's coroutine on a new loop."""

    async def wait() -> None:
        await work()

    return lambda: asyncio.run(wait())


async def read_async_events() -> None:
    async for _ in astream(GARDEN, model="gpt-4o", store="memory:"):
        pass


async def read_async_session() -> None:
    async for _ in Session("unknown", store="memory:").astream():
        pass


UNKNOWN: dict[str, Any] = {"colour": 3}
NOTHING: tuple[Any, ...] = ()

CALLS: dict[str, Callable[[], object]] = {
    "an agent": ask_agent,
    "a server": ask_server,
    "stream": read_events,
    "converse": lambda: converse(GARDEN, model="gpt-4o"),
    "Session": lambda: Session("no id/"),
    "BatchRun": lambda: BatchRun("no name/"),
    "Session.resume": lambda: Session("unknown", store="memory:").resume(),
    "aconverse": run(lambda: aconverse(GARDEN, model="gpt-4o")),
    "astream": run(read_async_events),
    "Session.astate": run(lambda: Session("unknown", store="memory:").astate()),
    "Session.astream": run(read_async_session),
    "alist_sessions": run(lambda: alist_sessions(batch="unknown", store="memory:")),
    "load_conversation": lambda: load_conversation(GARDEN.model_dump() | UNKNOWN),
    "a missing file": lambda: load_conversation("unknown.toml"),
    "run_batch": lambda: run_batch("unknown.toml"),
    "role_play": lambda: role_play("A garden", "Cook", "Cook"),
    "Speaker": lambda: Speaker("Cook", **UNKNOWN),
    "Conversation": lambda: Conversation("A garden", ["Cook"]),  # type: ignore[list-item]
    "Conversation.replace": lambda: GARDEN.replace(**UNKNOWN),
    "DoneToken": lambda: DoneToken("BYE", **UNKNOWN),
    "build_graph": lambda: build_graph(**UNKNOWN),
    "an option": lambda: converse(GARDEN, **UNKNOWN),
    "an async option": run(lambda: aconverse(GARDEN, **UNKNOWN)),
    "a scenario": lambda: simulate("Get order 7 refunded."),  # type: ignore[arg-type]
    "two agents": lambda: simulate(BUSY, str, make_agent=str),
    "a value": lambda: MaxMessages(1, *UNKNOWN),
    "a session": lambda: converse(Session("s")),  # type: ignore[arg-type]
    "no value": lambda: converse(*NOTHING),
    "a frozen field": lambda: setattr(GARDEN, "task", "Beds"),
    "an unknown speaker": lambda: GARDEN.speaker("Zoe"),
    "an unknown speaker of a result": ask_unknown_speaker,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_error_shows_the_user_s_frames_only(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises((DuologueError, KeyError, TypeError)) as caught:
        call()
    names = [Path(frame.filename) for frame in traceback.extract_tb(caught.value.__traceback__)]
    inner = [one for one in names if one != USER and one.parent.name != "asyncio"]
    assert inner == []
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) <= 40


@dataclass(frozen=True)
class FrozenError(Exception):
    number: int


def test_an_error_that_is_a_frozen_dataclass_stays_the_cause() -> None:
    def fails(messages: Sequence[BaseMessage]) -> str:
        raise FrozenError(3)

    with pytest.raises(DuologueError) as caught:
        simulate(BUSY, fails, model=ScriptedChatModel(["Refund order 7."]), store="memory:")
    assert caught.value.__cause__ == FrozenError(3)


class BrokenModel(ScriptedChatModel):
    async def _agenerate(self, *_args: object, **_kwargs: object) -> ChatResult:
        raise TypeError("no number")


@pytest.mark.parametrize(
    "call",
    [
        lambda model: converse(GARDEN, model=model, store="memory:"),
        lambda model: asyncio.run(aconverse(GARDEN, model=model, store="memory:")),
        lambda model: simulate(BUSY, ask_agent, model=model, store="memory:"),
        lambda model: list(stream(GARDEN, model=model, store="memory:")),
    ],
)
def test_an_error_of_the_user_s_model_shows_its_frames(
    call: Callable[[ScriptedChatModel], object],
) -> None:
    with pytest.raises(TypeError, match="no number") as caught:
        call(BrokenModel(script=[]))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "_agenerate"
    others = [Path(one.filename) for one in frames]
    assert [one for one in others if one != USER and one.parent.name != "asyncio"] == []


def test_an_exhausted_script_shows_the_user_s_frames_only() -> None:
    with pytest.raises(ScriptExhaustedError, match="the script has 1 replies") as caught:
        converse(GARDEN, model=ScriptedChatModel(["Plan beds."]), store="memory:")
    assert find_files(caught.value) == {USER}


def test_a_fault_of_the_library_keeps_all_frames() -> None:
    # The standard library raises it, and not this package.
    script: Any = json.loads
    with pytest.raises(TypeError) as caught:
        converse(GARDEN, model=ScriptedChatModel(script), store="memory:")
    assert [one.name for one in traceback.extract_tb(caught.value.__traceback__)][-1] == "loads"


def test_a_cause_in_a_library_is_one_line() -> None:
    with pytest.raises(DuologueError) as caught:
        ask_server()
    cause = caught.value.__cause__
    assert cause is not None
    assert (cause.__traceback__, cause.__context__) == (None, cause.__cause__)


def test_the_cause_begins_in_the_user_s_function() -> None:
    with pytest.raises(DuologueError) as caught:
        ask_agent()
    cause = caught.value.__cause__
    assert isinstance(cause, LookupError)
    assert find_files(cause) == {USER}
    assert traceback.extract_tb(cause.__traceback__)[0].name == "fails"
    assert not getattr(caught.value, "__notes__", [])
