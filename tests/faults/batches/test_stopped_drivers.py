"""Drivers that are stopped, lose their batch to a second driver, and continue; two drivers at once.

The requests to the model's server and the store's final content show whether all went well.
"""

import asyncio
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg
import pytest

from drawn_faults import Faults
from duologue.nodes.testing.server import ScriptedServer
from support.batches import Player
from support.locks import remove_locks

from .drivers import CONCURRENCY, Command
from .work import Work

pytestmark = [pytest.mark.process, pytest.mark.live]

PATIENCE = 120.0
"""Seconds that a driver may need on a busy machine."""

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


class Place:
    """A batch's work in one kind of store, in which a driver's lock can be removed."""

    def __init__(self, folder: Path, url: str, player: Player, server: ScriptedServer) -> None:
        self.work = Work(folder, url, player, server)
        self.player = player
        self._server = server
        self._path = folder / "s.db"
        self._url = url
        self._is_file = url.startswith("sqlite:")

    def driver(self, name: str) -> Command:
        """Start a driver whose connections can be found by its name."""
        named = "" if self._is_file else f"&application_name={name}"
        return self.work.driver(store=self._url + named)

    def begin_and_stop(self, drawn: Random) -> Command:
        """Start a driver, stop it with calls in flight, and remove its lock."""
        calls = len(self._server.calls) + drawn.randrange(20, 90)
        # Without this, the driver might finish first.
        self._server.hold(calls - 1)
        driver = self.driver("first")
        self._server.wait_for(calls, PATIENCE)
        self.stop(driver)
        self.cut_off("first")
        self._server.release()
        return driver

    def stop(self, driver: Command) -> None:
        """Stop a driver outside a commit; inside one, SQLite would block all other writers."""
        while True:
            driver.stop()
            if not self._is_file or _is_writable(self._path):
                return
            driver.signal(signal.SIGCONT)
            time.sleep(0.01)

    def cut_off(self, name: str) -> None:
        """Remove a driver's lock, as if its machine had been suspended."""
        if self._is_file:
            remove_locks(self._path)
            return
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = %s",
                [name],
            )


def _is_writable(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


@pytest.fixture
def place_of(
    tmp_path: Path, request: pytest.FixtureRequest, player: Player, server: ScriptedServer
) -> Callable[[str], Place]:
    def made(kind: str) -> Place:
        url = f"sqlite:///{tmp_path}/s.db"
        if kind == "postgresql":
            url = request.getfixturevalue("postgres_url")
        return Place(tmp_path, url, player, server)

    return made


def stops_with_one_error(driver: Command) -> None:
    """Check that a driver that has lost its batch ends with one error."""
    assert driver.ended(PATIENCE) == 4, driver.errors
    *progress, error = driver.errors.splitlines()
    assert re.match(r"Error: This run has lost batch 'b\d'", error), error
    assert all(" done" in line for line in progress), driver.errors


@KINDS
def test_a_stopped_driver_that_is_continued_writes_nothing_over_its_successor(
    kind: str, faults: Faults, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    work = place.work
    for number in range(faults.times(1)):
        drawn = faults.random((kind, number))
        work.begins(f"b{number}")
        first = place.begin_and_stop(drawn)
        second = place.driver("second")
        assert second.ended(PATIENCE) == 0, second.errors
        asyncio.run(work.is_whole())
        first.signal(signal.SIGCONT)
        stops_with_one_error(first)
        asyncio.run(work.is_whole())
        # Each of its sessions repeats at most one call: in flight, or about to be made, at the
        # stop.
        assert work.repeated <= CONCURRENCY


@KINDS
def test_a_stopped_driver_that_is_continued_meanwhile_leaves_the_batch_to_its_successor(
    kind: str, faults: Faults, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    work, player = place.work, place.player
    drawn = faults.random(kind)
    work.begins("b0")
    first = place.begin_and_stop(drawn)
    before = len(player.asked)
    second = place.driver("second")
    assert player.wait_for(before + 10, PATIENCE)
    first.signal(signal.SIGCONT)
    stops_with_one_error(first)
    assert second.ended(PATIENCE) == 0, second.errors
    asyncio.run(work.is_whole())
    assert work.repeated <= CONCURRENCY


@KINDS
def test_of_two_drivers_that_start_at_once_one_runs_the_batch(
    kind: str, place_of: Callable[[str], Place]
) -> None:
    place = place_of(kind)
    place.work.begins("b0")
    drivers = [place.driver(name) for name in ("first", "second")]
    codes = [driver.ended(PATIENCE) for driver in drivers]
    refused = "Error: Batch 'b0' is running already"
    for driver, code in zip(drivers, codes, strict=True):
        assert code == 0 or driver.errors.startswith(refused), driver.errors
    assert 0 in codes
    asyncio.run(place.work.is_whole())
    assert place.work.repeated == 0


def test_a_driver_whose_connections_are_ended_goes_on_with_new_connections(
    place_of: Callable[[str], Place],
) -> None:
    place = place_of("postgresql")
    work, player = place.work, place.player
    work.begins("b0")
    driver = place.driver("first")
    for calls in (20, 50, 80):
        assert player.wait_for(calls, PATIENCE)
        place.cut_off("first")
    assert driver.ended(PATIENCE) == 0, driver.errors
    asyncio.run(work.is_whole())
    assert work.repeated == 0
