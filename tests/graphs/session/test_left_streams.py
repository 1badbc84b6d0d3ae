"""Streams that their readers leave as the last thing of a program."""

import subprocess
import sys
from pathlib import Path

import pytest

from duologue import Session
from duologue.nodes.testing import ScriptedChatModel

PROGRAM = """
import asyncio, sys
from contextlib import aclosing
from duologue import astream, role_play
from duologue.nodes.testing import ScriptedChatModel

SPEC = role_play("Dig", "Cook", "Gardener", specify_task=False)
way, store = sys.argv[1:]
kept = []

def begin():
    model = ScriptedChatModel(lambda prompt: "Instruction: Dig the garden with a spade.")
    return astream(SPEC, session="left", store=store, model=model)

async def read(events, wanted):
    async for event in events:
        if event.event == wanted:
            if way == "raise":
                raise ZeroDivisionError
            if way == "cancel":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            return

async def main():
    events = begin()
    if way == "held":
        kept.append(events)
    if way == "close":
        async with aclosing(events):
            await read(events, "message")
        return
    if way == "break":
        del events
        async for event in begin():
            if event.event == "token":
                break
    else:
        await read(events, "token" if way == "held" else "message")

try:
    asyncio.run(main())
except (ZeroDivisionError, asyncio.CancelledError):
    pass
"""


@pytest.mark.part(2)
@pytest.mark.parametrize("way", ["break", "held", "raise", "cancel", "close"])
def test_a_reader_that_leaves_a_stream_prints_nothing(way: str, tmp_path: Path) -> None:
    """The run is closed before the event loop ends, and the session can be resumed."""
    store = str(tmp_path / "sessions.db")
    command = [sys.executable, "-c", PROGRAM, way, store]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    model = ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
    assert Session("left", store=store).resume(model=model).stop_reason == "done_token"


GRAPH_PROGRAM = """
import asyncio, sys
from contextlib import suppress
from langgraph.checkpoint.memory import InMemorySaver
from duologue import build_graph, chat
from duologue.nodes.testing import Reply, ScriptedChatModel

way, mode = sys.argv[1:]
kept = []

def look() -> str:
    "Look."
    return "Seen."

async def main():
    call = Reply(tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    first = call if mode == "approval" else "They dance in the hive, and the others follow."
    spec = chat(assistant={"tools": ["look"], "interrupt_on": {"look": True}})
    model = ScriptedChatModel(script=[first])
    graph = build_graph(
        conversation=spec, model=model, checkpointer=InMemorySaver(), tools=[look]
    )
    shown = "updates" if mode == "approval" else mode
    config = {"configurable": {"thread_id": "t"}}
    events = graph.astream({"messages": ["Hi."]}, config, stream_mode=shown)
    if way == "held":
        kept.append(events)
    async for event in events:
        if mode == "approval" and "__interrupt__" not in event:
            continue
        print("left")
        if way == "raise":
            raise ZeroDivisionError
        if way == "cancel":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        break

with suppress(ZeroDivisionError, asyncio.CancelledError):
    asyncio.run(main())
"""


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("way", "mode"),
    [
        ("break", "messages"),
        ("held", "messages"),
        ("held", "updates"),
        ("held", "approval"),
        ("raise", "approval"),
        ("cancel", "messages"),
    ],
)
def test_a_reader_that_leaves_a_graph_prints_nothing(way: str, mode: str) -> None:
    """The compiled graph's own stream ends as quietly as that of a plain graph."""
    command = [sys.executable, "-c", GRAPH_PROGRAM, way, mode]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "left\n"
    assert ended.stderr == ""
