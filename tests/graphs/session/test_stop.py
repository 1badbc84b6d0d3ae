"""Stop requests from another process or thread: the session ends after its current turn (Y20).

The runs are in threads, or in a process, and use a server that delays one of its answers.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from duologue import (
    Conversation,
    DuologueError,
    EndChat,
    MaxMessages,
    Reason,
    Result,
    Session,
    SessionError,
    StopRequested,
    StoreError,
    ToolCalled,
    aconverse,
    chat,
    list_sessions,
)
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.breaking import Breakage
from support.cli_help import duologue, isolate, meanwhile
from support.fork_help import YES, plain, with_verdicts
from support.log import kind_of
from support.results import outcome_of
from support.stores import SHARED_STORES, open_store, store_address
from support.tables import read_rows

STOPPERS = [{"name": "Ann", "checks_completion": True}, {"name": "Ben", "checks_completion": True}]
CASES: dict[str, dict[str, Any]] = read_rows(__file__, "stops")


def case(name: str) -> tuple[Conversation, list[Line], int, list[str], str]:
    """Return a conversation, its script, the delayed answer, and its messages and end."""
    row = CASES[name]
    stoppers = {"speakers": STOPPERS} if row.get("stoppers") else {}
    conversation = plain(**stoppers, **row["fields"])
    return conversation, with_verdicts(row["lines"]), row["held"], row["said"], row["why"]


@pytest.fixture(params=SHARED_STORES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the address of the store in the settings."""
    isolate(monkeypatch, tmp_path)
    store = store_address(request.param, request)
    monkeypatch.setenv("DUOLOGUE_STORE", store)
    return store


@pytest.fixture
def sqlite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return an SQLite file for the store; the settings name a scripted model."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
    return str(tmp_path / "sessions.db")


@contextmanager
def running(
    conversation: Conversation, lines: list[Line], held: int
) -> Iterator[tuple[ScriptedServer, list[Result]]]:
    """Run a conversation on its own loop and store, with one delayed answer."""
    results: list[Result] = []

    def run() -> None:
        results.append(asyncio.run(aconverse(conversation, session="g")))

    with ScriptedServer(lines, hold=[held]) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        with meanwhile(run):
            server.wait_for(held + 1, timeout=60)
            try:
                yield server, results
            finally:
                server.release()


def assert_stopped(store: str, said: list[str], why: str) -> None:
    """Check the state, the list and the pages of a stopped session, and that it asks no more."""
    g = Session("g", store=store)
    result = g.state()
    assert [text for _, text in result.transcript] == said
    assert result.stop_reason == "stop_requested"
    assert str(result.outcome) == f"Ended after {why}."
    rows = [(row.status, row.reason) for row in list_sessions(store=store)]
    assert rows == [("finished", "stop_requested")]
    assert g.resume(model=ScriptedChatModel(script=[])) == result
    refused = duologue("stop", "g")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert refused.stderr == "Error: Session 'g' has ended already.\n"


@pytest.mark.part(3)
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_asked_to_stop_ends_after_its_turn(name: str, sqlite: str) -> None:
    conversation, lines, held, said, why = case(name)
    with running(conversation, lines, held) as (server, _):
        Session("g", store=sqlite).stop()
    assert len(server.calls) == len(lines)
    assert_stopped(sqlite, said, why)


@pytest.mark.exhaustive
@pytest.mark.live
def test_a_run_in_another_process_is_asked_by_a_command(
    place: str, start_child: Callable[..., Any]
) -> None:
    conversation, lines, held, said, why = case("in a turn")
    with ScriptedServer(lines, hold=[held]) as server:
        child = start_child(
            environment={"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
            conversation=conversation.model_dump(mode="json"),
            session="g",
            store=place,
        )
        server.wait_for(held + 1, timeout=60)
        asks = duologue("stop", "g")
        assert (asks.exit_code, asks.stderr) == (0, "")
        assert asks.stdout == "Asked g to stop after its current turn.\n"
        server.release()
        assert "error" not in child.result()
    assert_stopped(place, said, why)


def test_a_command_that_is_asked_to_stop_says_why_and_has_done_its_work(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, lines, held, said, why = case("in a turn")
    Path("talk.json").write_text(json.dumps(conversation.stored()))
    with ScriptedServer(lines, hold=[held]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)

        def stop() -> None:
            server.wait_for(held + 1, timeout=60)
            try:
                Session("g", store=sqlite).stop()
            finally:
                server.release()

        with meanwhile(stop):
            ran = duologue("run", "talk.json", "--session", "g")
        assert (ran.exit_code, ran.stderr) == (0, "")
        assert ran.stdout.count(f"\nEnded after {why}.\n") == 1
        again = duologue("resume", "g")
        assert again.exit_code == 0
        assert f"\nEnded after {why}.\n" in again.stdout
        assert len(server.calls) == len(lines)
    assert_stopped(sqlite, said, why)


def test_what_else_held_is_told_too(sqlite: str) -> None:
    talk = plain(
        speakers=STOPPERS, end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 5}
    )
    with running(talk, ["A1", YES], 1) as (_, results):
        Session("g", store=sqlite).stop()
    assert outcome_of(results[0]).reasons == (Reason.STOP_REQUESTED, Reason.COMPLETED)


def test_a_session_that_was_broken_off_is_not_running_and_forgets_what_it_was_asked(
    place: str,
) -> None:
    g = Session("g", store=place)
    breakage, asked = Breakage(), list[Prompt]()

    def answer(prompt: Prompt) -> str:
        asked.append(prompt)
        if len(asked) == 1:
            return "A1"
        g.stop()
        assert [row.stop_requested for row in list_sessions(store=place)] == [True]
        breakage.now()

    model = ScriptedChatModel(script=answer)
    with breakage.under_way(), pytest.raises(DuologueError):
        asyncio.run(aconverse(plain(), session="g", store=place, model=model))
    with pytest.raises(SessionError, match=r"'g' is not running; there is nothing to stop\."):
        g.stop()
    assert duologue("stop", "g").exit_code == 4
    ended = g.resume(model=ScriptedChatModel(script=["B1", "A2", "B2"]))
    assert ended.stop_reason == "max_iterations"
    assert not list_sessions(store=place)[0].stop_requested


RING = Reply(tool_calls=(ScriptedToolCall(name="bell", id="a"),))
IN_A_TOOL: dict[str, tuple[EndChat, list[Line], tuple[Reason, ...]]] = {
    "turn": (EndChat(), [RING, "It rang."], (Reason.STOP_REQUESTED,)),
    "cap": (
        EndChat(when=StopRequested() & MaxMessages(limit=2)),
        [RING, "It rang.", "B1"],
        (Reason.STOP_REQUESTED, Reason.MAX_MESSAGES),
    ),
    "tool": (
        EndChat(when=StopRequested() & ToolCalled(tool="bell", by="Ben")),
        [RING, "It rang.", RING],
        (Reason.STOP_REQUESTED, Reason.TOOL_CALLED),
    ),
}
"""End conditions, the lines until the end, and its reasons."""


@pytest.mark.parametrize(("end_chat", "lines", "reasons"), IN_A_TOOL.values(), ids=IN_A_TOOL)
async def test_a_stop_in_a_tool_waits_for_the_turn_or_for_the_end_joined_to_it(
    end_chat: EndChat, lines: list[Line], reasons: tuple[Reason, ...], tmp_path: Path
) -> None:
    store = f"memory:{tmp_path.name}"

    @tool
    async def bell() -> str:
        """Ring."""
        await Session("g", store=store).astop()
        return "Ding."

    speakers = [{"name": name, "tools": ["bell"]} for name in ("Ann", "Ben")]
    conversation = plain(speakers=speakers, end_chat=end_chat)
    model = ScriptedChatModel(script=lines)
    ended = await aconverse(conversation, session="g", store=store, model=model, tools=[bell])
    assert len(model.calls) == len(lines)
    assert outcome_of(ended).reasons == reasons
    kinds = [kind_of(message) for message in ended.messages]
    assert kinds[:4] == ["instruction", "tool_calls", "tool_result", "speech"]
    assert kinds[-1] == ("tool_result" if lines[-1] is RING else "speech")
    assert await Session("g", store=store).aresume(model=model) == ended


async def test_a_session_that_waits_and_has_lost_its_steps_is_told_of(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    talk = chat()
    await aconverse(talk, session="lost", store=store, model=ScriptedChatModel(["Hi."]))
    async with open_store(store) as opened, opened.lock("lost") as held:
        await held.checkpointer.adelete_thread("lost")
    with pytest.raises(StoreError, match="session 'lost' can't be read: it is waiting, but its"):
        await Session("lost", store=store).astop()
