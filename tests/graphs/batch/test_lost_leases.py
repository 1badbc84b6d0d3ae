"""A batch, or one of its sessions, that another run takes over: the writers and their writes."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from duologue.graphs import BatchError, arun_batch
from duologue.nodes.testing import Call, Prompt, ScriptedChatModel
from support.locks import remove_locks
from support.stores import CellRow, CellsWanted, open_store

TAKEN = r"^This run has lost batch 'b' and stops without writing more"
CALLS = 4
"""Number of calls per cell."""

BATCH = {
    "conversation": {
        "task": "Plan.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": CALLS // 2},
    },
    "vary": {"task": ["Plan a garden.", "Plan a house.", "Plan a meal."]},
}


class Model:
    """A model for all sessions that runs an action at one of its calls."""

    def __init__(self, at: int = -1, event: Callable[[], object] = lambda: None) -> None:
        self.asked = list[tuple[str, int]]()
        self._at, self._event = at, event
        self.model = ScriptedChatModel(self._answer)

    def _answer(self, prompt: Prompt, call: Call) -> str:
        text = prompt[0]["content"]
        task = text[text.index("Plan") :].partition(".")[0]
        turn = 2 * sum(one["role"] == "assistant" for one in prompt) + (call.speaker == "Bob")
        self.asked.append((task, turn))
        if len(self.asked) - 1 == self._at:
            self._event()
        return f"{task}, step {turn}."


def elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on another event loop, whose store has another owner, as in another process."""
    thread = Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join()


async def run(path: Path, model: Model, **options: Any) -> Any:  # noqa: ANN401
    return await arun_batch(
        BATCH, name="b", store=path, model=model.model, concurrency=1, **options
    )


async def rows_of(path: Path) -> list[CellRow]:
    async with open_store(path) as opened:
        return [row async for row in opened.batches.each(CellsWanted(batch="b"))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def running_session(path: Path) -> str:
    async with open_store(path) as opened:
        (row,) = await opened.batches.find(CellsWanted(batch="b", status="running"))
    return row.session


async def test_a_session_that_is_lost_in_the_middle_of_a_cell_goes_on(path: Path) -> None:
    async def take() -> None:
        session = await running_session(path)
        remove_locks(path)
        async with open_store(path) as opened, opened.lock(session):
            pass

    model = Model(CALLS + 1, lambda: elsewhere(take))
    status = await run(path, model)
    assert (status.finished, status.failed, status.stopped) == (3, 0, None)
    # One more call was made: its answer could not be written.
    assert len(model.asked) == 3 * CALLS + 1
    assert len(set(model.asked)) == 3 * CALLS


@pytest.mark.exhaustive
async def test_a_session_that_another_run_keeps_is_paused_and_goes_on_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duologue.graphs.batch.worker._TAKEOVER", 0.1)
    taken, enough = Event(), Event()

    async def keep() -> None:
        session = await running_session(path)
        remove_locks(path)
        async with open_store(path) as opened, opened.lock(session):
            taken.set()
            await asyncio.to_thread(enough.wait)

    thread = Thread(target=lambda: asyncio.run(keep()))

    def begin() -> None:
        thread.start()
        taken.wait()

    status = await run(path, Model(CALLS + 1, begin))
    assert (status.finished, status.of("paused"), status.failed) == (2, 1, 0)
    enough.set()
    thread.join()
    status = await run(path, Model())
    assert (status.finished, status.failed, status.calls) == (3, 0, 3 * CALLS)


@pytest.mark.part(1)
@pytest.mark.parametrize("beat", [0.05, None])
async def test_a_run_that_loses_its_batch_stops_with_one_error_and_writes_no_row(
    beat: float | None, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if beat is not None:
        monkeypatch.setattr("duologue.graphs.batch.driver.BEAT", beat)
    left = list[CellRow]()

    async def take() -> None:
        remove_locks(path)
        async with open_store(path) as opened, opened.lock_batch("b"):
            left.extend([row async for row in opened.batches.each(CellsWanted(batch="b"))])

    model = Model(CALLS + 1, lambda: elsewhere(take))
    with pytest.raises(BatchError, match=TAKEN):
        await run(path, model)
    assert await rows_of(path) == left
    assert [row.status for row in left] == ["finished", "running"]
    # The running session continues under its own lease; the next cell does not begin.
    assert len(model.asked) <= 2 * CALLS
    status = await run(path, model)
    assert (status.finished, status.failed, status.calls) == (3, 0, 3 * CALLS)
    assert len(model.asked) == 3 * CALLS
