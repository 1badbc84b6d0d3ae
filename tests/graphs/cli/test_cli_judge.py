"""`duologue judge`: sessions and batches judged by a file's criteria."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from duologue.graphs import BatchRun, Session, converse, run_batch
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import Serve, duologue

PRICE, DAY = "A price is named.", "A day is named."
HALF = {"criterion_1": "met", "criterion_2": "not_met"}
TALK = {
    "task": "Sell the boat.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 1},
}
JUDGED = "  met: A price is named.\n  not met: A day is named.\n"


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Path:
    """A store with two sessions and a batch of three, and files with criteria."""
    store = tmp_path / "sessions.db"
    said = ScriptedChatModel(lambda prompt: "Forty.")
    for session in ("one", "two"):
        converse(TALK, session=session, store=store, model=said)
    run_batch({"conversation": TALK, "trials": 3}, name="b", store=store, model=said)
    (tmp_path / "boat.txt").write_text(f"{PRICE}\n\n  {DAY}\n")
    fields = f'criteria = ["{PRICE}", "{DAY}"]\nform = "lines"\nmodel = "other"\n'
    (tmp_path / "boat.toml").write_text(fields)
    return store


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer([json.dumps(HALF)] * 9) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def test_sessions_are_judged_once_and_their_verdicts_are_shown(server: ScriptedServer) -> None:
    told = f"one: 1 of 2 criteria met\n{JUDGED}two: 1 of 2 criteria met\n{JUDGED}"
    for _ in range(2):
        ran = duologue("judge", "one", "two", "--criteria", "boat.txt", "--concurrency", "1")
        assert (ran.exit_code, ran.stderr) == (0, "")
        assert ran.stdout == (
            f"{told}Judged 2 of 2 sessions.\n"
            "  met in 2: A price is named.\n  met in 0: A day is named.\n"
        )
    assert len(server.calls) == 2
    ran = duologue("judge", "one", "--criteria", "boat.txt", "--json")
    found = json.loads(ran.stdout)
    assert found["session"] == "one"
    assert found["verdict"]["findings"] == {PRICE: "met", DAY: "not_met"}


def test_a_batch_is_judged_without_running_it(server: ScriptedServer, store: Path) -> None:
    before = BatchRun("b", store=store).rows()
    for _ in range(2):
        ran = duologue("judge", "--batch", "b", "--criteria", "boat.txt")
        assert (ran.exit_code, ran.stderr) == (0, "")
        assert ran.stdout.count("1 of 2 criteria met") == 3
        assert ran.stdout.endswith(
            "Judged 3 of 3 sessions.\n  met in 3: A price is named.\n  met in 0: A day is named.\n"
        )
    assert len(server.calls) == 3
    assert BatchRun("b", store=store).rows() == before
    for row in before:
        (later,) = Session(row["session"], store=store).state().later_verdicts
        assert (later.batch, later.judge.criteria) == (None, (PRICE, DAY))


def test_the_option_for_the_model_precedes_the_file(store: Path) -> None:
    with (
        ScriptedServer(["1: met\n2: met"] * 2, models=("other", "mine")) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OPENAI_BASE_URL", server.url)
        for option, model in (([], "other"), (["--model", "mine"], "mine")):
            ran = duologue("judge", "one", "--criteria", "boat.toml", *option)
            assert "one: 2 of 2 criteria met" in ran.stdout
            assert server.calls[-1].body["model"] == model


def test_a_session_that_cannot_be_judged_does_not_stop_the_others(server: ScriptedServer) -> None:
    ran = duologue("judge", "nowhere", "one", "--criteria", "boat.txt")
    assert ran.exit_code == 4
    assert "nowhere" in ran.stderr
    assert "one: 1 of 2 criteria met" in ran.stdout
    assert "Judged 1 of 2 sessions." in ran.stdout


def test_reasons_are_shown_below_their_findings(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "why.toml").write_text(f'criteria = ["{PRICE}", "{DAY}"]\nwith_reasons = true\n')
    first = {"reason": "Ann names\x1b[2J forty.", "message": 1, "finding": "met"}
    second = {"reason": "Nobody names it.", "message": 0, "finding": "not_met"}
    lines = [json.dumps({"criterion_1": first, "criterion_2": second})]
    serve(*lines)
    ran = duologue("judge", "one", "--criteria", "why.toml")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    assert "Ann names" in ran.stdout
    assert "  not met: A day is named.\n    Nobody names it\n" in ran.stdout
    shown = duologue("show", "one").stdout
    assert "A day is named (not met: Nobody names it)" in " ".join(shown.split())
