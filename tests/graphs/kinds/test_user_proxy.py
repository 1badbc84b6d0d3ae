"""Rows A2 to A6: transcripts and questions for each mode, termination, cap and list of answers."""

from typing import Any

from duologue.graphs import MessageQuestion, Question, converse, user_proxy
from duologue.nodes.testing import ScriptedChatModel
from support.tables import check_rows, read_rows

TASK = "What is 6 times 7?"


def lines_of(turn: int | None) -> list[str]:
    """Return the assistant's messages."""
    words = ("first", "second", "third", "fourth")
    return [
        f"The {word} part of it is done. TERMINATE" if number == turn else f"I try a {word} way."
        for number, word in enumerate(words, start=1)
    ]


def check_course(course: dict[str, Any]) -> None:
    """Check the transcript, the number of questions, the end and its speaker."""
    answers, asked = iter(course["answers"]), 0

    def answer(question: Question) -> str | None:
        nonlocal asked
        asked += 1
        assert isinstance(question, MessageQuestion)
        assert (question.speaker, question.problem) == ("User", None)
        return next(answers, None)

    lines = lines_of(course.get("turn"))
    talk = user_proxy(
        TASK,
        human_input_mode=course["mode"],
        max_consecutive_auto_reply=course.get("cap", 100),
        default_auto_reply="Please go on.",
        max_iterations=len(lines),
        code=False,
    )
    model = ScriptedChatModel(script=lines)
    result = converse(talk, model=model, store="memory:", answer=answer)
    said = (TASK, *course["said"])
    names = ("User", "Assistant")
    assert result.transcript == [(names[place % 2], text) for place, text in enumerate(said)]
    assert asked == course["questions"]
    end = result.outcome and [result.outcome.reason.value, result.outcome.by]
    assert (end and [one for one in end if one]) == course.get("end")
    assert len(result.pending) == (end is None)


def test_conversations_go_as_they_are_written() -> None:
    """A2 to A6. The round cap is reached before a fifth message of the assistant."""
    check_rows([(course,) for course in read_rows(__file__, "user_proxy_courses")], check_course)
