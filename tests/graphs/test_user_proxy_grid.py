"""Rows A2 to A6: mode, termination, cap and answers give these transcripts and these questions.

The grid holds the engine to `autogen_rules`, which knows nothing of it; the conversations that are
written out below hold both.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple, get_args

import pytest

from duologue.graphs import converse, user_proxy
from duologue.graphs.spec.questions import MessageQuestion, Question
from duologue.nodes.testing import ScriptedChatModel

from .autogen_rules import Mode, Played, by_the_rules

pytestmark = pytest.mark.exhaustive

TASK = "What is 6 times 7?"
AUTO = "Please go on."
ENDLESS = ("",) * 4
MODES: tuple[Mode, ...] = get_args(Mode)

TURNS = (None, 1, 2, 3)
"""At which of its turns the assistant says a termination message."""
CAPS = (0, 1, 2, 100)
ANSWERS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "one-text": ("Are you sure?",),
    "exit": ("exit",),
    "EXIT": (" EXIT ",),
    "white": ("  \n", "\t", " "),
    "empty-for-ever": ENDLESS,
    "texts-for-ever": ("One.", "Two.", "Three.", "Four."),
    "text-then-empty": ("Are you sure?", *ENDLESS),
    "empty-then-text": ("", "Are you sure?", *ENDLESS),
    "two-empty-then-text": ("", "", "Are you sure?", *ENDLESS),
    "text-then-exit": ("Do not exit", "Exit\n"),
    "empty-then-exit": ("", "", "eXiT"),
}


def lines_of(turn: int | None) -> list[str]:
    """What the assistant says."""
    words = ("first", "second", "third", "fourth")
    return [
        f"The {word} part of it is done. TERMINATE" if number == turn else f"I try a {word} way."
        for number, word in enumerate(words, start=1)
    ]


def by_the_engine(
    mode: Mode, cap: int, lines: Sequence[str], answers: Sequence[str], **options: Any
) -> Played:
    """Play a conversation, and tell of it as the rules do."""
    given = iter(answers)
    played = Played()

    def answer(question: Question) -> str | None:
        assert isinstance(question, MessageQuestion)
        assert question.speaker == "User"
        assert question.problem is None
        played.questions.append(str(question.empty))
        return next(given, None)

    result = converse(
        user_proxy(
            TASK,
            human_input_mode=mode,
            max_consecutive_auto_reply=cap,
            default_auto_reply=AUTO,
            max_iterations=len(lines),
            code=False,
            **options,
        ),
        model=ScriptedChatModel(script=list(lines)),
        store="memory:",
        answer=answer,
    )
    played.transcript = result.transcript
    if result.outcome is not None:
        played.end = (result.outcome.reason.value, result.outcome.by)
    assert (result.outcome is None) is (len(result.pending) == 1)
    return played


class Case(NamedTuple):
    """One of the grid."""

    mode: Mode
    turn: int | None
    cap: int
    answers: str


GRID = [
    Case(*case)
    for case in product(MODES, TURNS, CAPS, ANSWERS)
    # Who is never asked gives no answer.
    if case[0] != "NEVER" or case[3] == "nobody"
]


def test_the_grid_is_large_enough() -> None:
    """A2-A6: at least 400 cases, in which everything happens that may."""
    assert len(GRID) >= 400
    ends = {played_by_the_rules(case).end for case in GRID}
    assert ends == {
        None,
        ("quit", "User"),
        ("termination", "Assistant"),
        ("max_consecutive_auto_reply", None),
        ("max_iterations", None),
    }


def played_by_the_rules(case: Case) -> Played:
    return by_the_rules(
        case.mode,
        case.cap,
        lines_of(case.turn),
        ANSWERS[case.answers],
        message=TASK,
        auto_reply=AUTO,
    )


@pytest.mark.parametrize("cap", CAPS, ids=lambda cap: f"cap-{cap}")
@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: f"terminates-{turn}")
@pytest.mark.parametrize("mode", MODES, ids=("A3-NEVER", "A4-ALWAYS", "A5-TERMINATE"))
def test_the_engine_goes_by_the_rules(mode: Mode, turn: int | None, cap: int) -> None:
    """A2-A6: same transcript, same number of questions and what they offer, same end, by whom."""
    for case in GRID:
        if case[:3] == (mode, turn, cap):
            found = by_the_engine(mode, cap, lines_of(turn), ANSWERS[case.answers])
            assert found == played_by_the_rules(case), case


# Written out. ``u:`` is what the user says, ``a:`` the assistant; ``?`` a question to the person
# that is left without an answer.

A = lines_of(None)
DONE = lines_of(1)[0]
LATE = lines_of(2)[1]


class Written(NamedTuple):
    """A conversation as it must go."""

    mode: Mode
    turn: int | None
    cap: int
    answers: tuple[str, ...]
    said: tuple[str, ...]
    """What is said behind the first message."""
    questions: int
    end: tuple[str, str | None] | None


TERMINATED = ("termination", "Assistant")
CAPPED = ("max_consecutive_auto_reply", None)
LEFT = ("quit", "User")
ROUND_CAP = ("max_iterations", None)
OKAY = "Are you sure?"

WRITTEN = {
    "A3-word": Written("NEVER", 2, 100, (), (A[0], AUTO, LATE), 0, TERMINATED),
    "A3-cap-2": Written("NEVER", None, 2, (), (A[0], AUTO, A[1], AUTO, A[2]), 0, CAPPED),
    "A3-cap-0": Written("NEVER", None, 0, (), (A[0],), 0, CAPPED),
    "A3-word-and-cap": Written("NEVER", 1, 0, (), (DONE,), 0, TERMINATED),
    "A4-waits-at-once": Written("ALWAYS", None, 100, (), (A[0],), 1, None),
    "A4-text": Written("ALWAYS", None, 100, (OKAY,), (A[0], OKAY, A[1]), 2, None),
    "A4-empty": Written("ALWAYS", None, 100, ("",), (A[0], AUTO, A[1]), 2, None),
    "A4-empty-at-the-word": Written("ALWAYS", 1, 100, ("",), (DONE,), 1, TERMINATED),
    "A4-text-at-the-word": Written("ALWAYS", 1, 100, (OKAY,), (DONE, OKAY, A[1]), 2, None),
    "A4-exit": Written("ALWAYS", None, 100, ("", " EXIT "), (A[0], AUTO, A[1]), 2, LEFT),
    "A4-exit-at-the-word": Written("ALWAYS", 1, 100, ("exit",), (DONE,), 1, LEFT),
    "A4-no-cap": Written("ALWAYS", None, 0, ("", ""), (A[0], AUTO, A[1], AUTO, A[2]), 3, None),
    "A5-word": Written("TERMINATE", 2, 100, ("",), (A[0], AUTO, LATE), 1, TERMINATED),
    "A5-goes-on-after-the-word": Written(
        "TERMINATE",
        2,
        1,
        (OKAY,),
        # The text has begun the count anew: one more, and the round cap comes first.
        (A[0], AUTO, LATE, OKAY, A[2], AUTO, A[3]),
        1,
        ROUND_CAP,
    ),
    "A5-asks-at-the-cap-and-then-each-time": Written(
        "TERMINATE", None, 1, ("",), (A[0], AUTO, A[1], AUTO, A[2]), 2, None
    ),
    "A5-text-at-the-cap": Written(
        "TERMINATE",
        None,
        1,
        (OKAY,),
        # The round cap comes before the next question.
        (A[0], AUTO, A[1], OKAY, A[2], AUTO, A[3]),
        1,
        ROUND_CAP,
    ),
    "A5-cap-0-empty": Written("TERMINATE", None, 0, ("",), (A[0],), 1, CAPPED),
    "A5-cap-0-empty-at-the-word": Written("TERMINATE", 1, 0, ("",), (DONE,), 1, TERMINATED),
    "A5-cap-0-text": Written("TERMINATE", None, 0, (OKAY,), (A[0], OKAY, A[1]), 2, None),
    "A5-exit": Written("TERMINATE", 1, 100, ("Exit",), (DONE,), 1, LEFT),
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_conversations_go_as_they_are_written(written: Written) -> None:
    """A2-A6: by hand, so that rules and engine can't be wrong in the same way."""
    names = ("User", "Assistant")
    said = (TASK, *written.said)
    transcript = [(names[place % 2], text) for place, text in enumerate(said)]
    lines = lines_of(written.turn)
    for found in (
        by_the_engine(written.mode, written.cap, lines, written.answers),
        by_the_rules(
            written.mode, written.cap, lines, written.answers, message=TASK, auto_reply=AUTO
        ),
    ):
        assert (found.transcript, len(found.questions), found.end) == (
            transcript,
            written.questions,
            written.end,
        )
