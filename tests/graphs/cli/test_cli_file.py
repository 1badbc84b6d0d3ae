"""Conversations in files: templates, checks and diagrams, without any model."""

import re
import tomllib
from pathlib import Path

import pytest

from duologue.graphs import converse, load_conversation
from duologue.nodes.testing import ScriptedChatModel
from support.cli_help import duologue
from support.graphs import forms_by_kind
from support.installed import install_package
from support.tables import read_rows

KINDS = [*forms_by_kind(), "conversation"]


@pytest.mark.part(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_init_writes_passes_the_check_and_runs(kind: str) -> None:
    written = duologue("init", kind)
    assert (written.exit_code, written.stdout) == (0, f"{kind}.toml\n")
    assert written.stderr == f"Edit it, then run it with: duologue run {kind}.toml\n"
    checked = duologue("check", f"{kind}.toml")
    assert checked.exit_code == 0
    called = "a conversation" if kind == "conversation" else kind
    assert checked.stdout.startswith(f"{kind}.toml: {called} of ")
    model = ScriptedChatModel(lambda prompt: "Instruction: Dig.")
    result = converse(f"{kind}.toml", model=model, store="memory:", answer=lambda asked: "exit")
    assert result.outcome is not None
    # The template shows each field with its meaning.
    text = Path(f"{kind}.toml").read_text(encoding="utf-8")
    assert all(len(line) < (100 if " = " in line else 80) for line in text.splitlines())
    assert "None: " not in text.replace("None: no cap", "")


@pytest.mark.parametrize("kind", KINDS)
def test_each_line_that_is_off_can_be_switched_on(kind: str) -> None:
    duologue("init", kind)
    lines = Path(f"{kind}.toml").read_text(encoding="utf-8").splitlines()
    off = [place for place, line in enumerate(lines) if re.match(r"# \w+ = ", line)]
    assert len(off) >= 4
    plain = load_conversation(tomllib.loads("\n".join(lines)))
    for place in off:
        on = [*lines[:place], lines[place].removeprefix("# "), *lines[place + 1 :]]
        assert load_conversation(tomllib.loads("\n".join(on))) != plain, lines[place]


def test_the_help_of_init_names_each_kind() -> None:
    said = " ".join(duologue("init", "--help").stdout.split())
    assert all(kind in said for kind in KINDS)


def test_init_takes_a_file_alone(tmp_path: Path) -> None:
    assert duologue("init", "mine.toml").stdout == "mine.toml\n"
    assert 'kind = "role_play"' in (tmp_path / "mine.toml").read_text()


SALE = read_rows(__file__, "sale_file")


def test_check_says_what_a_conversation_is_and_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sale.toml").write_text(SALE)
    checked = duologue("check", "sale.toml")
    assert checked.stdout.splitlines() == [
        "sale.toml: a conversation of Buyer, Seller",
        "  Agree on a price",
        "Buyer: gpt-4.1; tools: calculator, telegraph",
        "Seller: a function or code that it runs",
        "Ends: after 3 rounds; when any speaker says DEAL; at 1,000,000 tokens; at 60 seconds; "
        "by completed tasks (end_chat_after_first_completion; checked by the judge after each turn "
        "of Buyer, Seller); at a message that ends with TERMINATE; after 100 automatic replies in "
        "a row.",
        "Model calls: normally up to 8 until the cap of 3 rounds, plus tool calls and retries.",
        "The tool calculator: registered",
        "The tool telegraph: missing",
        "The function sell: missing",
        "The order quietest: missing",
    ]
    assert checked.exit_code == 2
    assert checked.stderr == (
        "Error: sale.toml: speakers.0.tools: there is no tool 'telegraph'; pass it in Python, as "
        "tools of converse, name its module by --tools on the command line, install the package "
        "that offers it as duologue.tools, or use one of 'calculator', 'clock', 'get_history', "
        "'high_low', 'python', 'shell'\n"
    )
    install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "send.toml").write_text(SALE.replace("telegraph", "send").replace("sell", "sold"))
    assert "The tool send: registered" in duologue("check", "send.toml").stdout


def test_a_graph_goes_to_stdout_or_into_a_file(tmp_path: Path) -> None:
    duologue("init", "chat")
    drawn = duologue("graph", "chat.toml")
    assert drawn.exit_code == 0
    assert drawn.stdout.startswith("flowchart TD\n")
    assert duologue("graph", "chat.toml", "--output", "a.mmd").stdout == ""
    assert (tmp_path / "a.mmd").read_text(encoding="utf-8") == drawn.stdout
    assert duologue("graph", "chat.toml", "--output", "a.gif").exit_code == 2


def test_without_a_command_it_says_what_to_do_first() -> None:
    said = duologue()
    assert said.exit_code == 0
    assert said.stderr == ""
    commands = re.findall(r"^  duologue (.+)", said.stdout, re.MULTILINE)
    assert len(said.stdout.splitlines()) <= 24
    assert all(len(line) <= 80 for line in said.stdout.splitlines())
    # The commands that it names exist.
    for command in {one.split()[0] for one in commands}:
        assert duologue(command, "--help").exit_code == 0
    first, second = (one for one in commands if "garden.toml" in one and "run" not in one)
    assert duologue(*first.split()).exit_code == 0
    assert duologue(*second.split()).exit_code == 0
