"""What a waiting session asks, and the commands that answer it."""

from collections.abc import Sequence
from pathlib import Path

from ..run.answers import GivenAnswer, answered_question, bind_answer
from ..sessions.session import get_session
from ..spec.questions import Question
from .terminal.follow_up import FollowUp
from .terminal.text import one_line

_LONGEST = 300  # characters of what is asked, where it is told in a line


def told(question: Question) -> str:
    """Summarise a question on one line."""
    return one_line(question.summary(), _LONGEST)


def ways_on(session: str, questions: Sequence[Question], follow_up: FollowUp) -> list[str]:
    """Say how a session that waits is answered, and how it goes on."""
    answers = []
    for question in questions:
        # By the time somebody copies it, the session may ask something else.
        command = follow_up.command(
            "answer",
            session,
            options=["--question", question.id],
            arguments=[question.sample()],
        )
        answers.append(f"Answer it with: {command}")
    return [*answers, f"Or be asked: {follow_up.command('resume', session)}"]


def reply_of(
    session: str, answer: str, question: str | None, store: str | Path | None
) -> GivenAnswer:
    """Read the ANSWER argument of `duologue answer`."""
    found = get_session(session, store=store)
    bound = bind_answer(session, found.pending, GivenAnswer(answer, question))
    has_ended = found.outcome is not None
    meant = answered_question(session, found.pending, bound, has_ended=has_ended)
    # By its id it can't become the answer to another question that is asked meanwhile.
    return GivenAnswer(meant.read(answer), meant.id)
