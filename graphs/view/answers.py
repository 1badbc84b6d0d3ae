"""What a form on the page says, read as the answer to a question. Pure functions."""

import json
from collections.abc import Mapping
from typing import Any

from ..common.errors import AnswerError
from ..spec.questions import EXIT, ApprovalQuestion, MessageQuestion, Question

Form = Mapping[str, str]
"""The fields of a form that was sent."""


def answer_of(question: Question, form: Form) -> Any:  # noqa: ANN401  # what the question wants
    """Read the answer to a question.

    Args:
        question: The question.
        form: The fields: ``leave`` to leave; ``text``; for each call that is to be decided, by its
            number, ``decision0``, ``args0`` and ``text0``.

    Returns:
        The answer.

    Raises:
        AnswerError: It can't be read.
    """
    if "leave" in form:
        return EXIT
    if isinstance(question, ApprovalQuestion):
        calls = range(len(question.action_requests))
        return {"decisions": [_decision(question, form, number) for number in calls]}
    # Browsers send lines as they stand in mails.
    text = "" if "nothing" in form else form.get("text", "").replace("\r\n", "\n")
    if not text.strip() and not isinstance(question, MessageQuestion):
        raise AnswerError('the answer is missing, and the question stays open; "" is an empty text')
    return question.read(text)


def _decision(question: ApprovalQuestion, form: Form, number: int) -> dict[str, Any]:
    call = question.action_requests[number]
    decision = form.get(f"decision{number}", "")
    text = form.get(f"text{number}", "").replace("\r\n", "\n")
    if decision == "edit":
        args = _arguments(str(call["name"]), form.get(f"args{number}", ""))
        return {"type": decision, "edited_action": {"name": call["name"], "args": args}}
    if decision == "respond" or (decision == "reject" and text.strip()):
        return {"type": decision, "message": text}
    return {"type": decision}


def _arguments(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise AnswerError(f"the arguments of {name} are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise AnswerError(f'the arguments of {name} must be an object, such as {{"name": "value"}}')
    return found
