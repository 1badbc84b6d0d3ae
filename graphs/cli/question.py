"""Printed questions of a waiting session, and the commands that answer them."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..common.content import Block, make_content
from ..common.errors import SpecError
from ..common.sanitize import escape_invisible
from ..conversation.questions import MessageQuestion, Question
from ..session.answers import answered_question, bind_answer
from ..session.options import GivenAnswer
from ..session.session import Session
from .terminal.console import cut_text, one_line, plain, prose
from .terminal.follow_up import FollowUp

_LONGEST = 300  # characters of a question on one line


def print_question(console: Console, question: Question, *, of: str, style: str = "") -> None:
    """Print the question that a session waits for, on one line.

    Args:
        console: The console to print to.
        question: The question.
        of: The words before "for an answer", such as "Session garden waits".
        style: The style of the line.
    """
    waits = f"{of} for an answer. "
    if isinstance(question, MessageQuestion):
        prose(console, waits + one_line(question.summary(), _LONGEST), style)
        return
    # A person may approve the call that is printed here, so its white space is kept.
    asked = cut_text(escape_invisible(question.summary()), _LONGEST)
    plain(console, waits + asked, style)


def ways_on(session: str, questions: Sequence[Question], follow_up: FollowUp) -> list[str]:
    """Return the lines with the commands that answer a waiting session."""
    answers = []
    for question in questions:
        # With the question's id a copied command cannot answer a later question.
        command = follow_up.command(
            "answer",
            session,
            options=["--question", question.id],
            arguments=[question.sample()],
        )
        answers.append(f"Answer it with: {command}")
    return [*answers, f"Or answer in the terminal: {follow_up.command('resume', session)}"]


def reply_of(
    session: str,
    answer: str,
    question: str | None,
    store: str | Path | None,
    files: Sequence[Block] = (),
) -> GivenAnswer:
    """Read the ANSWER argument of `duologue answer`, and the files of --attach.

    Raises:
        SpecError: There are files, but the question does not ask for a message.
    """
    found = Session(session, store=store).state()
    bound = bind_answer(session, found.pending, GivenAnswer(answer, question))
    has_ended = found.outcome is not None
    meant = answered_question(session, found.pending, bound, has_ended=has_ended)
    # With its id the answer cannot be used for another question that is asked meanwhile.
    if not files:
        return GivenAnswer(meant.read(answer), meant.id)
    if not isinstance(meant, MessageQuestion):
        raise SpecError("--attach: this question does not ask for a message; leave the option out")
    return GivenAnswer(make_content(answer, files), meant.id)
