"""What a waiting session asks, and the commands that answer it."""

from collections.abc import Sequence
from pathlib import Path

from ..run.answers import GivenAnswer
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
        options = ["--question", question.id] if len(questions) > 1 else []
        command = follow_up.command(
            "answer", session, options=options, arguments=[question.sample()]
        )
        answers.append(f"Answer it with: {command}")
    return [*answers, f"Or be asked: {follow_up.command('resume', session)}"]


def reply_of(
    session: str, answer: str, question: str | None, store: str | Path | None
) -> GivenAnswer:
    """Read the ANSWER argument of `duologue answer`."""
    pending = get_session(session, store=store).pending
    meant = [one for one in pending if question in (None, one.id)]
    if len(meant) != 1:
        return GivenAnswer(answer, question)
    # By its id it can't become the answer to another question that is asked meanwhile.
    return GivenAnswer(meant[0].read(answer), meant[0].id)
