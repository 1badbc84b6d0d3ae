"""Many conversations at once, with a server that sends faulty replies now and then."""

import asyncio
import gc
import sys
from itertools import pairwise
from random import Random

import pytest
from tenacity import Retrying, stop_after_delay, wait_fixed

from drawn.replies import reply
from drawn_faults import Faults
from duologue import ModelError, Session, aconverse, list_sessions, load_conversation
from support.faulty_server import Body, FaultyServer, Sent

from .faulty_talk import set_up

pytestmark = pytest.mark.exhaustive

ANN = {"name": "Ann", "tools": ["calculator"]}
TALK = load_conversation(
    {
        "task": "Plan a garden.",
        "speakers": [ANN, {"name": "Bob", "checks_completion": True}],
        "end_chat": {"max_iterations": 2},
    }
)
ROUNDS = 5


class Server:
    """A server that sends a faulty reply one time in ten, and counts the faulty replies."""

    def __init__(self, draw: Random, share: float) -> None:
        self._draw = draw
        self._share = share
        self.faulty = 0

    def answer(self, _: str, body: Body) -> Sent:
        is_faulty = self._draw.random() < self._share
        self.faulty += is_faulty
        return reply(body, self._draw, faults=2 if is_faulty else 0)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


async def errors_of(count: int) -> list[str]:
    """Run conversations at once; return the messages of their errors."""

    async def one(number: int) -> str:
        try:
            result = await aconverse(TALK, store="memory:many", session=f"s{number}")
        except ModelError as error:
            return str(error)
        assert result.outcome is not None
        return ""

    return [said for said in await asyncio.gather(*map(one, range(count))) if said]


def test_only_faulty_replies_make_conversations_fail_and_nothing_is_left(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(faults.random(), 0.1)
    count, blocks = faults.times(20), []
    with FaultyServer(server.answer) as http:
        monkeypatch.setenv("OPENAI_BASE_URL", http.url)
        for _ in range(ROUNDS):
            faulty = server.faulty
            errors = asyncio.run(errors_of(count))
            # A faulty reply fails at most one conversation; a sound reply fails none.
            assert len(errors) <= server.faulty - faulty
            unreached = f"the model server at {http.url} can't be reached"
            assert not [said for said in errors if said.startswith(unreached)]
            for attempt in Retrying(wait=wait_fixed(0.01), stop=stop_after_delay(10), reraise=True):
                with attempt:
                    assert http.open == 0
            # Sessions in memory stay as long as the process, so they are no leak.
            for session in list_sessions(store="memory:many"):
                Session(session.session, store="memory:many").delete()
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    # A leaked session would add blocks in every round; a cache that fills adds them in one round.
    assert min(after - before for before, after in pairwise(blocks)) < 250 * count
