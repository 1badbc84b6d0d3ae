"""Questions of a session as forms of MCP's elicitation, and the answers in them.

A form is flat: MCP allows only text, numbers, truth values and choices as its fields. The fields
are those of the form on the local page, so `graphs.view.app.answer_of` reads the answer.
"""

from collections.abc import Mapping
from typing import Any

from ..common.sanitize import clean
from ..conversation.questions import ApprovalQuestion, MessageQuestion, Question
from ..view.app import answer_of


def describe_question(question: Question) -> str:
    """Return a question with the messages that the person has not answered yet, as text."""
    heard = question.heard if isinstance(question, MessageQuestion) else ""
    return clean("\n\n".join(filter(None, (heard, question.summary()))))


def form_of(question: Question) -> dict[str, Any]:
    """Return the JSON schema of the form that asks a question."""
    if isinstance(question, ApprovalQuestion):
        fields: dict[str, Any] = {}
        for number, call in enumerate(question.action_requests):
            fields |= _decision_fields(question, call, number)
        required = [name for name in fields if name.startswith("decision")]
        return {"type": "object", "properties": fields, "required": required}
    if isinstance(question, MessageQuestion):
        title, text = clean(question.speaker), "The message; exit leaves."
        required = ["text"] if question.empty is None else []
    else:
        title, text, required = "Answer", "The answer, as text or JSON.", ["text"]
    fields = {"text": {"type": "string", "title": title, "description": text}}
    return {"type": "object", "properties": fields, "required": required}


def _decision_fields(
    question: ApprovalQuestion, call: dict[str, Any], number: int
) -> dict[str, Any]:
    """Return the fields for the decision on one call."""
    name, allowed = clean(str(call.get("name"))), question.allowed(call)
    choice = {"type": "string", "title": f"Decision on {name}", "enum": allowed}
    fields: dict[str, Any] = {f"decision{number}": choice}
    if "edit" in allowed:
        about = "Only for edit: the new arguments, as a JSON object."
        fields[f"args{number}"] = {"type": "string", "title": name, "description": about}
    if "respond" in allowed or "reject" in allowed:
        about = "Only for respond or reject: the text that the model receives."
        fields[f"text{number}"] = {"type": "string", "title": name, "description": about}
    return fields


def read_form(question: Question, content: Mapping[str, object]) -> Any:  # noqa: ANN401
    """Return the answer in a form that a person has filled in.

    Raises:
        AnswerError: The form contains no valid answer.
    """
    form = {name: value for name, value in content.items() if isinstance(value, str)}
    return answer_of(question, form)
