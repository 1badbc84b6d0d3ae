"""What a waiting session asks, and the commands that answer it."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..common.sanitize import escape_invisible
from ..conversation.questions import MessageQuestion, Question
from ..session.answers import answered_question, bind_answer
from ..session.options import GivenAnswer
from ..session.session import Session
from .terminal.console import cut_text, one_line, plain, prose
from .terminal.follow_up import FollowUp

_LONGEST = 300  # characters of what is asked, where it is told in a line


def print_question(console: Console, question: Question, *, of: str, style: str = "") -> None:
    """Print on one line what a session waits for.

    Args:
        console: Where it is printed.
        question: The question.
        of: The words before "for an answer", such as which session waits.
        style: The style of the line.
    """
    waits = f"{of} for an answer. "
    if isinstance(question, MessageQuestion):
        prose(console, waits + one_line(question.summary(), _LONGEST), style)
        return
    # A person may approve it as it is shown here: each of its blanks stays.
    asked = cut_text(escape_invisible(question.summary()), _LONGEST)
    plain(console, waits + asked, style)


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
    found = Session(session, store=store).state()
    bound = bind_answer(session, found.pending, GivenAnswer(answer, question))
    has_ended = found.outcome is not None
    meant = answered_question(session, found.pending, bound, has_ended=has_ended)
    # By its id it can't become the answer to another question that is asked meanwhile.
    return GivenAnswer(meant.read(answer), meant.id)
