"""What the README shows is true: its code runs, its files load, its picture is the graph."""

import re
import tomllib
from pathlib import Path

import pytest

from duologue.graphs import EndChatMode, Reason, build_graph, load_conversation
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


def test_the_tables_name_every_mode_and_reason() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE))
    assert {mode.value for mode in EndChatMode} <= named
    assert {reason.value for reason in Reason} <= named


def test_the_two_commands_are_what_ci_runs() -> None:
    first, second = re.findall(r"^\$ (.*)$", blocks("console")[0], re.MULTILINE)
    assert "pip install uv" in first
    assert "duologue run" in first
    assert second in (Path(__file__).parent.parent / ".ci" / "run").read_text(encoding="utf-8")
