"""L2 on the command line: dump, load, reset, copy and export."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from duologue.graphs import Session, converse, role_play
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import ANSWER, DONE, FIRST, duologue


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a finished session, g, and an unfinished one, h."""
    store = tmp_path / "sessions.db"
    garden = role_play("Plan a gärden", "Owner", "Gardener", specify_task=False)
    model = ScriptedChatModel(script=[FIRST, ANSWER, DONE])
    converse(garden, session="g", store=store, model=model)
    model = ScriptedChatModel(script=[FIRST, ANSWER, Reply(error=500)])
    with pytest.raises(Exception, match="500"):
        converse(garden, session="h", store=store, model=model)
    return store


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer([DONE]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def view(session: str, speaker: str, store: Path | str) -> str:
    """Return a speaker's view without its system prompt."""
    return str(Session(session, store=store).state().viewpoint(speaker)[1:])


def test_a_session_is_dumped_to_a_file_loaded_elsewhere_and_resumed(
    store: Path, tmp_path: Path, server: ScriptedServer
) -> None:
    ran = duologue("session", "dump", "h", "--output", "h.json")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "")
    assert "gärden" in (tmp_path / "h.json").read_text(encoding="utf-8")
    ran = duologue("session", "load", "h.json", "--into", "mine", "--store", "other.db")
    assert (ran.exit_code, ran.stdout) == (0, "mine\n")
    assert ran.stderr == "Continue with: duologue resume --store other.db mine\n"
    ran = duologue("resume", "mine", "--store", "other.db")
    assert ran.exit_code == 0
    assert "Owner said the done token" in ran.stdout
    assert len(server.calls) == 1


def test_a_dump_on_stdout_is_the_same_in_utf_8(store: Path, tmp_path: Path) -> None:
    for arguments in (["session", "dump", "g"], ["session", "dump", "g", "--as", "Owner"]):
        ran = duologue(*arguments)
        duologue(*arguments, "--output", "one.json")
        assert ran.stdout_bytes == (tmp_path / "one.json").read_bytes()
    assert json.loads(duologue("session", "dump", "g").stdout)["session"] == "g"
    roles = [message["role"] for message in json.loads(ran.stdout)]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_a_speakers_memory_goes_into_another_session(store: Path) -> None:
    duologue("session", "dump", "g", "--as", "Owner", "--output", "owner.json")
    ran = duologue("session", "load", "owner.json", "--into", "h", "--as", "Owner")
    assert (ran.exit_code, ran.stdout) == (0, "h\n")
    assert ran.stderr == "Continue with: duologue resume h\n"
    assert DONE in view("h", "Owner", store)
    ran = duologue("session", "load", "owner.json", "--into", "h", "--as", "Gardener")
    assert ran.exit_code == 0
    assert DONE in view("h", "Gardener", store)
    shown = duologue("show", "h", "--as", "Gardener").stdout
    assert DONE in shown
    assert DONE not in duologue("show", "h").stdout


def test_a_session_and_a_speakers_memory_are_reset(store: Path) -> None:
    ran = duologue("session", "reset", "h", "--as", "Owner")
    assert (ran.stdout, ran.stderr) == ("h\n", "Continue with: duologue resume h\n")
    assert FIRST not in view("h", "Owner", store)
    ran = duologue("session", "reset", "g", "--as", "Owner")
    assert ran.stderr == "It has ended. Continue it with: duologue say g SPEAKER TEXT\n"
    ran = duologue("session", "reset", "g")
    assert (ran.stdout, ran.stderr) == ("g\n", "Continue with: duologue resume g\n")
    assert Session("g", store=store).state().messages == []
    assert "g  unfinished" in duologue("sessions").stdout


def test_r10_what_has_ended_goes_on_with_something_said(store: Path) -> None:
    """An ended session continues after a message; a fork at its end has ended, too."""
    ran = duologue("fork", "g", "--into", "j")
    assert ran.stdout == "j\n"
    assert ran.stderr.startswith("It has ended as well, by the same rules: fork at an earlier ")
    ran = duologue("say", "j", "Owner", "Instruction: Water it.\nInput: None")
    assert ran.stderr == "Continue with: duologue resume j\n"


def test_a_session_and_a_speakers_memory_are_copied(store: Path) -> None:
    ran = duologue("session", "copy", "h", "--into", "i")
    assert (ran.stdout, ran.stderr) == ("i\n", "Continue with: duologue resume i\n")
    ran = duologue("session", "copy", "h", "--to", "other.db")
    assert (ran.stdout, ran.stderr) == (
        "h\n",
        "Continue with: duologue resume --store other.db h\n",
    )
    ran = duologue("session", "copy", "g", "--as", "Owner", "--into", "h", "--to", "other.db")
    assert (ran.exit_code, ran.stdout) == (0, "h\n")
    assert DONE in view("h", "Owner", "other.db")
    assert DONE not in view("h", "Owner", store)


def test_a_session_is_exported_as_a_page_and_as_json_lines(store: Path, tmp_path: Path) -> None:
    ran = duologue("export", "g")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("# Plan a gärden\n")
    assert "## Gardener (m0002)\n" in ran.stdout
    ran = duologue("export", "g", "--format", "jsonl", "--as", "Gardener")
    assert [json.loads(one)["speaker"] for one in ran.stdout.splitlines()] == [
        "Owner",
        "Gardener",
        "Owner",
    ]
    duologue("export", "g", "--output", "g.md")
    assert (tmp_path / "g.md").read_bytes() == duologue("export", "g").stdout_bytes
    duologue("export", "g", "--format", "html", "--output", "g.html")
    page = (tmp_path / "g.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert duologue("show", "g", "--html").stdout_bytes == page


def test_the_help_of_export_and_its_error_list_all_formats() -> None:
    said = " ".join(duologue("export", "--help").stdout.split())
    refused = duologue("export", "g", "--format", "pdf").stderr
    formats = re.findall(r"'(\w+)'", refused.partition("'pdf'")[2])
    assert {"markdown", "jsonl", "html"} < {*formats}
    for name in formats:
        assert re.search(rf"\b{name}, (a|one|training) ", said), name
