"""The commands `duologue batch …`: their output and exit codes."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import list_batches
from duologue.nodes.testing.server import ScriptedServer
from support.batches import CALLS, Player, batch, written
from support.cli_help import (
    duologue,
    isolate,
    main_thread_gets,
    meanwhile,
    signals_kept,
    started,
)
from support.pty_help import Terminal, at_terminal

pytestmark = pytest.mark.live

CELLS = 6
DONE = f"Batch b: {CELLS} of {CELLS} done"


@pytest.fixture
def player() -> Player:
    return Player(delay=0)


@pytest.fixture(autouse=True)
def server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, player: Player
) -> Iterator[ScriptedServer]:
    isolate(monkeypatch, tmp_path)
    with ScriptedServer(player) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


@pytest.fixture(autouse=True)
def file(tmp_path: Path, server: ScriptedServer) -> str:
    return written(tmp_path, batch(CELLS)).name


def run(*arguments: str) -> Any:  # noqa: ANN401
    return duologue("batch", "run", "batch.json", "--name", "b", *arguments)


def test_a_batch_is_planned_run_looked_at_exported_and_deleted(player: Player) -> None:
    planned = run("--dry-run")
    assert planned.stdout.startswith("6 sessions, normally up to ")
    assert [f"Session {number}, b-" in planned.stdout for number in (1, 2, 6)] == [
        True,
        False,
        True,
    ]
    assert json.loads(run("--dry-run", "--json").stdout)["sessions"] == CELLS
    assert player.asked == []
    assert "There are no batches yet" in duologue("batch", "list").stderr

    ran = run()
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{DONE}\n24 model calls, ")
    assert re.search(r"ended: max_iterations +6 *\n", ran.stdout)
    assert duologue("batch", "status", "b").stdout == ran.stdout
    assert duologue("batch", "status", "b", "--watch").stdout == ran.stdout
    again = run()
    assert (again.exit_code, again.stdout) == (0, ran.stdout)
    assert len(player.asked) == CELLS * CALLS

    listed = duologue("batch", "list").stdout
    assert re.fullmatch(r"b  6 of 6 done  \d{4}-\d\d-\d\d \d\d:\d\d *\n", listed)
    (known,) = map(json.loads, duologue("batch", "list", "--json").stdout.splitlines())
    assert (known["batch"], known["finished"], known["left"]) == ("b", CELLS, 0)
    assert json.loads(duologue("batch", "status", "b", "--json").stdout) == known
    exported = duologue("export", "--batch", "b", "--format", "jsonl", "--output", "b.jsonl")
    assert "of 6 sessions" in exported.stdout
    assert duologue("batch", "delete", "b").stdout == "Deleted b.\n"
    assert duologue("sessions").stdout == ""
    assert list_batches(store="sessions.db") == []


def test_a_limit_and_a_sample_are_options_of_the_command(player: Player) -> None:
    assert run("--dry-run", "--limit", "2").stdout.startswith("The first 2 of 6 sessions, ")
    ran = run("--limit", "2")
    assert (ran.exit_code, len(player.asked)) == (0, 2 * CALLS)
    assert "limit of 2 sessions is reached" in ran.stdout
    assert ran.stderr == (
        "With a larger --limit, or without it, run the same command again for the remaining "
        "sessions.\n"
    )
    sampled = run("--name", "s", "--sample", "3", "--seed", "4")
    assert sampled.exit_code == 0
    assert "A random sample of 3 of 6 sessions (seed 4)." in sampled.stdout
    known = json.loads(duologue("batch", "status", "s", "--json").stdout)
    assert (known["cells"], known["sample_of"], known["seed"]) == (3, CELLS, 4)
    assert "A random sample of 3 of 6" in duologue("batch", "report", "s").stdout
    wrong = run("--name", "n", "--sample", "3", "--no-shuffle")
    assert (wrong.exit_code, wrong.stderr.startswith("Error: sample: needs the ")) == (2, True)
    assert "no session has a score 'x'" in duologue("batch", "report", "s", "--sort", "x").stderr


def test_in_json_there_is_a_line_for_each_cell_and_one_for_the_batch(player: Player) -> None:
    player.refused = {"Plan garden 2"}
    ran = run("--json")
    assert (ran.exit_code, ran.stderr) == (6, "")
    *cells, status = map(json.loads, ran.stdout.splitlines())
    assert sorted(cell["number"] for cell in cells) == [*range(1, CELLS + 1)]
    told = {cell["varied"]["task"]: (cell["status"], cell["error"]) for cell in cells}
    assert told["Plan garden 1."] == ("finished", None)
    assert told["Plan garden 2."][0] == "failed"
    assert "no such garden" in told["Plan garden 2."][1]
    assert (status["failed"], status["finished"], status["is_running"]) == (1, CELLS - 1, False)
    # No price of the model is known.
    assert {status["cost"], *(cell["cost"] for cell in cells)} == {None}
    assert "Cost" not in duologue("batch", "status", "b").stdout


@pytest.mark.exhaustive
def test_a_limit_is_reached_only_if_its_cells_have_ended(player: Player) -> None:
    player.refused = {f"Plan garden {number}" for number in range(1, CELLS + 1)}
    assert run("--limit", "3").exit_code == 6
    player.refused = set()
    assert run("--limit", "3", "--retry-failed").exit_code == 0
    assert run("--limit", "4", "--json").exit_code == 0
    assert run().exit_code == 0
    assert run("--seed", "4").exit_code == 4


def test_where_a_limit_is_used_up_the_same_command_is_not_enough(
    tmp_path: Path, player: Player
) -> None:
    written(tmp_path, batch(2) | {"limits": {"max_tokens": 1}})
    for _ in range(2):
        ran = run("--concurrency", "1")
        assert (ran.exit_code, len(player.asked)) == (6, 1)
        assert "limits.max_tokens of 1 is used up" in ran.stdout
        assert ran.stderr == (
            "Raise the limit, then run the same command again for the remaining sessions.\n"
        )


@pytest.mark.exhaustive
def test_a_batch_whose_lines_nobody_reads_stops(tmp_path: Path) -> None:
    written(tmp_path, batch(60))
    with started("batch", "run", "batch.json", "--name", "b", "--json") as ran:
        assert ran.stdout is not None
        ran.stdout.readline()
        ran.stdout.close()
        assert ran.wait(120) == 141
    known = json.loads(duologue("batch", "status", "b", "--json").stdout)
    assert known["left"] > 0
    assert known["stopped"] == "[Errno 32] Broken pipe"


def test_where_people_are_asked_it_is_told_how_they_answer(tmp_path: Path) -> None:
    roles = {"user_role": "Ann", "assistant_role": "Bob", "people": ["Bob"], "specify_task": False}
    play = {"kind": "role_play", "model": "scripted", "task": "Plan."} | roles
    written(tmp_path, batch(2) | {"conversation": play})
    ran = run()
    assert ran.exit_code == 6
    assert re.search(r"waiting for a person +2 *\n", ran.stdout)
    assert ran.stderr == (
        "`duologue sessions` lists the waiting sessions; answer them by `duologue answer`. "
        "Then run the same command again.\n"
    )


def test_scores_that_are_missing_are_told(tmp_path: Path, player: Player) -> None:
    # These conversations end before the judge is asked.
    judge = {"criteria": ["A bench is planned."], "final_verdict": False}
    written(tmp_path, batch(2, judge=judge) | {"score": "complete"})
    for _ in range(2):
        ran = run()
        assert ran.exit_code == 0
        assert ran.stderr == (
            "Sessions that lack a score: 2; `duologue batch report b` shows why.\n"
        )
    assert len(player.asked) == 2 * CALLS


def test_a_failed_cell_gives_an_exit_code_of_its_own_and_is_run_again_when_asked(
    player: Player,
) -> None:
    player.refused = {"Plan garden 2"}
    ran = run()
    assert ran.exit_code == 6
    assert ran.stderr == "Add --retry-failed to run the failed sessions again.\n"
    assert re.search(r"failed +1 *\n", ran.stdout)
    asked, player.refused = len(player.asked), set()
    assert run().exit_code == 6
    assert len(player.asked) == asked
    assert run("--retry-failed").exit_code == 0
    assert len(player.asked) == asked + CALLS


def test_the_batch_that_init_writes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = duologue("init", "batch")
    assert begun.stderr == "Edit it, then run it with: duologue batch run batch.toml\n"
    planned = duologue("batch", "run", "batch.toml", "--dry-run")
    assert planned.stdout.startswith("24 sessions, ")
    with ScriptedServer(lambda prompt: "<CAMEL_TASK_DONE>") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ran = duologue("batch", "run", "batch.toml", "--model", "scripted")
    # Each gets two requests for a first message that does not end it (R19).
    assert (ran.exit_code, len(server.calls)) == (0, 48)
    assert ran.stdout.startswith("Batch batch: 24 of 24 done\n48 model calls, ")


@pytest.mark.part(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_pauses_it_once_the_calls_under_way_are_answered(
    number: signal.Signals, code: int, player: Player, server: ScriptedServer
) -> None:
    server.hold(5)

    def send() -> None:
        server.wait_for(6, timeout=60)
        main_thread_gets(number)
        server.release()

    with signals_kept(), meanwhile(send):
        ran = run("--concurrency", "2")
    assert ran.exit_code == code
    assert ran.stderr == (
        "Pausing when the current model calls are answered …\n"
        "Run the same command again for the remaining sessions.\n"
    )
    assert "It was interrupted." in ran.stdout
    assert re.search(r"paused +[12] *\n", ran.stdout)
    assert run().exit_code == 0
    assert (len(player.asked), player.repeated()) == (CELLS * CALLS, 0)


def test_a_second_signal_breaks_it_off_and_calls_in_flight_alone_are_made_again(
    player: Player, server: ScriptedServer
) -> None:
    server.hold(5)

    def send() -> None:
        server.wait_for(6, timeout=60)
        main_thread_gets(signal.SIGINT)
        time.sleep(0.2)  # otherwise the two would be equal
        main_thread_gets(signal.SIGINT)

    with signals_kept(), meanwhile(send):
        ran = run("--concurrency", "1")
    assert (ran.exit_code, ran.stdout) == (130, "")
    assert (
        ran.stderr.splitlines()[-1]
        == "Interrupted. Run the same command again to resume the batch."
    )
    server.release()
    assert "interrupted" in duologue("batch", "status", "b").stdout
    assert run().exit_code == 0
    assert (len(player.asked), player.repeated()) == (CELLS * CALLS + 1, 1)


@pytest.mark.part(1)
@pytest.mark.parametrize("setting", ["COLORTERM=truecolor", "NO_COLOR=1", "TERM=dumb"])
def test_on_a_terminal_a_table_is_drawn_and_nothing_of_it_is_left(
    setting: str, server: ScriptedServer
) -> None:
    name, _, value = setting.partition("=")
    server.hold(5)
    drawn = list[str]()
    terminals = list[Terminal]()

    def watch(terminal: Terminal) -> None:
        terminals.append(terminal)
        server.wait_for(6, timeout=60)
        if name != "TERM":
            # Earlier output may show less progress.
            terminal.sees(f"1 of {CELLS} done")
            terminal.sees("5 calls")
        drawn.extend(terminal.rows)
        server.release()

    arguments = ("batch", "run", "batch.json", "--name", "b", "--concurrency", "1")
    code, _ = at_terminal(*arguments, person=watch, environ={name: value})
    assert code == 0
    if name == "TERM":
        assert drawn == [""]
    else:
        first, bar, *rows, used = drawn
        assert (first, rows) == (
            f"Batch b: 1 of {CELLS} done",
            ["ended: max_iterations  1", "running                1", "not begun              4"],
        )
        assert (set(bar) <= {*" ━╺╸"}, used.startswith("5 calls · ")) == (True, True)
    left = terminals[0].rows
    assert left[0] == DONE
    assert left[1].startswith("24 model calls, ")
    assert [row.split() for row in left[2:]] == [
        [],
        ["Sessions", "Number"],
        ["─" * 30],
        ["ended:", "max_iterations", str(CELLS)],
    ]
    raw = terminals[0]._seen.decode()
    if name != "COLORTERM":
        assert re.search(r"\x1b\[[0-9;]*3[0-9]", raw) is None
    if name == "TERM":
        assert "\x1b" not in raw
