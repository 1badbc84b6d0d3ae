"""What a waiting session asks, and the commands that answer it."""

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
    """Summarise a question on one line."""
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
    """A placeholder or sample for the answer, as shown in a command."""
    if isinstance(question, MessageQuestion):
        return "TEXT"
    if isinstance(question, ApprovalQuestion) and all(
        "approve" in allowed(question, call) for call in question.action_requests
    ):
        return json.dumps({"decisions": [{"type": "approve"} for _ in question.action_requests]})
    return "JSON"


def allowed(question: ApprovalQuestion, call: dict[str, Any]) -> list[str]:
    """Give the decisions allowed for one of the waiting calls."""
    for review in question.review_configs:
        if review.get("action_name") == call.get("name"):
            return list(review.get("allowed_decisions", ()))
    return []


def reply_of(
    session: str, answer: str, question: str | None, store: str | Path | None
) -> GivenAnswer:
    """Read the ANSWER argument of `duologue answer`."""
    pending = get_session(session, store=store).pending
    meant = [one for one in pending if question in (None, one.id)]
    if len(meant) != 1:
        return GivenAnswer(answer, question)
    # By its id it can't become the answer to another question that is asked meanwhile.
    return GivenAnswer(value_of(meant[0], answer), meant[0].id)


def value_of(question: Question, text: str) -> Any:  # noqa: ANN401  # whatever the question wants
    """Parse a typed answer as the question wants it."""
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
