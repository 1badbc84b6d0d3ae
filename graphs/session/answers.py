"""Answers and messages with which a run begins, bound to the question they were written for.

A run first waits for the session's lease. Meanwhile another run may answer the waiting question and
ask the next one, which the caller has not seen.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..common.errors import SessionError
from ..conversation.questions import MessageQuestion, Question
from .options import GivenAnswer
from .take_over import waits_for


class BoundAnswer(NamedTuple):
    """An answer with the question that it belongs to."""

    value: Any
    """The answer."""
    question: str | None
    """The id of the question. None if no question was waiting when the answer was given."""
    waited: bool
    """Whether the question was waiting when the answer was given."""


def bind_answer(session: str, waiting: Sequence[Question], answer: GivenAnswer) -> BoundAnswer:
    """Bind an answer to its question.

    Args:
        session: The session's id.
        waiting: The questions that are waiting before the run waits for the lease.
        answer: The answer.

    Returns:
        The answer with the question's id.

    Raises:
        SessionError: Several questions wait, and the answer names none of them.
    """
    ids = [one.id for one in waiting]
    if answer.question is not None:
        return BoundAnswer(answer.value, answer.question, answer.question in ids)
    if len(ids) > 1:
        raise SessionError(
            f"Session {session!r} waits for several answers; name the question, one of "
            f"{', '.join(ids)}."
        )
    return BoundAnswer(answer.value, ids[0] if ids else None, bool(ids))


def answered_question(
    session: str, waiting: Sequence[Question], answer: BoundAnswer, *, has_ended: bool = False
) -> Question:
    """Return the question that an answer belongs to.

    Args:
        session: The session's id.
        waiting: The questions that are waiting now, while the lease is held.
        answer: The answer.
        has_ended: Whether the session has ended.

    Returns:
        The question.

    Raises:
        SessionError: The question is no longer waiting, or was never asked.
    """
    for question in waiting:
        if question.id == answer.question:
            return question
    now = waits_for(waiting, has_ended=has_ended)
    if answer.waited:
        problem = (
            f"did not accept the answer: the question {answer.question!r} was already answered or "
            f"withdrawn; {now}"
        )
    elif answer.question is not None:
        problem = (
            f"does not wait for an answer to {answer.question!r}: the question was already "
            f"answered or withdrawn, or never asked; {now}"
        )
    elif has_ended:
        problem = "has ended and does not wait for an answer"
    elif waiting:
        problem = (
            f"did not accept the answer: no question was waiting when the answer was given; {now}"
        )
    else:
        problem = "does not wait for an answer; resume it without one"
    raise SessionError(f"Session {session!r} {problem}.")


class BoundInput(NamedTuple):
    """The answer or message with which a run begins, and the questions that were waiting."""

    session: str
    """The session's id."""
    waited: Sequence[Question]
    """The questions that were waiting when the run was requested."""
    answer: BoundAnswer | None
    """The answer, or None."""
    has_message: bool
    """Whether the run begins with a person's message that may only answer the question that was
    waiting.
    """

    def check(self, waiting: Sequence[Question], *, has_ended: bool) -> None:
        """Raise if the answer or message was meant for another question.

        Args:
            waiting: The questions that are waiting now, while the lease is held.
            has_ended: Whether the session has ended.

        Raises:
            SessionError: The question was answered, or another one was asked, before the lease
                was acquired.
        """
        if self.answer is not None:
            answered_question(self.session, waiting, self.answer, has_ended=has_ended)
            return
        before, now = _asks_for_message(self.waited), _asks_for_message(waiting)
        if not self.has_message or before == now:
            return
        problem = (
            f"the question {before[0]!r} was already answered or withdrawn"
            if before
            else "another run has since asked a question"
        )
        raise SessionError(
            f"Session {self.session!r} did not accept the message: {problem}; "
            f"{waits_for(waiting, has_ended=has_ended)}."
        )


def _asks_for_message(questions: Sequence[Question]) -> list[str]:
    """Return the ids of the questions for a message."""
    return [one.id for one in questions if isinstance(one, MessageQuestion)]
