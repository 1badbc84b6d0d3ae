"""Displays of results, specs and outcomes in a notebook and in a console."""

import asyncio
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from markdown_it import MarkdownIt
from rich.console import Console, RenderableType

from duologue.graphs import Conversation, Question, aconverse, chat, converse
from duologue.nodes.testing import ScriptedChatModel
from pages import ALLOWED, HOSTILE, hostile_result
from support.fork_help import run
from support.fork_talks import TALKS
from support.html import Seen
from support.loaded import load, said

PAIR = Conversation.model_validate(
    {
        "task": "Talk.",
        "speakers": [{"name": "Ann"}, {"name": "Ben"}],
        "end_chat": {"max_iterations": 1},
    }
)


class Shows(Protocol):
    """An object with an HTML display."""

    def _repr_html_(self) -> str: ...
    def _repr_markdown_(self) -> str: ...
    def __rich__(self) -> RenderableType: ...


def printed(shown: Shows, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_a_result_shows_the_talk_and_the_end_without_any_style(tmp_path: Path) -> None:
    conversation, lines = TALKS["structured"]
    result = run(conversation, lines, store=f"memory:{tmp_path.name}")
    seen = Seen(result._repr_html_())
    for found in (
        "Ben completed its task.",
        "Ended after 2 rounds and 7 messages · Model calls:",
        "What led to it",
        "Ann on its task: not complete: water",
        "Rejected and asked again: Your message was empty.",
        "Calls weather",
        "weather failed",
        "Heard by no other speaker",
    ):
        assert found in seen.words, found
    assert "left out" not in seen.words
    # Headings would appear in the notebook's table of contents, and ids could be link targets.
    assert not {"script", "h1", "h2", "h3", "svg"} & seen.names
    assert not [one for _, one in seen.tags if "id" in one]


def test_each_shows_itself_in_html_markdown_and_a_console(tmp_path: Path) -> None:
    conversation, lines = TALKS["moderated"]
    result = run(conversation, lines, store=f"memory:{tmp_path.name}")
    assert result.outcome is not None
    ended = result.outcome.explanations[0]
    expected = [
        (result, ["Ann", "Ben", ended]),
        (conversation, ["Ann", "Ben", "Ends after"]),
        (result.outcome, [result.outcome.reason.value, "Model calls", "Tokens"]),
        (result.viewpoint("Ann"), ["system", "assistant", "user"]),
        (result.why(), ["verdict", "reason", "m0"]),
    ]
    for one, parts in expected:
        shown: Any = one
        html, console = Seen(shown._repr_html_()).words.lower(), printed(shown).lower()
        markdown = shown._repr_markdown_().replace("\\", "").lower()
        for part in parts:
            assert all(part.lower() in form for form in (html, markdown, console)), part


def test_lists_that_show_themselves_are_lists(tmp_path: Path) -> None:
    conversation, lines = TALKS["moderated"]
    result = run(conversation, lines, store=f"memory:{tmp_path.name}")
    for found in (result.why(), result.viewpoint("Ann"), result.viewpoint("Ann")[1:]):
        assert isinstance(found, list)
        assert found == [*found]
        assert [*found] == found
        assert hasattr(found, "_repr_html_")
        assert repr(found) == repr([*found])
    assert result.viewpoint("Ann")[0] == [*result.viewpoint("Ann")][0]  # noqa: RUF015


def test_what_waits_or_was_broken_off_says_so() -> None:
    nothing = load([]).state()
    waits = converse(chat(), store="memory:")
    assert "Not finished yet" in nothing._repr_html_()
    assert "There are no messages yet." in nothing._repr_html_()
    assert "Not finished after 0 messages" in printed(nothing)
    for form in (waits._repr_html_(), waits._repr_markdown_(), printed(waits)):
        assert "User, it is your turn." in form


def test_of_a_long_talk_the_newest_lines_are_shown() -> None:
    result = load(said(*(f"line {number}." for number in range(1000)))).state()
    for form in (result._repr_html_(), result._repr_markdown_(), printed(result)):
        (hidden,) = re.findall(r"(\d+) earlier messages are not shown", form)
        assert f"line {hidden}." in form
        assert f"line {int(hidden) - 1}." not in form
        assert "line 999." in form
        assert len(form) < 40_000


@pytest.mark.part(3)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_code_wherever_it_stands(text: str) -> None:
    result: Any = hostile_result([text, "Fine."])
    view = result.viewpoint(result.conversation.names[0])
    for shown in (result, result.conversation, view, result.why()):
        seen = Seen(shown._repr_html_())
        assert seen.names <= ALLOWED - {"script", "title", "svg"} | {"b"}
        assert not [one for _, one in seen.tags if "src" in one]
        # Nor does Markdown with HTML in it, as notebooks read it.
        drawn = MarkdownIt("commonmark", {"html": True}).enable("table")
        told = Seen(drawn.render(shown._repr_markdown_()))
        tables = {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "code", "br"}
        assert told.names <= tables
        assert "\x1b" not in printed(shown)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a cell show at once how far it is."""
    for name, seconds in (("_PATIENCE", 0), ("_TICK", 0.01)):
        monkeypatch.setattr(f"duologue.graphs.session.progress.{name}", seconds)


class Kernel:
    """The output of a notebook below a cell."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, bool]] = []
        shell = SimpleNamespace(kernel=object(), display_pub=SimpleNamespace(publish=self._show))
        self.module = SimpleNamespace(get_ipython=lambda: shell)

    def _show(self, *, data: dict[str, str], transient: dict[str, str], update: bool) -> None:
        self.shown.append((data["text/plain"], transient["display_id"], update))


class Slow(BaseChatModel):
    """A model that answers after a line about its speaker was shown."""

    kernel: Any
    speakers: list[str]

    @property
    def _llm_type(self) -> str:
        return "slow"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        who = self.speakers.pop(0)
        for _ in range(1000):
            if any(who in text for text, _, _ in self.kernel.shown):
                return ChatResult(generations=[ChatGeneration(message=AIMessage("Hm."))])
            await asyncio.sleep(0.01)
        raise AssertionError(f"no line told that {who} was at work")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cell_shows_how_far_it_is_and_then_nothing(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel.module)
    hurry(monkeypatch)
    model = Slow(kernel=kernel, speakers=["Ann", "Ben"])
    if is_async:
        result = asyncio.run(aconverse(PAIR, model=model, store="memory:"))
    else:
        result = converse(PAIR, model=model, store="memory:")
    assert [text for _, text in result.transcript] == ["Hm.", "Hm."]
    texts = [text for text, _, _ in kernel.shown]
    assert any("Waiting for Ann… 0 s · round 1 of 1" in text for text in texts)
    assert any("Waiting for Ben… 0 s · round 1 of 1 · 1 call" in text for text in texts)
    # There is one line, which is removed at the end.
    assert len({place for _, place, _ in kernel.shown}) == 1
    assert [update for _, _, update in kernel.shown] == [False, *[True] * (len(texts) - 1)]
    assert texts[-1] == ""


def test_a_cell_shows_that_it_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel.module)
    hurry(monkeypatch)

    async def answer(question: Question) -> str:
        for _ in range(1000):
            if any("Waiting for an answer… 0 s" in text for text, _, _ in kernel.shown):
                return "exit"
            await asyncio.sleep(0.01)
        raise AssertionError("no line told that somebody is asked")

    result = converse(chat(), store="memory:", answer=answer)
    assert result.outcome is not None
    assert kernel.shown[-1][0] == ""


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_where_no_notebook_runs_nothing_is_shown(
    shell: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    hurry(monkeypatch)
    assert converse(PAIR, model=ScriptedChatModel(["Hm.", "Hm?"]), store="memory:").outcome
    # A stderr that is no terminal gets its first line after ten seconds.
    assert capsys.readouterr() == ("", "")


def test_a_wrong_callback_is_refused_in_a_notebook_as_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", Kernel().module)
    wrong: Any = 3
    with pytest.raises(TypeError, match="callbacks: must be a list"):
        converse(PAIR, callbacks=wrong, store="memory:")
