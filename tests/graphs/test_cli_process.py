"""The command line in processes of its own: signals, closed pipes, and two at once."""

import json
import signal
from pathlib import Path

import pytest

from duologue.nodes.testing.server import ScriptedServer

from .cli_help import ANSWER, DONE, FIRST, SHORT, duologue, isolate, started

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "Terminated.")],
)
def test_a_signal_in_mid_turn_leaves_a_session_that_goes_on_without_repeating_a_call(
    number: signal.Signals, code: int, word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = str(tmp_path / "a file.db")
    with ScriptedServer([FIRST, "lost", ANSWER, DONE], hold=[1]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        process = started(*SHORT, "--store", store, "--model", "scripted")
        server.wait_for(2, timeout=60)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code
        assert err == (
            f"\n{word}\nGo on with: duologue resume --store '{store}' --model scripted g\n"
        )
        assert FIRST in out
        assert "Traceback" not in out
        server.release()
        ran = duologue("resume", "--store", store, "--model", "scripted", "g")
        assert ran.exit_code == 0
        # One call was in flight; the others were not made again.
        assert len(server.calls) == 4
        assert f"\nGardener:\n{ANSWER}\n\nOwner:\n{DONE}\n" in ran.stdout
        assert FIRST not in ran.stdout


def test_a_closed_pipe_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([FIRST, ANSWER, ANSWER, DONE, DONE], hold=[1]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        process = started(*SHORT)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "Plan a garden\n"
        server.wait_for(2, timeout=60)
        process.stdout.close()
        server.release()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141
        process.stderr.close()
        assert duologue("resume", "g").exit_code == 0


def test_json_in_a_pipe_is_all_there_is_on_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([FIRST, ANSWER, DONE]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        process = started(*SHORT, "--json", env={"FORCE_COLOR": "1"})
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "outcome"
    assert all(isinstance(json.loads(line), dict) for line in out.splitlines())


def test_a_session_that_is_running_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([FIRST, ANSWER, DONE], hold=[1]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        process = started(*SHORT)
        server.wait_for(2, timeout=60)
        for arguments in (SHORT, ["resume", "g"], ["delete", "g"]):
            ran = duologue(*arguments)
            assert (ran.exit_code, ran.stdout) == (4, "")
            assert ran.stderr.startswith("Error: ")
            assert "busy" in ran.stderr
        assert duologue("sessions").stdout.split()[:2] == ["g", "running"]
        assert "Not finished" in duologue("show", "g").stdout
        server.release()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert len(server.calls) == 3
