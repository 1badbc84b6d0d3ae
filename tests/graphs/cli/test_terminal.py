"""Output on a terminal: text wrapped as it streams, and rejected replies erased."""

import io

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.console import Console

from duologue.graphs import Reason, stream
from duologue.graphs.cli.follow_up import FollowUp
from duologue.graphs.cli.terminal.console import Flow, one_line
from duologue.graphs.cli.terminal.events import Transcript
from duologue.graphs.common.sanitize import clean
from duologue.graphs.conversation.judges import Finding, Verdict
from duologue.graphs.conversation.usage import Usage
from duologue.graphs.events import (
    ConversationEnded,
    Event,
    MessageSaid,
    MessageToken,
    ReplyRejected,
    SessionStarted,
    SpeakerChosen,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from duologue.graphs.rules.outcome import OutcomeStep, OutcomeStepKind
from duologue.nodes.testing import Reply, ScriptedChatModel
from support.screens import screen, written
from support.shape_help import talk
from support.tables import each_row


def flowed(text: str, width: int, *, pieces: int = 1) -> str:
    console = screen(width)
    flow = Flow(console)
    for start in range(0, len(text), pieces):
        flow.write(text[start : start + pieces])
    flow.end()
    assert flow.lines == written(console).count("\n")
    return written(console)


@each_row("wrapped", "text", "shown")
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
    transcript = Transcript(FollowUp(), console, screen())
    for event in (
        SessionStarted(session="s", store="x", title="T", resumed=False),
        MessageToken(speaker="A", text="Hello "),
        MessageToken(speaker="A", text="there"),
        MessageSaid(id="1", speaker="A", text="Hello there"),
        MessageToken(speaker="B", text="Wrong"),
        ReplyRejected(id="2", speaker="B", text="Wrong", problem="No."),
        MessageSaid(id="3", speaker="B", text="Right", problem="Odd."),
    ):
        transcript.show(event)
    text = written(console)
    assert text.count("Hello there") == 1
    # The cursor moves up over the line of the draft, which is then written again, dimmed.
    assert "Wrong\n\x1b[1A\x1b[2KWrong\n(Rejected and asked again: No.)\n" in text
    assert text.endswith("Right\n(Used despite a problem: Odd.)\n")


def test_tools_take_one_line_each_and_an_outcome_tells_what_was_used() -> None:
    console = screen()
    transcript = Transcript(FollowUp(store="my file"), console, screen())
    for event in (
        ToolCallRequested(speaker="A", call_id="1", name="look", arguments={"what": "x" * 80}),
        ToolCallFinished(speaker="A", call_id="1", text="none\nfound", failed=True),
        ConversationEnded(
            session="s",
            reasons=(Reason.MAX_ITERATIONS,),
            explanations=("the round cap was reached",),
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
    assert lines[-7:] == [
        "╭──────────────────────────────────────╮",
        "│ Ended after 1 round and 2 messages:  │",
        "│ the round cap was reached.           │",
        "│ 0 model calls, 0 tokens read, 0      │",
        "│ written.                             │",
        "╰──────────────────────────────────────╯",
        "Read it again: duologue show --store 'my file' s",
    ]


def shown(*events: Event, width: int = 40, ids: bool = False, live: bool = True) -> list[str]:
    console = screen(width) if live else Console(file=io.StringIO(), width=width, _environ={})
    transcript = Transcript(FollowUp(), console, screen(), ids=ids)
    for event in events:
        transcript.show(event)
    return written(console).splitlines()


JUDGED = Verdict(
    speaker="Ann",
    complete=False,
    findings={
        "They agree on a price, and say so in words": Finding.MET,
        "A day is named": Finding.NOT_MET,
        "Nobody lies": Finding.INCONCLUSIVE,
    },
)


def test_a_separate_judges_findings_take_a_line_each() -> None:
    event = VerdictGiven(id="m0003", verdict=JUDGED)
    assert shown(event) == [
        "(The judge finds 1 of 3 criteria met.)",
        "  met           They agree on a price,…",
        "  not met       A day is named",
        "  inconclusive  Nobody lies",
    ]
    assert shown(event, live=False)[1] == (
        "  met           They agree on a price, and say so in words"
    )
    unreadable = Verdict(speaker="Ann", complete=False, readable=False)
    assert shown(VerdictGiven(id="1", verdict=unreadable), width=80) == [
        "(The judge, after Ann: unreadable verdict, which counts as not complete)"
    ]


def test_who_was_chosen_to_speak_takes_one_line() -> None:
    chosen = SpeakerChosen(id="1", speaker="Ann")
    assert shown(chosen) == ["(Ann speaks next)"]
    odd = chosen.model_copy(update={"problem": "This names nobody."})
    assert shown(odd, width=80) == ["(The choice of the next speaker was unreadable: Ann is next)"]


def test_what_is_said_alone_is_marked() -> None:
    assert shown(MessageSaid(id="1", speaker="A", text="Seven.", audience=()))[-2:] == [
        "Seven.",
        "(Heard by no other speaker.)",
    ]
    some = MessageSaid(id="1", speaker="A", text="Seven.", audience=("B", "C"))
    assert shown(some)[-2:] == ["Seven.", "(Heard only by B and C.)"]


def test_ids_stand_at_the_right_of_who_speaks_where_they_are_asked_for() -> None:
    said = MessageSaid(id="m0007", speaker="Ann " * 20, text="Hello")
    _, head, _ = shown(said, ids=True)
    assert head.endswith(" m0007")
    assert cell_len(head) == 40
    assert "m0007" not in "".join(shown(said))
    assert shown(said.model_copy(update={"speaker": "Ann"}), ids=True, live=False)[1] == (
        "Ann (m0007):"
    )


def ended(cost: float, *because: str) -> ConversationEnded:
    return ConversationEnded(
        session="s",
        reasons=(Reason.COMPLETED, Reason.MAX_MESSAGES, Reason.MAX_ITERATIONS)[: len(because)],
        explanations=because,
        rounds=1,
        messages=2,
        usage={"m": Usage(calls=1, input_tokens=2000, output_tokens=3, cost=cost)},
    )


def panel(*events: Event, width: int = 80) -> list[str]:
    """Return the lines of the panel at the end, without its border."""
    lines = [line for line in shown(*events, width=width) if line.startswith(("╭", "│", "╰"))]
    assert all(cell_len(line) == width for line in lines)
    return [line.strip("│ ") for line in lines if line.startswith("│")]


@pytest.mark.parametrize("live", [True, False])
def test_every_reason_that_held_is_told(live: bool) -> None:
    def told(*because: str) -> list[str]:
        event = ended(0, *because)
        return panel(event) if live else shown(event, live=False)

    lines = told("a held", "b held", "c held")
    assert "Ended after 1 round and 2 messages: a held." in lines
    assert "Also: b held; c held." in lines
    assert "Also: b held." in told("a held", "b held")
    assert not any("Also" in line for line in told("a held"))


def test_the_panel_tells_the_last_steps_that_led_to_the_reasons_and_no_others() -> None:
    def counted(number: int, reason: Reason = Reason.FAREWELLS) -> OutcomeStep:
        text = f"漢\x1b[2J: a farewell ({number} of 9)"
        return OutcomeStep(
            kind=OutcomeStepKind.COUNTED, message=f"m000{number}", text=text, reason=reason
        )

    verdict = OutcomeStep(kind=OutcomeStepKind.VERDICT, message="m0009", text="Ann: complete")
    reason = OutcomeStep(kind=OutcomeStepKind.REASON, text="a held", reason=Reason.FAREWELLS)
    causes = [*map(counted, range(1, 6)), counted(6, Reason.ECHO), verdict, reason]

    def told(*reasons: Reason, width: int = 60) -> list[str]:
        console = screen(width)
        event = ended(0, "a held").model_copy(update={"reasons": reasons})
        Transcript(FollowUp(), console, screen()).end(event, lambda: causes)
        lines = [line for line in written(console).splitlines() if line.startswith("│")]
        assert all(cell_len(line) == width for line in lines)
        return [text for line in lines if (text := line.strip("│ ")).startswith("m000")]

    farewells = [f"m000{number} 漢\\x1b[2J: a farewell ({number} of 9)" for number in (3, 4, 5)]
    assert told(Reason.FAREWELLS) == farewells
    assert told(Reason.COMPLETED) == ["m0009 Ann: complete"]
    assert told(Reason.MAX_ITERATIONS) == []
    assert told(Reason.FAREWELLS, width=24)[-1].endswith("…")


@each_row("costs", "cost", "text")
def test_what_it_cost_is_told_where_there_is_a_price(cost: float, text: str) -> None:
    assert text in panel(ended(cost, "a held"))
    assert text in shown(ended(cost, "a held"), live=False)


def test_the_command_that_goes_on_is_quoted_and_holds_no_password() -> None:
    follow_up = FollowUp(store="postgresql://me:secret@host/db?x=1&y=2", model="a b")
    assert follow_up.command("resume", "-s") == (
        "duologue resume --store 'postgresql://me:***@host/db?x=1&y=2' --model 'a b' -- -s"
    )


def test_who_is_asked_is_not_reminded_of_an_answer_that_repeats_its_own_words() -> None:
    transcript = Transcript(FollowUp(), screen(), screen())
    for number, (speaker, text) in enumerate([("User", "42"), ("A", "42!"), ("B", "42! Yes.")]):
        transcript.show(MessageSaid(id=str(number), speaker=speaker, text=text))
    assert transcript.unseen("42! Yes.\n\n42!\n\nNew.", "User") == "New."


@pytest.mark.parametrize("size", [1, 4, 100])
def test_r2_a_message_with_a_done_token_is_shown_once(size: int) -> None:
    """The token is not streamed, so the streamed text differs from the message."""
    when = [{"kind": "done_token", "token": "###STOP###"}]
    said = "Thank you! ###STOP###"
    chunks = tuple(said[at : at + size] for at in range(0, len(said), size))
    model = ScriptedChatModel(script=[Reply(text=said, chunks=chunks)])
    spec = talk(end_chat={"when": when, "allow_unanswered_end": True})
    console = screen()
    transcript = Transcript(FollowUp(), console, screen())
    for event in stream(spec, model=model, store="memory:"):
        transcript.show(event)
    assert written(console).count("Thank you!") == 1
