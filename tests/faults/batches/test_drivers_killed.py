"""The driver of a batch, or its database, is killed at random instants, again and again.

The requests to the model's server show whether any completed call was repeated.
"""

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from drawn_faults import Faults
from duologue.graphs import BatchRun
from duologue.nodes.testing.server import ScriptedServer
from support.batches import CALLS, CELLS, Player
from support.postgres import own_server
from support.stores import open_store

from .drivers import CONCURRENCY, Command
from .work import Work

pytestmark = [pytest.mark.process, pytest.mark.live]


def some_calls_later(work: Work, drawn: Random, driver: Command) -> None:
    """Wait for an instant between the driver's first steps and its last ones."""
    if drawn.random() < 0.2:
        time.sleep(drawn.uniform(0, 0.5))
        return
    until = len(work.player.asked) + drawn.randrange(1, CELLS * CALLS * 2 // 3)
    while driver.is_running and not work.player.wait_for(until, 0.1):
        pass
    time.sleep(drawn.uniform(0, 0.02))


@pytest.mark.parametrize(("kind", "runs", "most"), [("sqlite", 2, 3), ("postgresql", 1, 2)])
def test_a_killed_driver_loses_nothing_and_no_recorded_call_is_made_again(
    kind: str,
    runs: int,
    most: int,
    tmp_path: Path,
    faults: Faults,
    request: pytest.FixtureRequest,
    player: Player,
    server: ScriptedServer,
) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    if kind == "postgresql":
        store = request.getfixturevalue("postgres_url")
    work = Work(tmp_path, store, player, server)
    for number in range(faults.times(runs)):
        drawn = faults.random((kind, number))
        work.begins(f"b{number}")
        kills = drawn.randint(1, most)
        for _ in range(kills):
            driver = work.driver()
            some_calls_later(work, drawn, driver)
            driver.kill()
            asyncio.run(_stands_broken_off(work))
            said = asyncio.run(work.said())
            asked = len(player.asked)
        work.goes_on_to_its_end()
        # No call is repeated whose answer was stored by the last kill; for earlier kills, only the
        # number of repetitions is checked.
        again = player.asked[asked:]
        assert all(turn >= said.get(task, 0) for task, turn in again)
        assert work.repeated <= kills * CONCURRENCY


async def _stands_broken_off(work: Work) -> None:
    """Check that the status of a killed batch is true."""
    async with open_store(work.store) as opened:
        if await opened.batches.get(work.name) is None:
            return
    status = await BatchRun(work.name, store=work.store).astatus()
    assert not status.is_running
    begun = dict(status.rows()).get("interrupted", 0)
    assert begun == status.of("running") <= CONCURRENCY
    assert ("interrupted" in str(status)) == (begun > 0)
    assert sum(number for _, number in status.rows()) == CELLS


def test_a_killed_database_stops_a_batch_once_at_most_and_it_goes_on(
    tmp_path: Path, faults: Faults, player: Player, server: ScriptedServer
) -> None:
    with own_server() as database:
        work = Work(tmp_path, f"{database.url}&connect_timeout=2", player, server)
        for number in range(faults.times(1)):
            drawn = faults.random(("database", number))
            work.begins(f"b{number}")
            driver = work.driver()
            some_calls_later(work, drawn, driver)
            database.kill()
            time.sleep(drawn.choice([0, 0.5, 4]))
            database.start()
            code = driver.ended()
            assert code in (0, 4), driver.errors
            errors = [line for line in driver.errors.splitlines() if "Error" in line]
            assert len(errors) == (code == 4), driver.errors
            assert all("can't be used" in line for line in errors)
            # The drivers wait for the database, not for each other.
            assert "pool_size" not in driver.errors
            work.goes_on_to_its_end()
            assert work.repeated <= CONCURRENCY
