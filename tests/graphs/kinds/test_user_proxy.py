"""Rows A2 to A6: transcripts and questions for each mode, termination, cap and list of answers."""

from typing import Literal, NamedTuple

import pytest

from duologue.graphs import converse, user_proxy
from duologue.graphs.conversation.questions import MessageQuestion, Question
from duologue.nodes.testing import ScriptedChatModel

TASK = "What is 6 times 7?"
AUTO = "Please go on."


def lines_of(turn: int | None) -> list[str]:
    """Return the assistant's messages."""
    words = ("first", "second", "third", "fourth")
    return [
        f"The {word} part of it is done. TERMINATE" if number == turn else f"I try a {word} way."
        for number, word in enumerate(words, start=1)
    ]


A = lines_of(None)
DONE = lines_of(1)[0]
LATE = lines_of(2)[1]


Mode = Literal["NEVER", "ALWAYS", "TERMINATE"]


class Written(NamedTuple):
    """The expected course of a conversation."""

    mode: Mode
    turn: int | None
    cap: int
    answers: tuple[str, ...]
    said: tuple[str, ...]
    """Messages after the first one."""
    questions: int
    """Number of questions to the person. The last one stays open if there is no end."""
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
        # The text has reset the count; one more reply follows, and then the round cap.
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
        # The round cap is reached before the next question.
        (A[0], AUTO, A[1], OKAY, A[2], AUTO, A[3]),
        1,
        ROUND_CAP,
    ),
    "A5-cap-0-empty": Written("TERMINATE", None, 0, ("",), (A[0],), 1, CAPPED),
    "A5-cap-0-empty-at-the-word": Written("TERMINATE", 1, 0, ("",), (DONE,), 1, TERMINATED),
    "A5-cap-0-text": Written("TERMINATE", None, 0, (OKAY,), (A[0], OKAY, A[1]), 2, None),
    "A5-exit": Written("TERMINATE", 1, 100, ("Exit",), (DONE,), 1, LEFT),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_conversations_go_as_they_are_written(written: Written) -> None:
    """A2-A6: the transcript, the number of questions, the end and its speaker are as expected."""
    answers, asked = iter(written.answers), 0

    def answer(question: Question) -> str | None:
        nonlocal asked
        asked += 1
        assert isinstance(question, MessageQuestion)
        assert question.speaker == "User"
        assert question.problem is None
        return next(answers, None)

    lines = lines_of(written.turn)
    result = converse(
        user_proxy(
            TASK,
            human_input_mode=written.mode,
            max_consecutive_auto_reply=written.cap,
            default_auto_reply=AUTO,
            max_iterations=len(lines),
            code=False,
        ),
        model=ScriptedChatModel(script=lines),
        store="memory:",
        answer=answer,
    )
    names = ("User", "Assistant")
    said = (TASK, *written.said)
    assert result.transcript == [(names[place % 2], text) for place, text in enumerate(said)]
    assert asked == written.questions
    end = result.outcome and (result.outcome.reason.value, result.outcome.by)
    assert end == written.end
    assert len(result.pending) == (end is None)
