"""Judges asked about prefixes of dialogues, by a scripted server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from duologue.nodes.testing import Reply
from duologue.nodes.testing.server import ScriptedServer
from endings import command
from endings.command import main
from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn
from endings.judges import JUDGES, Prefix, draw_sample, prefixes_of
from endings.scoring import is_over
from endings.stored_verdicts import read_verdicts
from endings.verdict_table import Agreement, compare
from providers.base import FakeServer
from providers.fakes import fake

FOLDER = Path(__file__).parent

TABLE = Dialogue(
    "own/tiny/table",
    "own",
    (Turn("Guest", "A table for two?"), Turn("Host", "At eight."), Turn("Guest", "BOOKED")),
    Label(Case.WORD_SAID, 3, Origin.FIELD, signalled=True),
)
TALK = Dialogue(
    "own/tiny/talk",
    "own",
    (Turn("Guest", "Hello."), Turn("Host", "How can I help?"), Turn("Guest", "Just looking.")),
    Label(Case.NO_END, 4, Origin.FIELD),
)

OBJECTIVES = "Which objectives of your task are not met yet?"
CALLS = {"structured": 6, "two_questions": 13, "bare": 6}
"""Calls for the six prefixes: one verdict of the two-question form is requested twice."""


def reply(messages: Sequence[dict[str, Any]]) -> Reply | str:
    """Answer as a model with one wrong, one unreadable and one missed verdict."""
    prompt, last = json.dumps(messages), str(messages[-1]["content"])
    is_booked, is_strange = "BOOKED" in prompt, "Just looking" in prompt
    if last.startswith("Pause the conversation") and "Is your task complete?" in last:
        done = is_booked or is_strange
        return json.dumps({"objectives_left": [] if done else ["A table"], "complete": done})
    if OBJECTIVES in last:
        return "None." if is_booked else "A table."
    if "Is this conversation finished?" in last:
        return "No."
    if is_strange:
        return "Bananas."
    return "Yes." if is_booked else "No."


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command read two dialogues, and no text of this project."""
    monkeypatch.setattr(command, "dialogues", lambda folders: iter((TABLE, TALK)))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer[Any]]:
    """Run a server that answers each question, and refuses requests as OpenAI does."""
    with fake("openai_chat", reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        yield server


def run(path: Path, *more: str) -> None:
    main(["judge", "--model", "gpt-4.1-mini", "--runs", str(path), *more])


def agreement(path: Path, judge: str) -> Agreement:
    """Return the agreement of a judge in a file of verdicts."""
    return compare([one for one in read_verdicts(path)[1] if one.key.judge == judge])


def percent(found: Agreement) -> list[float | None]:
    """Return the shares of a judge's verdicts, in percent."""
    shares = (found.unreadable, found.agreement, found.early, found.missed)
    return [None if one is None else round(100 * one.value, 2) for one in shares]


@pytest.mark.usefixtures("tiny")
def test_each_judge_is_compared_with_the_labels(
    server: FakeServer[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs" / "verdicts.jsonl"
    run(path)
    printed = capsys.readouterr().out
    assert len(server.calls) == sum(CALLS.values())
    assert percent(agreement(path, "structured")) == [0, 83.33, 20, 0]
    # The unreadable verdict is neither yes nor no.
    assert percent(agreement(path, "two_questions")) == [16.67, 100, 0, 0]
    assert percent(agreement(path, "bare")) == [0, 83.33, 0, 100]
    for judge, calls in CALLS.items():
        found = agreement(path, judge)
        assert found.asked == 6
        assert found.calls is not None
        assert found.calls.value == pytest.approx(calls / 6)
        assert found.input_tokens is not None
        assert found.input_tokens.value > 0
    assert "| two_questions | 6 of 6 | 16.7 (3.0 to 56.4) | 100.0 (56.6 to 100.0) |" in printed
    main(["verdicts", "--runs", str(path)])
    assert capsys.readouterr().out == printed
    assert len(server.calls) == sum(CALLS.values())


@pytest.mark.usefixtures("tiny")
def test_a_failed_run_is_resumed_without_a_repeated_verdict(
    server: FakeServer[Any], tmp_path: Path
) -> None:
    path, last = tmp_path / "verdicts.jsonl", sum(CALLS.values())
    made = 0

    def fail_once(messages: Sequence[dict[str, Any]]) -> Reply | str:
        nonlocal made
        made += 1
        # Between the two questions of one verdict.
        if made == 3:
            raise ValueError("the script fails")
        return reply(messages)

    with fake("openai_chat", fail_once) as failing, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", failing.url)
        with pytest.raises(SystemExit, match="the script fails"):
            run(path)
    assert len(read_verdicts(path)[1]) == 1
    # A kill can leave an unfinished line.
    with path.open("a") as file:
        file.write('{"key":["bare","own/ti')
    run(path)
    assert len(server.calls) == last - 1
    assert len(read_verdicts(path)[1]) == 18
    assert percent(agreement(path, "two_questions")) == [16.67, 100, 0, 0]
    run(path)
    assert len(server.calls) == last - 1


@pytest.mark.process
def test_a_killed_run_repeats_only_the_verdict_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    started = [sys.executable, str(FOLDER), "judge", "--model", "scripted", "--runs", str(path)]
    started += ["--limit", "4", "--sample", "3", "--judge", "two_questions"]
    with ScriptedServer(["A table.", "No."] * 10, hold=[3]) as server:
        variables = os.environ | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "any"}
        process = subprocess.Popen(started, env=variables, cwd=tmp_path)
        server.wait_for(4, timeout=120)
        process.kill()
        process.wait()
        server.release()
        assert len(read_verdicts(path)[1]) == 1
    with ScriptedServer(["A table.", "No."] * 2) as server:
        variables["OPENAI_BASE_URL"] = server.url
        subprocess.run(started, env=variables, cwd=tmp_path, check=True, capture_output=True)
        assert len(server.calls) == 4
    assert agreement(path, "two_questions").asked == 3


@pytest.mark.usefixtures("tiny", "server")
def test_a_file_of_another_run_is_refused_before_a_call(
    server: FakeServer[Any], tmp_path: Path
) -> None:
    path = tmp_path / "verdicts.jsonl"
    run(path, "--sample", "2", "--judge", "bare")
    with pytest.raises(SystemExit, match="made with seed 0, not 1; use the same options"):
        run(path, "--sample", "2", "--judge", "bare", "--seed", "1")
    assert len(server.calls) == 2
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{}\n" + lines[1])
    with pytest.raises(SystemExit, match="line 2 is not a stored verdict; delete the line"):
        main(["verdicts", "--runs", str(path)])
    path.write_text("{}\n")
    with pytest.raises(SystemExit, match="line 1 has no options; name a file of `judge`"):
        run(path)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["judge"], "--model: judge needs the name of a model"),
        (["verdicts", "--runs", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
    ],
)
def test_a_missing_model_or_file_is_refused(given: list[str], problem: str) -> None:
    with pytest.raises(SystemExit, match=problem):
        main(given)


def test_judges_are_asked_only_if_the_label_decides_and_a_text_is_last() -> None:
    called = Turn("Host", "", (Call("book", {}),))
    turns = (TABLE.turns[0], called, *TABLE.turns[1:], Turn("Host", "See you."))
    label = Label(Case.WORD_SAID, 4, Origin.FIELD, earliest=3, signalled=True)
    found = prefixes_of(Dialogue("own/a", "own", turns, label))
    assert [(one.turns, one.is_over) for one in found] == [(1, False), (4, True), (5, True)]
    unsigned = Dialogue("own/b", "own", TABLE.turns, Label(Case.FAREWELL, 3, Origin.RULE))
    assert is_over(unsigned, 3) is None


def test_a_sample_depends_on_its_seed_alone_and_half_of_it_is_over() -> None:
    found = [Prefix(TALK, place, place > 90) for place in range(100)]
    drawn = draw_sample(found, 10, 1)
    assert drawn == draw_sample(found[::-1], 10, 1)
    assert drawn != draw_sample(found, 10, 2)
    assert sum(one.is_over for one in drawn) == 5
    assert len(draw_sample(found, 40, 1)) == 40
    assert sum(one.is_over for one in draw_sample(found, 40, 1)) == 9
    assert sum(one.is_over for one in draw_sample(found[80:], 18, 1)) == 9
    assert draw_sample(found, None, 1) == draw_sample(found, 200, 1) == found


@pytest.mark.live
@pytest.mark.exhaustive
def test_the_embedded_model_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    main(["judge", "--model", "embedded", "--runs", str(path), "--limit", "3", "--sample", "1"])
    assert {one.key.judge for one in read_verdicts(path)[1]} == set(JUDGES)
