"""An error that affects all cells stops a batch once, with one sentence; later it continues."""

import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import BatchRun
from duologue.nodes.testing.server import ScriptedServer
from support.batches import CALLS, CELLS, Player, batch, written
from support.relay import Relay
from support.tables import read_rows

from .drivers import CONCURRENCY, Command

pytestmark = [pytest.mark.process, pytest.mark.live]


NO_OTHERS: Mapping[str, str] = {}


class Place:
    """A batch's surroundings: its server, its store and its file."""

    def __init__(self, folder: Path) -> None:
        self.player = Player()
        self.server = ScriptedServer(self.player, api_key="right")
        self.store = f"sqlite:///{folder}/s.db"
        self.file = written(folder, batch())
        self._folder = folder
        self.url: str | None = None
        """The address to use in place of the server's own."""

    def command(
        self, *arguments: str, environ: Mapping[str, str] = NO_OTHERS, most_bytes: int = 0
    ) -> Command:
        given = {
            "OPENAI_BASE_URL": self.url or self.server.url,
            "OPENAI_API_KEY": "right",
            "DUOLOGUE_STORE": self.store,
            # As by default, a connection that breaks in the middle of an answer is tried again.
            "DUOLOGUE_MAX_RETRIES": "1",
        }
        return Command(
            self._folder, "batch", *arguments, environ={**given, **environ}, most_bytes=most_bytes
        )

    def driver(
        self, environ: Mapping[str, str] = NO_OTHERS, *options: str, most_bytes: int = 0
    ) -> Command:
        arguments = ["run", str(self.file), "--name", "b", "--concurrency", str(CONCURRENCY)]
        return self.command(*arguments, *options, environ=environ, most_bytes=most_bytes)

    def status(self) -> Any:  # noqa: ANN401  # the status of a batch
        return BatchRun("b", store=self.store).status()

    def goes_on(self, repeated: int = 0) -> None:
        """Run the same command again, after the fault is repaired."""
        again = self.driver()
        assert again.ended() == 0, again.errors
        status = self.status()
        assert (status.finished, status.failed, status.stopped) == (CELLS, 0, None)
        assert status.calls == CELLS * CALLS == len(set(self.player.asked))
        assert self.player.repeated() <= repeated


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    with place.server:
        yield place


def error_of(command: Command, code: int) -> str:
    """Return the command's one line of stderr."""
    assert command.ended() == code, command.errors
    (line,) = command.errors.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.mark.parametrize(
    ("what", "says"),
    [("key", "rejected the key"), ("model", "has no model 'scripted'"), ("gone", "can't be reach")],
)
def test_a_model_that_is_lost_on_the_way_stops_it_once(what: str, says: str, place: Place) -> None:
    driver = place.driver(NO_OTHERS, "--patience", "0")
    assert place.player.wait_for(50)
    before = len(place.server.requests)
    match what:
        case "key":
            place.server._api_key = "another"
        case "model":
            place.server._models = ("another",)
        case _:
            place.server.close()
    assert says in error_of(driver, 3)
    # At most, each running session meets the error.
    assert len(place.server.requests) <= before + 2 * CONCURRENCY
    status = place.status()
    assert (status.failed, status.is_running, status.left > 0) == (0, False, True)
    assert says in str(status.stopped)
    place.server._api_key, place.server._models = "right", ("scripted",)
    if what == "gone":
        with ScriptedServer(place.player, api_key="right") as other:
            place.server = other
            # The server received these calls but did not answer them.
            place.goes_on(repeated=CONCURRENCY)
    else:
        place.goes_on()


@pytest.fixture
def relay(place: Place) -> Iterator[Relay]:
    """The server's address, which can be unreachable for a while."""
    with Relay(place.server.url) as relay:
        place.url = relay.url
        yield relay


def test_an_outage_in_the_middle_costs_nothing_but_time(place: Place, relay: Relay) -> None:
    """A batch of 200 sessions, without retries of OpenAI's client, and two outages."""
    cells = 200
    written(place.file.parent, batch(cells))
    driver = place.driver({"DUOLOGUE_MAX_RETRIES": "0"})
    for number, calls in enumerate((100, 500), 1):
        assert place.player.wait_for(calls, 60)
        relay.break_off()
        while driver.errors.count("can't be reached; its calls wait, for up to") < number:
            assert driver.is_running, driver.errors
            time.sleep(0.1)
        asked = len(place.player.asked)
        status = place.status()
        assert (status.failed, status.of("paused"), status.is_running) == (0, 0, True)
        time.sleep(2)
        assert len(place.player.asked) == asked
        relay.restore()
    assert driver.ended(120) == 0, driver.errors
    assert driver.errors.count("All model servers answer again.") == 2
    status = place.status()
    assert (status.finished, status.failed, status.stopped) == (cells, 0, None)
    assert status.calls == cells * CALLS == len(set(place.player.asked))
    # Only the calls in flight are repeated.
    assert place.player.repeated() <= 2 * CONCURRENCY


def test_a_server_that_stays_away_stops_it_when_its_patience_is_over(
    place: Place, relay: Relay
) -> None:
    driver = place.driver(NO_OTHERS, "--patience", "4")
    assert place.player.wait_for(50)
    relay.break_off()
    assert driver.ended() == 3, driver.errors
    error = driver.errors.splitlines()[-1]
    assert error == (
        f"Error: the model server at {relay.url} can't be reached, even after a wait of 4 s; "
        "run the batch again when the server answers"
    )
    status = place.status()
    assert (status.failed, status.is_running, status.left > 0) == (0, False, True)
    # The batch has answers already, so the next run waits from its start.
    driver = place.driver()
    driver.says("its calls wait")
    relay.restore()
    assert driver.ended() == 0, driver.errors
    assert (place.status().finished, place.status().stopped) == (CELLS, None)
    assert place.player.repeated() <= CONCURRENCY


def test_ctrl_c_ends_the_wait_for_a_server(place: Place, relay: Relay) -> None:
    driver = place.driver()
    assert place.player.wait_for(50)
    relay.break_off()
    driver.says("its calls wait")
    driver.signal(signal.SIGINT)
    assert driver.ended(10) == 130
    assert place.status().failed == 0
    relay.restore()
    place.goes_on(repeated=CONCURRENCY)


@pytest.mark.parametrize(
    ("setting", "code", "says"),
    read_rows(__file__, "what_is_not_there_is_told_before_any_call"),
)
def test_what_is_not_there_is_told_before_any_call(
    setting: str, code: int, says: str, place: Place
) -> None:
    name, _, value = setting.partition("=")
    assert says in error_of(place.driver({name: value}), code)
    assert place.player.asked == []


@pytest.mark.parametrize(
    ("fields", "vary", "code", "says"),
    read_rows(__file__, "what_the_batch_names_and_is_not_there_is_told_once"),
)
def test_what_the_batch_names_and_is_not_there_is_told_once(
    fields: dict[str, Any], vary: dict[str, list[str]], code: int, says: str, place: Place
) -> None:
    given = batch(**fields)
    given["vary"] |= vary
    written(place.file.parent, given)
    assert says in error_of(place.driver(), code)
    # A fault in a varied field is only found during the run.
    assert len(place.player.asked) <= (2 * CONCURRENCY if vary else 0)


def test_a_full_disk_stops_it_once(place: Place) -> None:
    said = error_of(place.driver(most_bytes=400_000), 4)
    assert "can't be used: " in said
    assert 0 < len(place.player.asked) < CELLS * CALLS
    place.goes_on(repeated=CONCURRENCY)


def test_a_second_driver_is_refused_and_who_watches_sees_the_end_of_the_first(
    place: Place,
) -> None:
    for number in range(40, CELLS * CALLS):
        place.server.hold(number)
    first = place.driver()
    place.server.wait_for(41, timeout=60)
    watch = place.command("status", "b", "--watch")
    second = place.driver()
    assert error_of(second, 4) == (
        "Error: Batch 'b' is running already. Follow it with `duologue batch status b --watch`."
    )
    assert first.is_running
    assert watch.is_running
    first.kill()
    assert watch.ended(10) == 0
    assert "interrupted" in watch.output
    place.server.release()
    last = place.driver()
    assert place.player.wait_for(60)
    watch = place.command("status", "b", "--watch")
    assert (last.ended(), watch.ended(10)) == (0, 0)
    assert watch.output.startswith(f"Batch b: {CELLS} of {CELLS} done\n")
    assert place.player.repeated() <= CONCURRENCY


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_pauses_it_and_a_second_one_breaks_it_off(
    number: signal.Signals, code: int, place: Place
) -> None:
    driver = place.driver()
    assert place.player.wait_for(42)
    driver.signal(number)
    assert driver.ended() == code
    assert place.player.repeated() == 0
    assert place.status().of("paused") > 0
    held = len(place.server.calls) + 20
    place.server.hold(held)
    driver = place.driver()
    place.server.wait_for(held + 1, timeout=60)
    driver.signal(number)
    driver.says("Pausing")
    time.sleep(0.1)
    driver.signal(number)
    assert driver.ended() == code
    assert (
        driver.errors.splitlines()[-1]
        == "Interrupted. Run the same command again to resume the batch."
    )
    place.server.release()
    place.goes_on(repeated=CONCURRENCY)
