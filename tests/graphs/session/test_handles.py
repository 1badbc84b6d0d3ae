"""Handles of sessions and batches, the handles of results, and the last line of a result."""

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from duologue import (
    BatchError,
    BatchRun,
    Result,
    Session,
    SessionError,
    SpecError,
    StoreError,
    ask,
    chat,
    converse,
    load_session,
    role_play,
    run_batch,
    stream,
)
from duologue.nodes.testing import ScriptedChatModel
from support.tables import read_rows

GARDEN = role_play("Plan a garden", "Cook", "Gardener", specify_task=False)
SCRIPT = ["Instruction: Dig.\nInput: None", "Solution: Dug.\nNext request.", "<CAMEL_TASK_DONE>"]


def model(*lines: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*(lines or SCRIPT)])


@pytest.fixture
def result(store: str) -> Result:
    return converse(GARDEN, session="garden", store=store, model=model())


AT: dict[str, Callable[[BaseMessage], Any]] = {
    "message": lambda message: message,
    "id": lambda message: message.id,
    "place": lambda message: "m0001",
    "number": lambda message: 1,
}


@pytest.mark.parametrize("at", AT.values(), ids=AT)
def test_a_fork_goes_on_from_a_message_its_id_or_its_number(
    at: Callable[[BaseMessage], Any], result: Result
) -> None:
    branch = result.session.fork(at=at(result.messages[1]), into="branch")
    assert branch.id == "branch"
    assert branch.state().messages == result.messages[:2]
    assert branch.resume(model=model(*SCRIPT[1:])).transcript == result.transcript


@pytest.mark.parametrize(
    ("at", "error", "words"),
    [
        (HumanMessage("?", id="x"), SessionError, "'garden' has no message 'x'; it has m00"),
        (99, SessionError, "Session 'garden' has no message '99'; it has m0000"),
        (-1, SessionError, "it has m0000 to m000"),
        (HumanMessage("?"), SpecError, "at: must be a message of result.messages, its id or its"),
        (True, SpecError, "at: must be a message of result.messages, its id or its"),
        (1.0, SpecError, "at: must be a message of result.messages, its id or its"),
    ],
    ids=repr,
)
def test_a_message_that_is_not_in_the_session_is_one_error(
    at: Any,  # noqa: ANN401
    error: type[Exception],
    words: str,
    result: Result,
) -> None:
    with pytest.raises(error, match=words):
        result.session.fork(at=at)


def test_a_handle_is_cheap_and_says_what_it_is(tmp_path: Path) -> None:
    handle = Session("s", store=tmp_path / "s.db")
    assert (str(handle), handle.id) == ("s", "s")
    assert repr(Session("s")) == "Session('s', store=None)"
    assert repr(BatchRun("b", store="memory:")) == "BatchRun('b', store='memory:')"
    assert "secret" not in repr(Session("s", store="postgresql://me:secret@host/db"))
    assert handle == Session("s", store=tmp_path / "s.db") != Session("s")
    assert {handle: 1}[pickle.loads(pickle.dumps(handle))] == 1  # noqa: S301  # our own
    with pytest.raises(StoreError, match="there is no such file"):
        handle.state()
    assert not (tmp_path / "s.db").exists()


def test_what_is_not_there_is_named_with_its_store(store: str) -> None:
    with pytest.raises(SessionError, match=f"There is no session 's' in {store}"):
        Session("s", store=store).resume()
    with pytest.raises(BatchError, match=f"There is no batch 'b' in {store}"):
        BatchRun("b", store=store).status()
    with pytest.raises(SessionError, match="is not a valid session id"):
        Session("a b")
    with pytest.raises(SpecError, match="is not a valid name of a batch"):
        BatchRun("a b")


def test_every_result_leads_back_to_its_session(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "mine.db"))
    by_setting = converse(GARDEN, model=model())
    assert by_setting.session.state() == by_setting
    monkeypatch.delenv("DUOLOGUE_STORE")
    assert by_setting.session.state() == by_setting
    asked = ask({"name": "Chef"}, "Soup?", store=store, model=model("Yes."))
    again = asked.session.add_message("User", "And fish?")
    assert again.session == asked.session
    assert again.session.resume(model=model("No.")).text == "No."


def test_results_are_equal_wherever_their_session_is(result: Result) -> None:
    copy = load_session(result.session.dump(), store=f"memory:{uuid4().hex}")
    assert copy.state() == result
    assert copy != result.session
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301  # our own


def test_a_run_takes_a_handle_for_an_id(result: Result, store: str) -> None:
    assert converse(GARDEN, session=result.session, model=model("?")) == result
    kinds = [event.event for event in stream(GARDEN, session=result.session)]
    assert kinds == [event.event for event in result.session.stream()]
    other = converse(GARDEN, session=result.session, store=f"{store}2", model=model())
    assert other.session == Session("garden", store=f"{store}2")


def test_a_handle_has_its_store_and_refuses_another(result: Result) -> None:
    more: Any = {"store": "memory:"}
    with pytest.raises(TypeError, match="there is no option 'store'"):
        result.session.resume(**more)
    with pytest.raises(TypeError, match="there is no option 'store'"):
        list(result.session.stream(**more))


# Text of a result


def test_a_result_that_has_ended_says_why(result: Result) -> None:
    assert result.stop_reason == "done_token"
    assert str(result).splitlines()[-1] == str(result.outcome)


def test_a_result_that_waits_says_for_whom(store: str) -> None:
    waits = converse(chat(), store=store, model=model())
    assert waits.stop_reason is None
    assert str(waits) == "Waiting for User: User, it is your turn. Enter exit to leave."


def test_a_result_that_was_broken_off_says_why_if_it_is_known(store: str) -> None:
    with pytest.raises(ConnectionError):
        converse(
            GARDEN, session="s", store=store, model=model(SCRIPT[0], ConnectionError("no network"))
        )
    broken = Session("s", store=store).state()
    assert (broken.stop_reason, broken.failure) == (None, "ConnectionError('no network')")
    last = str(broken).splitlines()[-1]
    assert last == "Interrupted after 1 message: ConnectionError('no network'). It can be resumed."
    resumed = broken.session.resume(model=model(*SCRIPT[1:]))
    assert (resumed.failure, resumed.stop_reason) == (None, "done_token")
    resumed.session.reset()
    assert "it still runs, or it was interrupted" in str(resumed.session.state())


# Batches


def test_a_batch_is_read_and_deleted_by_its_handle(store: str, tmp_path: Path) -> None:
    batch = {"conversation": GARDEN, "trials": 2}
    status = run_batch(
        batch, name="b", store=store, model=ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
    )
    run = BatchRun("b", store=store)
    assert run.status() == status
    sessions = [row["session"] for row in run.rows()]
    assert run.export(tmp_path / "b.jsonl", status=None).sessions == len(sessions) == 2
    run.delete()
    with pytest.raises(SessionError, match="There is no session"):
        Session(sessions[0], store=store).state()


# Signatures


def test_a_signature_lists_each_option_with_its_default() -> None:
    for function in (converse, stream, ask, run_batch, Session.resume, Session.aanswer):
        found = inspect.signature(function).parameters
        assert all(one.kind is not one.VAR_KEYWORD for one in found.values()), function
        assert (found["model"].default, found["durability"].default) == (None, "sync")
    changed = inspect.signature(Session.fork).parameters["max_tool_rounds"]
    assert str(changed) == "max_tool_rounds: 'int' = <unchanged>"
    assert str(inspect.signature(Session("s").prompt)).startswith("(speaker: str, *, tools: ")


# Streams that their readers leave as the last thing of a program

PROGRAM = """
import asyncio, sys
from contextlib import aclosing
from langgraph.checkpoint.memory import InMemorySaver
from duologue import astream, build_graph, chat, role_play
from duologue.nodes.testing import Reply, ScriptedChatModel

way, mode, store = sys.argv[1:]

def begin():
    if mode in ("token", "message"):
        spec = role_play("Dig", "Cook", "Gardener", specify_task=False)
        model = ScriptedChatModel(lambda prompt: "Instruction: Dig the garden with a spade.")
        return astream(spec, session="left", store=store, model=model)
    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    first = call if mode == "approval" else "They dance in the hive, and the others follow."
    graph = build_graph(
        conversation=chat(assistant={"tools": ["look"], "interrupt_on": {"look": True}}),
        model=ScriptedChatModel(script=[first]),
        checkpointer=InMemorySaver(),
        tools=[look],
    )
    shown = "updates" if mode == "approval" else mode
    config = {"configurable": {"thread_id": "t"}}
    return graph.astream({"messages": ["Hi."]}, config, stream_mode=shown)

def look() -> str:
    "Look."
    return "Seen."

def is_wanted(event):
    if mode in ("token", "message"):
        return event.event == mode
    return mode != "approval" or "__interrupt__" in event

kept = []

async def main():
    events = begin()
    if way == "held":
        kept.append(events)
    if way == "close":
        async with aclosing(events):
            await read(events)
    elif way == "break":
        del events
        async for event in begin():
            if is_wanted(event):
                print("left")
                break
    else:
        await read(events)

async def read(events):
    async for event in events:
        if is_wanted(event):
            print("left")
            if way == "raise":
                raise ZeroDivisionError
            if way == "cancel":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            return

try:
    asyncio.run(main())
except (ZeroDivisionError, asyncio.CancelledError):
    pass
"""


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("way", "mode"),
    [
        *(("break", "token"), ("held", "token"), ("raise", "message")),
        *(("cancel", "message"), ("close", "message")),
        *read_rows(__file__, "a_reader_that_leaves_a_graph_prints_nothing"),
    ],
)
def test_a_reader_that_leaves_a_stream_prints_nothing(way: str, mode: str, tmp_path: Path) -> None:
    """The run is closed before the event loop ends, and the session can be resumed.

    The compiled graph's own stream ends as quietly.
    """
    store = str(tmp_path / "sessions.db")
    command = [sys.executable, "-c", PROGRAM, way, mode, store]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("left\n", "")
    if mode in ("token", "message"):
        model = ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
        assert Session("left", store=store).resume(model=model).stop_reason == "done_token"
