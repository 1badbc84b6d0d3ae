"""What a terminal shows: text wrapped as it streams, rejected replies taken back."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from duologue.graphs.cli_exit import Again
from duologue.graphs.cli_text import Flow, clean, one_line
from duologue.graphs.end_chat import Reason
from duologue.graphs.events import (
    Ended,
    MessageSaid,
    ReplyRejected,
    SessionStarted,
    Token,
    ToolAnswered,
    ToolCalled,
)
from duologue.graphs.terminal import Transcript


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(width: int = 40) -> Console:
    return Console(
        file=Screen(), force_terminal=True, width=width, height=24, color_system=None, _environ={}
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def flowed(text: str, width: int, *, pieces: int = 1) -> str:
    console = screen(width)
    flow = Flow(console)
    for start in range(0, len(text), pieces):
        flow.write(text[start : start + pieces])
    flow.end()
    assert flow.lines == written(console).count("\n")
    return written(console)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one two three", "one two\nthree\n"),
        ("a\n\n    b c\n", "a\n\n    b c\n"),
        ("\n\n  a  ", "  a\n"),
        ("0123456789abc d", "0123456789\nabc d\n"),
        ("漢字漢字漢字", "漢字漢字漢\n字\n"),
        ("", ""),
        (" \n ", ""),
        ("a\x1b[2Jb", "a␛[2Jb\n"),
    ],
)
def test_text_is_wrapped_between_words(text: str, shown: str) -> None:
    assert flowed(text, 10) == shown
    assert flowed(text, 10, pieces=100) == shown


@given(st.text(), st.integers(2, 30), st.integers(1, 5))
def test_no_line_is_too_wide_and_no_word_is_lost(text: str, width: int, pieces: int) -> None:
    shown = flowed(text, width, pieces=pieces)
    assert all(cell_len(line) <= width for line in shown.split("\n"))
    assert "".join(shown.split()) == "".join(clean(text).split())


@given(st.text(), st.integers(1, 30))
def test_a_line_is_one_line_of_harmless_signs(text: str, width: int) -> None:
    line = one_line(text, width)
    assert cell_len(line) <= width
    assert line.isprintable() or not any(character in "\n\r\t\x1b" for character in line)


def test_a_streamed_reply_is_shown_once_and_taken_back_when_rejected() -> None:
    console = screen()
    transcript = Transcript(Again(), console, screen())
    for event in (
        SessionStarted(session="s", store="x", title="T", resumed=False),
        Token(speaker="A", text="Hello "),
        Token(speaker="A", text="there"),
        MessageSaid(id="1", speaker="A", text="Hello there"),
        Token(speaker="B", text="Wrong"),
        ReplyRejected(id="2", speaker="B", text="Wrong", problem="No."),
        MessageSaid(id="3", speaker="B", text="Right", problem="Odd."),
    ):
        transcript.show(event)
    text = written(console)
    assert text.count("Hello there") == 1
    # Back up over the one line of the draft, which is then written once more, dimmed.
    assert "Wrong\n\x1b[1A\x1b[2KWrong\n(Rejected and asked again: No.)\n" in text
    assert text.endswith("Right\n(Kept, though asked for again: Odd.)\n")


def test_tools_take_one_line_each_and_an_outcome_tells_what_was_used() -> None:
    console = screen()
    transcript = Transcript(Again(store="my file"), console, screen())
    for event in (
        ToolCalled(speaker="A", call_id="1", name="look", arguments={"what": "x" * 80}),
        ToolAnswered(speaker="A", call_id="1", text="none\nfound", failed=True),
        Ended(
            session="s",
            reason=Reason.MAX_ITERATIONS,
            reasons=(Reason.MAX_ITERATIONS,),
            by=None,
            message=None,
            rounds=1,
            messages=2,
            completed=(),
            usage={},
        ),
    ):
        transcript.show(event)
    lines = written(console).splitlines()
    assert lines[0].startswith("(A calls look(what='xxx")
    assert lines[1] == "(The call failed: none found)"
    assert max(map(len, lines[:2])) <= 40
    assert lines[-4:] == [
        "Ended after 1 round and 2 messages: the ",
        "round cap was reached.",
        "0 model calls, 0 tokens read, 0 written.",
        "Read it again: duologue show --store 'my file' s",
    ]


def test_the_command_that_goes_on_is_quoted_and_holds_no_password() -> None:
    again = Again(store="postgresql://me:secret@host/db?x=1&y=2", model="a b")
    assert again.command("resume", "-s") == (
        "duologue resume --store 'postgresql://me:***@host/db?x=1&y=2' --model 'a b' -- -s"
    )
