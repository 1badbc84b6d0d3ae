"""What the README shows is true: its code runs, its files load, its picture is the graph."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import EndChat, EndChatMode, Guards, Reason, build_graph, load_conversation
from duologue.nodes.scripted_server import ScriptedServer

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's fenced blocks in this language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_picture_is_the_compiled_graph() -> None:
    assert blocks("mermaid") == [build_graph().get_graph().draw_mermaid()]


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_files_load(text: str) -> None:
    assert load_conversation(tomllib.loads(text)).speakers


@pytest.mark.parametrize("code", blocks("python"))
def test_the_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(messages: list[dict[str, str]]) -> str:
        return "Build a bot." if len(messages) == 1 else "<CAMEL_TASK_DONE>"

    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "sessions.db"))
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # our own README


def test_what_the_code_prints_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    printing = [found for found in blocks("python") if "print(" in found]
    assert printing
    for code in printing:
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # our own README
        below = README.partition(code)[2]
        shown = re.search(r"```text\n(.*?)```", below, re.DOTALL)
        assert shown is not None
        assert capsys.readouterr().out == shown[1]


def rows() -> dict[str, str]:
    """The rows of all tables, by what stands alone in the first column."""
    return dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", README, re.MULTILINE))


def test_the_tables_name_every_mode_and_reason() -> None:
    assert {mode.value for mode in EndChatMode} <= set(rows())
    # The first that holds is the reason.
    assert [name for name in rows() if name in list(Reason)] == list(Reason)


def test_the_tables_give_the_numbers_that_guards_and_the_cap_have() -> None:
    for name, limit in Guards():
        assert rows()[name].endswith(f"| guard, {limit} "), name
    assert rows()["max_iterations"].endswith(f"`max_iterations`, {EndChat().max_iterations} ")


def test_the_end_in_python_is_the_one_in_the_file() -> None:
    (code,) = [found for found in blocks("python") if "end_chat = EndChat(" in found]
    (text,) = [found for found in blocks("toml") if "[[end_chat.when]]" in found]
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102  # our own README
    assert load_conversation(tomllib.loads(text)).end_chat == names["end_chat"]


def test_the_two_commands_are_what_ci_runs() -> None:
    first, second = re.findall(r"^\$ (.*)$", blocks("console")[0], re.MULTILINE)
    assert "pip install uv" in first
    assert "duologue run" in first
    assert second in (Path(__file__).parent.parent / ".ci" / "run").read_text(encoding="utf-8")
