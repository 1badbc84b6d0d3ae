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
