"""What a session waits for, in words, and the commands by which it goes on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.errors import AnswerError
from ..rules.people import leaves
from ..run.steps import GivenAnswer
from ..sessions.listing import get_session
from ..spec.questions import ApprovalQuestion, MessageQuestion, Question, ToolQuestion
from .terminal.follow_up import FollowUp
from .terminal.text import one_line

_LONGEST = 300  # characters of what is asked, where it is told in a line


def told(question: Question) -> str:
    """Say in a line what a person is asked."""
    match question:
        case MessageQuestion():
            asked = question.prompt
        case ApprovalQuestion():
            asked = " ".join(str(call.get("description", "")) for call in question.action_requests)
        case ToolQuestion():
            asked = f"A tool asks: {json.dumps(question.value, ensure_ascii=False)}"
    return one_line(asked, _LONGEST)


def ways_on(session: str, questions: Sequence[Question], follow_up: FollowUp) -> list[str]:
    """Say how a session that waits is answered, and how it goes on."""
    answers = []
    for question in questions:
        options = ["--question", question.id] if len(questions) > 1 else []
        command = follow_up.command(
            "answer", session, options=options, arguments=[_sample(question)]
        )
        answers.append(f"Answer it with: {command}")
    return [*answers, f"Or be asked: {follow_up.command('resume', session)}"]


def _sample(question: Question) -> str:
    """What may stand for an answer in a command."""
    if isinstance(question, MessageQuestion):
        return "TEXT"
    if isinstance(question, ApprovalQuestion) and all(
        "approve" in allowed(question, call) for call in question.action_requests
    ):
        return json.dumps({"decisions": [{"type": "approve"} for _ in question.action_requests]})
    return "JSON"


def allowed(question: ApprovalQuestion, call: dict[str, Any]) -> list[str]:
    """Give what may be decided of one of the calls that wait."""
    for review in question.review_configs:
        if review.get("action_name") == call.get("name"):
            return list(review.get("allowed_decisions", ()))
    return []


def reply_of(
    session: str, answer: str, question: str | None, store: str | Path | None
) -> GivenAnswer:
    """Read an answer that was given to a command."""
    pending = get_session(session, store=store).pending
    meant = [one for one in pending if question in (None, one.id)]
    if len(meant) != 1:
        return GivenAnswer(answer, question)
    # By its id it can't become the answer to another question that is asked meanwhile.
    return GivenAnswer(value_of(meant[0], answer), meant[0].id)


def value_of(question: Question, text: str) -> Any:  # noqa: ANN401  # whatever the question wants
    """Read an answer out of a text."""
    if isinstance(question, MessageQuestion):
        return text
    if isinstance(question, ApprovalQuestion) and leaves(text):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        if isinstance(question, ToolQuestion):
            return text
        raise AnswerError(
            f"the answer is not JSON ({error}), and the question stays open: "
            f"it must be like {_sample(question)}"
        ) from error
