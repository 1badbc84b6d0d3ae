"""Progress of a wait: a terminal shows its purpose and duration, a pipe gets only rare lines."""

import io
import json
import re
from typing import Any
from uuid import uuid4

import pytest
from rich.cells import cell_len
from rich.console import Console

from duologue.graphs import Conversation, ToolQuestion, converse, role_play
from duologue.graphs.cli.follow_up import FollowUp
from duologue.graphs.cli.terminal import progress
from duologue.graphs.cli.terminal.events import Transcript
from duologue.graphs.cli.terminal.progress import Progress
from duologue.graphs.conversation.usage import Usage
from duologue.graphs.events import (
    CodeStarted,
    Event,
    MessageSaid,
    MessageStarted,
    MessageToken,
    Notice,
    QuestionAsked,
    SessionStarted,
    SpeakerChosen,
)
from duologue.nodes.testing import Reply, ScriptedChatModel
from support.cli_help import ANSWER, DONE, FIRST, SHORT, Serve, duologue
from support.screens import Screen
from support.tables import each_row

BEGAN = SessionStarted(session="s", store="x", title="T", resumed=False)
ERASED = "\r\x1b[2K"


class Waiting:
    """A command that waits, with its own clock."""

    def __init__(self, *, live: bool, width: int = 40) -> None:
        self.now = 100.0
        file = Screen() if live else io.StringIO()
        console = Console(
            file=file, force_terminal=live, width=width, color_system=None, _environ={}
        )
        self._file = file
        self.progress = Progress(console, "Starting", lambda: self.now)

    def passes(self, seconds: float, *, ticks: int = 1) -> str:
        """Let time pass; return the output during that time."""
        before = len(self._file.getvalue())
        for _ in range(ticks):
            self.now += seconds / ticks
            self.progress.tick()
        return self._file.getvalue()[before:]

    def shows(self, event: Event | None = None, *, goes_on: bool = False) -> str:
        """Show another text; return the output before it."""
        before = len(self._file.getvalue())
        with self.progress.aside(goes_on=lambda: goes_on):
            written = self._file.getvalue()[before:]
        if event is not None:
            self.progress.saw(event)
        return written

    def follows(self, event: Event, transcript: Transcript) -> str:
        """Show an event of a conversation; return the output on this screen."""
        before = len(self._file.getvalue())
        self.progress.show(event, transcript)
        return self._file.getvalue()[before:]


def test_a_line_with_seconds_comes_after_a_moment_and_goes_when_something_is_shown() -> None:
    waiting = Waiting(live=True)
    assert waiting.passes(0.4) == ""
    assert waiting.passes(0.2).endswith("Starting… 1 s")
    line = waiting.passes(3)
    assert line.startswith(ERASED)
    assert line.endswith("Starting… 4 s")
    assert "\n" not in line
    assert waiting.shows(BEGAN) == ERASED
    assert waiting.passes(0.4) == ""
    assert waiting.passes(22).endswith("Preparing the model… 22 s")
    # Only text on the screen is erased.
    waiting.shows(BEGAN)
    assert waiting.shows(BEGAN) == ""


@each_row("it_says_who_is_waited_for_and_since_when")
def test_it_says_who_is_waited_for_and_since_when(
    purpose: str | None, speaker: str | None, text: str
) -> None:
    waiting = Waiting(live=True)
    run = uuid4()
    about = {"purpose": purpose, "speaker": speaker}
    waiting.progress.on_chat_model_start({}, [], run_id=run, metadata=about)
    assert waiting.passes(2).endswith(f"{text}… 2 s")
    # A notice does not count as an answer.
    waiting.shows(Notice(text="busy"))
    assert waiting.passes(2).endswith(f"{text}… 4 s")
    waiting.progress.on_llm_end(None, run_id=run)
    waiting.shows(SpeakerChosen(id="1", speaker="Ann"))
    assert waiting.passes(1).endswith("Working… 1 s")


def test_beside_it_stands_how_far_the_conversation_is_as_far_as_there_is_room() -> None:
    def line(width: int, **fields: Any) -> str:
        waiting = Waiting(live=True, width=width)
        model = ScriptedChatModel(["Instruction: Dig.", "Solution: Dug.\nNext request."] * 2)
        talk = role_play("Dig", "Owner", "Gardener", specify_task=False, max_iterations=2)
        talk = Conversation.model_validate(talk.model_dump() | fields)
        found = converse(
            talk,
            model=model,
            models={"scripted": model},
            store="memory:",
            callbacks=[waiting.progress],
        )
        usage = found.outcome.total if found.outcome else Usage()
        tokens = f"{usage.input_tokens + usage.output_tokens}"
        shown = waiting.passes(1).removeprefix(ERASED)
        assert cell_len(shown) < width
        return shown[2:].replace(tokens, "N")

    far = r"round 2 of 2 · 4 calls · N tokens"
    assert re.fullmatch(rf"Starting… 1 s +{far} · \d s in all", line(80))
    assert re.fullmatch(r"Starting… 1 s +round 2 of 2 · 4 calls", line(40))
    assert line(24) == "Starting… 1 s"
    prices = {"scripted": {"input": 0, "output": 1_000_000}}
    assert re.fullmatch(
        rf"Starting… 1 s +{far} · [\d.]+ spent · \d s in all",
        line(90, model="scripted", prices=prices),
    )


def test_tools_and_code_are_named() -> None:
    waiting = Waiting(live=True)
    one, other = uuid4(), uuid4()
    waiting.progress.on_tool_start({"name": "search"}, "", run_id=one)
    waiting.progress.on_tool_start({"name": "clock"}, "", run_id=other)
    assert waiting.passes(1).endswith("Waiting for the tool clock… 1 s")
    waiting.progress.on_tool_error(OSError(), run_id=other)
    assert waiting.passes(1).endswith("Waiting for the tool search… 2 s")
    waiting.progress.on_tool_end("", run_id=one)
    waiting.shows(CodeStarted(id="1", speaker="Ann", blocks=()))
    assert waiting.passes(7).endswith("Running the code… 7 s")


def test_a_tool_that_asks_a_person_is_not_waited_for() -> None:
    waiting = Waiting(live=True)
    waiting.progress.on_tool_start({"name": "search"}, "", run_id=uuid4())
    waiting.shows(QuestionAsked(question=ToolQuestion(id="q", value="Which?")))
    assert "search" not in waiting.passes(1)


def test_nothing_is_written_into_a_message_that_streams_or_beside_a_person() -> None:
    waiting = Waiting(live=True)
    waiting.shows(goes_on=True)
    assert waiting.passes(60, ticks=10) == ""
    waiting.shows(goes_on=False)
    waiting.progress.hide()
    assert waiting.passes(60, ticks=10) == ""


def test_the_line_stays_while_tokens_stream_that_a_pipe_does_not_get() -> None:
    waiting, out = Waiting(live=True), io.StringIO()
    transcript = Transcript(FollowUp(), Console(file=out), Console(file=io.StringIO()))
    waiting.progress.on_chat_model_start({}, [], run_id=uuid4(), metadata={"speaker": "Ann"})
    assert waiting.passes(2).endswith("Waiting for Ann… 2 s")
    tokens: list[Event] = [MessageToken(speaker="Ann", text="Hi ") for _ in "123"]
    for event in [MessageStarted(speaker="Ann"), *tokens]:
        assert waiting.follows(event, transcript) == out.getvalue() == ""
        assert "Waiting for Ann" in waiting.passes(0.1)
    said = MessageSaid(id="m0001", speaker="Ann", text="Hi Hi Hi ")
    assert waiting.follows(said, transcript) == ERASED
    assert "Hi Hi Hi" in out.getvalue()


def test_it_takes_one_line_however_narrow_the_terminal_is() -> None:
    waiting = Waiting(live=True, width=20)
    waiting.progress.on_tool_start({"name": "x" * 80}, "", run_id=uuid4())
    assert len(waiting.passes(1).removeprefix(ERASED)) < 20


def test_a_pipe_is_told_at_first_and_then_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 5.0)
    waiting = Waiting(live=False)
    run = uuid4()
    waiting.progress.on_chat_model_start({}, [], run_id=run, metadata={"speaker": "Ann"})
    assert waiting.passes(4.9, ticks=49) == ""
    lines = waiting.passes(475, ticks=4750).splitlines()
    seconds = [int(line.removeprefix("Waiting for Ann: ").split()[0]) for line in lines]
    assert seconds == [5, 15, 45, 135, 405]
    assert lines[0] == "Waiting for Ann: 5 s so far."
    waiting.progress.on_llm_end(None, run_id=run)
    waiting.progress.on_chat_model_start({}, [], run_id=run, metadata={"speaker": "Ben"})
    assert waiting.passes(5, ticks=50) == "Waiting for Ben: 5 s so far.\n"


@pytest.mark.exhaustive
def test_what_waits_leaves_nothing_in_what_goes_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    # A wait is shown only on stderr, and not at all with --json.
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "2")
    busy = Reply(error=503, retry_after=0)
    slow = Reply(text=FIRST, delay=0.5)
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.2)
    server = serve(busy, slow, ANSWER, DONE, busy, FIRST, ANSWER, DONE)
    plain = duologue(*SHORT)
    as_json = duologue(*SHORT, "--json", "--reset")
    told = f"The model server at {server.url} is busy or can't be reached: try 2 of 3."
    assert plain.exit_code == 0
    assert told in plain.stderr.splitlines()
    assert re.search(r"^Waiting for Owner: \d+ s so far\.$", plain.stderr, re.MULTILINE)
    assert "Waiting" not in plain.stdout
    assert told not in plain.stdout
    events = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert [one["text"] for one in events if one["event"] == "notice"] == [told]
    assert "Waiting" not in as_json.stdout
    assert as_json.stderr == ""


def test_listing_models_tells_of_each_try_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    ran = duologue("models")
    where = "model server at http://127.0.0.1:9/v1"
    assert ran.exit_code == 3
    assert ran.stderr == (
        f"The {where} is busy or can't be reached: try 2 of 2.\n"
        f"Error: the {where} can't be reached; check OPENAI_BASE_URL or DUOLOGUE_BASE_URL\n"
    )


def test_where_no_address_is_set_none_is_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    # No request may leave this machine.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    ran = duologue(*SHORT)
    assert ran.exit_code == 3
    assert ran.stderr.endswith(
        "Error: the model server at api.openai.com can't be reached; check the network, and "
        "HTTPS_PROXY if you need a proxy\n"
    )
    assert "BASE_URL" not in ran.stderr
