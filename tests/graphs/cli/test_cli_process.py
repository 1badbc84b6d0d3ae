"""Signals, closed pipes, and two processes that run the same session."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from duologue.graphs import Session, aconverse, list_sessions, role_play
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import (
    ANSWER,
    DONE,
    FIRST,
    SHORT,
    Serve,
    duologue,
    main,
    meanwhile,
    started,
    ways_on,
)

pytestmark = pytest.mark.live


@pytest.mark.process
def test_a_third_signal_ends_a_process_that_waits_for_a_thread_of_the_agent(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("Refund order 7.")
    (tmp_path / "stuck.py").write_text(STUCK)
    suite = tmp_path / "shop.toml"
    suite.write_text('[scenarios.refund]\ngoal = "You want order 7 refunded."\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    page = str(tmp_path / "page.html")
    process = started("simulate", str(suite), "--agent", "stuck:agent", "--output", page)
    assert process.stderr is not None
    server.wait_for(1, timeout=60)
    process.send_signal(signal.SIGINT)
    next(line for line in process.stderr if line.startswith("Pausing"))
    process.send_signal(signal.SIGINT)
    next(line for line in process.stderr if line.startswith("Interrupted."))
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 130


STUCK = """
import time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor()
def agent(messages):
    return pool.submit(time.sleep, 3600).result()
"""
"""An agent whose thread Python waits for at its exit."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "Terminated.")],
)
def test_a_signal_that_is_sent_twice_in_mid_turn_leaves_a_session_that_goes_on(
    number: signal.Signals, code: int, word: str, serve: Serve, tmp_path: Path
) -> None:
    """After two signals in the middle of a turn, a session continues without repeated calls."""
    store = str(tmp_path / "a file.db")
    server = serve(FIRST, "lost", ANSWER, DONE, hold=[1])
    process = started(*SHORT, "--store", store, "--model", "scripted")
    server.wait_for(2, timeout=60)
    for _ in range(2):
        process.send_signal(number)
        time.sleep(0.05)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    # On a busy machine it also prints the duration.
    told = [line for line in err.splitlines() if not line.endswith(" s so far.")]
    assert told == [
        "",
        word,
        f"Continue with: duologue resume --store '{store}' --model scripted g",
    ]
    assert FIRST in out
    assert "Traceback" not in out
    server.release()
    assert_goes_on(server, "--store", store, "--model", "scripted")


def assert_goes_on(server: ScriptedServer, *options: str) -> None:
    ran = duologue("resume", *options, "g")
    assert ran.exit_code == 0
    # One call was in flight, and the others were not repeated.
    assert len(server.calls) == 4
    assert f"\nGardener:\n{ANSWER}\n\nOwner:\n{DONE}\n" in ran.stdout
    assert FIRST not in ran.stdout


def test_a_closed_pipe_ends_it_quietly(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(FIRST, ANSWER, ANSWER, DONE, DONE, hold=[1])
    reading, writing = os.pipe()

    def read() -> None:
        with os.fdopen(reading) as file:
            assert file.readline() == "Plan a garden\n"
            server.wait_for(2, timeout=60)
        server.release()

    with (
        meanwhile(read),
        os.fdopen(writing, "w") as file,
        patch.multiple(sys, stdout=file, argv=["duologue", *SHORT]),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert duologue("resume", "g").exit_code == 0
    assert ended.value.code == 141
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("impatient")
def test_a_session_that_is_running_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
    with ScriptedServer([FIRST, ANSWER, DONE], hold=[1]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with meanwhile(lambda: asyncio.run(aconverse(garden, session="g"))):
            server.wait_for(2, timeout=60)
            try:
                for arguments in (SHORT, ["resume", "g"], ["delete", "g"]):
                    ran = duologue(*arguments)
                    assert (ran.exit_code, ran.stdout) == (4, "")
                    assert ran.stderr.startswith("Error: ")
                    assert "busy" in ran.stderr
                assert duologue("sessions").stdout.split()[:2] == ["g", "running"]
                assert "Not finished" in duologue("show", "g").stdout
            finally:
                server.release()
        assert duologue("sessions").stdout.split()[:2] == ["g", "finished:"]
        assert len(server.calls) == 3


@pytest.mark.process
def test_a_question_outlives_the_process_that_asked_it_and_was_killed(
    serve: Serve, tmp_path: Path
) -> None:
    """G5: a question in SQLite survives the kill of the process that asked it."""
    store = str(tmp_path / "my chats.db")
    server = serve("It is 42.", "Bye.")
    process = started(
        *("chat", "--session", "c", "--store", store, "--model", "scripted"),
    )
    assert process.stdin is not None
    process.stdin.write("What is it?\n")
    process.stdin.flush()
    until = time.monotonic() + 60
    while not (Path(store).exists() and waits(store, messages=2)):
        assert time.monotonic() < until
        time.sleep(0.1)
    process.kill()
    process.communicate()
    ran = duologue("answer", "c", "Thanks.", "--store", store, "--model", "scripted")
    assert ran.exit_code == 5
    # The output repeats the options that the session does not store.
    assert ran.stderr.endswith(ways_on("--store", f"'{store}'", "--model", "scripted", store=store))
    assert [text for _, text in Session("c", store=store).state().transcript] == [
        *("What is it?", "It is 42.", "Thanks.", "Bye."),
    ]
    assert len(server.calls) == 2


def waits(store: str, *, messages: int) -> bool:
    waiting = [row.session for row in list_sessions(store=store) if row.status == "waiting"]
    return bool(waiting) and len(Session("c", store=store).state().transcript) == messages
