"""Processes that run the same sessions at the same time. No tests here."""

import asyncio
import multiprocessing
import re
from multiprocessing.process import BaseProcess
from pathlib import Path

from duologue.graphs import SessionError, aconverse, role_play
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel

SESSIONS, ROUNDS = 6, 12

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["duologue.graphs.session.converse", "duologue.nodes.testing"])


def said(number: int, turn: int) -> str:
    """Return the message for a turn of a session; each turn and session has a different message."""
    if turn % 2:
        return f"Solution: {number} has done step {turn}.\nNext request."
    return f"Instruction: {number} does step {turn}.\nInput: None"


async def converse_with_record(number: int, store: str, record: Path) -> None:
    """Run a session to its end, even if another process leases it now; record each model call."""

    def play(prompt: Prompt) -> Reply:
        own = sum(message["role"] == "assistant" for message in prompt)
        turn = 2 * own + ("Solution:" in prompt[0]["content"])
        with record.open("a") as file:
            file.write(f"{number} {turn}\n")
        return Reply(text=said(number, turn), delay=0.01)

    garden = role_play(
        f"Plan garden {number}", "Owner", "Gardener", specify_task=False, max_iterations=ROUNDS
    )
    while True:
        model = ScriptedChatModel(script=play)
        try:
            await aconverse(garden, session=f"s{number}", store=store, model=model)
            return
        except SessionError as error:
            # Another process runs the session, or has just taken it over.
            if not re.search("busy|no longer held", str(error)):
                raise


def work(store: str, record: Path) -> None:
    async def all_of_them() -> None:
        talks = (converse_with_record(number, store, record) for number in range(SESSIONS))
        await asyncio.gather(*talks)

    asyncio.run(all_of_them())


def started(store: str, record: Path) -> BaseProcess:
    process = CONTEXT.Process(target=work, args=(store, record))
    process.start()
    return process
