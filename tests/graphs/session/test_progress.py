"""The line of progress on a terminal while a script waits for a result."""

import asyncio
import io
import logging
import sys
from types import SimpleNamespace

import pytest

from duologue import Conversation, MaxMessages, Speaker, aconverse, chat, converse
from duologue.graphs.session import progress
from duologue.graphs.session.progress import TERMINAL
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel

TALK = Conversation("Talk.", [Speaker("Ann"), Speaker("Ben")], end_chat=MaxMessages(2))
ERASE = "\r\x1b[2K"


class Stderr(io.StringIO):
    """An output that is a terminal or not."""

    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal

    def erased(self) -> str:
        """Return the text that is left after all erasing."""
        return self.getvalue().rpartition(ERASE)[2]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Stderr:
    """Make stderr a terminal on which the line is shown at once."""
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    monkeypatch.setattr(progress, "_TICK", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("DUOLOGUE_PROGRESS", raising=False)
    found = Stderr()
    # pytest sets the stderr of `sys` again between a fixture and its test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found, modules=sys.modules))
    return found


class SlowModel(ScriptedChatModel):
    """A model whose answers leave time for the line."""

    async def _agenerate(self, *given: object, **kwargs: object) -> object:  # type: ignore[override]
        for _ in range(100):
            await asyncio.sleep(0)
        return await super()._agenerate(*given, **kwargs)  # type: ignore[arg-type]


def slow(*script: Line) -> SlowModel:
    return SlowModel(script=list(script))


def test_a_terminal_shows_who_is_asked_and_keeps_nothing(screen: Stderr) -> None:
    converse(TALK, model=slow("Hello.", "Bye."), store="memory:")
    shown = screen.getvalue()
    assert f"{ERASE}Waiting for Ann… 0 s · round 1" in shown
    assert f"{ERASE}Waiting for Ben… 0 s · round 1" in shown
    assert screen.erased() == ""
    assert not TERMINAL.locked()


def test_a_failed_run_leaves_no_line(screen: Stderr) -> None:
    def fail(prompt: Prompt) -> Line:
        raise ConnectionError("gone")

    with pytest.raises(Exception, match="gone"):
        converse(TALK, model=SlowModel(script=fail), store="memory:")
    assert "Waiting for Ann" in screen.getvalue()
    assert screen.erased() == ""
    assert not TERMINAL.locked()


def test_the_line_is_gone_while_a_person_is_asked(screen: Stderr) -> None:
    seen: list[str] = []

    def answer(question: object) -> str:
        seen.append(screen.erased())
        return "exit" if len(seen) > 1 else "How are you?"

    converse(chat("Hello"), model=slow("Fine.", "Fine, too."), store="memory:", answer=answer)
    assert seen == ["", ""]
    assert "Waiting for Assistant" in screen.getvalue()


async def test_one_line_is_shown_for_several_runs(screen: Stderr) -> None:
    runs = [aconverse(TALK, model=slow("Hello.", "Bye."), store="memory:") for _ in range(3)]
    await asyncio.gather(*runs)
    assert "Waiting for Ann" in screen.getvalue()
    assert screen.erased() == ""
    assert not TERMINAL.locked()


@pytest.mark.part(2)
@pytest.mark.parametrize("reason", ["setting", "pipe", "dumb", "log"])
def test_nothing_is_shown_if_it_is_off_or_nobody_sees_it(
    reason: str,
    screen: Stderr,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    match reason:
        case "setting":
            monkeypatch.setenv("DUOLOGUE_PROGRESS", "0")
        case "pipe":
            screen.is_terminal = False
        case "dumb":
            monkeypatch.setenv("TERM", "dumb")
        case "log":
            caplog.set_level(logging.INFO, "duologue")
    converse(TALK, model=slow("Hello.", "Bye."), store="memory:")
    assert screen.getvalue() == ""


@pytest.mark.part(1)
@pytest.mark.parametrize("reason", ["pipe", "dumb"])
def test_a_long_run_without_a_terminal_writes_lines(
    reason: str, screen: Stderr, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 0)
    if reason == "pipe":
        screen.is_terminal = False
    else:
        monkeypatch.setenv("TERM", "dumb")
    converse(TALK, model=slow("Hello.", "Bye."), store="memory:")
    lines = screen.getvalue().splitlines()
    assert all(line.startswith("duologue: ") for line in lines)
    contents = [line.partition(" s so far · ")[2] for line in lines]
    assert contents[0] == "no message yet"
    assert "1 message, the newest from Ann" in contents
    assert not TERMINAL.locked()


def test_the_time_between_two_lines_grows(screen: Stderr, monkeypatch: pytest.MonkeyPatch) -> None:
    screen.is_terminal = False
    seconds = iter(range(0, 400, 2))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    found = progress._find_progress()
    assert found is not None
    for _ in range(150):
        found.show(found.line())
    found.show("")
    times = [line.partition(" s so far")[0] for line in screen.getvalue().splitlines()]
    assert times == ["duologue: 10", "duologue: 30", "duologue: 90", "duologue: 270"]


def test_a_process_without_stderr_runs(screen: Stderr, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = SimpleNamespace(stderr=None, modules=sys.modules)
    monkeypatch.setattr(progress, "sys", streams)
    result = converse(TALK, model=slow("Hello.", "Bye."), store="memory:")
    assert result.stop_reason == "max_messages"
