"""The questions of a session, and the answers and messages that are bound to one of them.

A run first waits for the session's lease. Meanwhile another run may answer the waiting question and
ask the next one, which the caller has not seen.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from langgraph.types import StateSnapshot
from pydantic import TypeAdapter

from ..build import Graph
from ..common.errors import AnswerError, SessionError
from ..conversation.conversation import restore_conversation
from ..conversation.questions import (
    MessageQuestion,
    Question,
    check_message,
    read_question,
    schema_of,
)
from ..log.messages import place_name
from ..log.state import log_of
from ..rules.position import Position
from ..rules.questions import question_payload
from ..rules.transitions import Node, decide
from ..rules.turns import Dialogue
from .checkpoints import checkpointer_of, config_of, read_snapshot, reading_session
from .options import GivenAnswer


async def read_questions(graph: Graph, session: str) -> list[Question]:
    """Return the questions that a session waits for."""
    with reading_session(graph, session):
        return await find_open_questions(graph, session, await read_snapshot(graph, session))


async def find_open_questions(graph: Graph, session: str, state: StateSnapshot) -> list[Question]:
    """Return the unanswered questions of a state that was already read."""
    by_tools = {
        one.id
        for task in state.tasks
        for one in task.interrupts
        if task.name == Node.TOOL_EXECUTOR.value
    }
    asked = [
        read_question(found, "tool" if found.id in by_tools else "agent")
        for found in state.interrupts
    ]
    if not asked and not state.next:
        question = _find_client_question(state.values)
        return [] if question is None else [question]
    if len(asked) != 1 or not isinstance(asked[0], MessageQuestion):
        return asked
    found = await checkpointer_of(graph).aget_tuple(config_of(session))
    for task, channel, value in (found.pending_writes or ()) if found else ():
        if (task, channel) == _ANSWER:
            with suppress(AnswerError):
                check_message(asked[0], value)
                return []
    return asked


_ANSWER: Final = ("00000000-0000-0000-0000-000000000000", "__resume__")
"""The task and channel under which LangGraph stores an answer that has no question id."""


_BEFORE_PLACE: Final = "before-"
"""The beginning of the id of a question without an interrupt. The next message's place follows."""


def _find_client_question(state: Mapping[str, Any]) -> MessageQuestion | None:
    """Return the question that a session waits for without an interrupt, or None.

    The run of a client that sends a person's messages as inputs ends before the person's next turn.
    """
    if not state.get("position") or state.get("outcome"):
        return None
    conversation = restore_conversation(state["spec"])
    position, log = Position.model_validate(state["position"]), log_of(state)
    dialogue = Dialogue(conversation, position, log=log)
    turn = decide(dialogue)
    asked = dialogue.find_question(turn.speaker, turn.stage)
    if asked is None or not dialogue.ends_run(turn.speaker, turn.stage):
        return None
    task = state.get("specified_task") or None
    return MessageQuestion(
        id=f"{_BEFORE_PLACE}{place_name(len(log))}",
        response_schema=TypeAdapter(schema_of(asked.empty)).json_schema(),
        **question_payload(dialogue, task, asked),
    )


def has_no_interrupt(questions: Sequence[Question]) -> bool:
    """Return whether there is exactly one question, and no interrupt has asked it."""
    return [one.id.startswith(_BEFORE_PLACE) for one in questions] == [True]


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


def waits_for(questions: Sequence[Question], *, has_ended: bool = False) -> str:
    """Return a clause that names the questions a session waits for now."""
    if has_ended:
        return "it has ended"
    if not questions:
        return "it does not wait for an answer now"
    return f"it now waits for an answer to {', '.join(repr(one.id) for one in questions)}"


def check_still_waits(session: str, before: Sequence[Question], now: Sequence[Question]) -> None:
    """Raise if questions of a session were answered or asked before the lease was acquired.

    Args:
        session: The session's id.
        before: The questions that were waiting before the lease was acquired.
        now: The questions that are waiting now, while the lease is held.

    Raises:
        SessionError: The questions differ.
    """
    if [one.id for one in before] != [one.id for one in now]:
        raise SessionError(
            f"Session {session!r} has continued since the call, so the message was not added: "
            f"{waits_for(now)}; read its new messages, then try again."
        )
