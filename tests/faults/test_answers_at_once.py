"""Two processes answer the same question of one session at the same time."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from duologue import Session, chat, converse
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.stores import SHARED_STORES, open_store, store_address

pytestmark = pytest.mark.process

APPROVE = {"decisions": [{"type": "approve"}]}

ANSWERER = """
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from duologue.graphs import Session, SessionError
from duologue.graphs.store import base
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall

def wire(amount: int) -> str:
    "Wires money."
    with Path(sys.argv[2]).open("a") as ran:
        ran.write(f"{amount}\\n")
    return "Wired."

lock = base.Store.lock

@asynccontextmanager
async def telling(store, session, **options):
    print("waits", flush=True)
    async with lock(store, session, **options) as held:
        yield held

base.Store.lock = telling
base._PATIENCE = 60.0
call = ScriptedToolCall(name="wire", args={"amount": 10_000}, id="2")
model = ScriptedChatModel(script=[Reply(tool_calls=[call])])
value, known = {"decisions": [{"type": "approve"}]}, sys.argv[3] or None
try:
    session = Session("s", store=sys.argv[1])
    session.answer(value, question=known, model=model, tools=[wire])
except SessionError as error:
    print("refused:", error)
else:
    print("answered")
"""


@pytest.fixture(params=SHARED_STORES)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


def wire_to(ran: Path) -> BaseTool:
    @tool
    def wire(amount: int) -> str:
        """Wires money."""
        with ran.open("a") as lines:
            lines.write(f"{amount}\n")
        return "Wired."

    return wire


@pytest.mark.parametrize("is_named", [False, True], ids=["unnamed", "named"])
async def test_one_of_two_processes_answers_and_the_other_is_refused(
    store: str, is_named: bool, tmp_path: Path
) -> None:
    ran = tmp_path / "ran.txt"
    call = ScriptedToolCall(name="wire", args={"amount": 100}, id="1")
    run: dict[str, Any] = {"tools": [wire_to(ran)]}
    talk = chat("Pay.", tools=["wire"], interrupt_on={"wire": True})
    model = ScriptedChatModel(script=[Reply(tool_calls=[call])])
    (question,) = converse(talk, session="s", model=model, store=store, **run).pending
    known = question.id if is_named else ""
    command = [sys.executable, "-c", ANSWERER, store, str(ran), known]
    with ExitStack() as ends:
        # While this process leases the session, both answering processes wait for it.
        async with open_store(store) as opened, opened.lock("s"):
            both = [
                subprocess.Popen(  # noqa: ASYNC220  # nothing else runs in this loop
                    command, stdout=subprocess.PIPE, text=True
                )
                for _ in range(2)
            ]
            for one in both:
                ends.callback(one.wait)
                ends.callback(one.kill)
            for one in both:
                assert one.stdout is not None
                assert one.stdout.readline() == "waits\n"
        said = sorted(one.communicate()[0] for one in both)
    (following,) = Session("s", store=store).state().pending
    assert said == [
        "answered\n",
        f"refused: Session 's' did not accept the answer: the question {question.id!r} was already "
        f"answered or withdrawn; it now waits for an answer to {following.id!r}.\n",
    ]
    assert ran.read_text() == "100\n"
    done = ScriptedChatModel(script=["Done."])
    Session("s", store=store).answer(APPROVE, question=following.id, model=done, **run)
    assert ran.read_text() == "100\n10000\n"
