"""Questions to a person, for a message or for the approval of tool calls, and their answers.

Pure functions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages.tool import ToolCall
from pydantic import ValidationError

from ..common.content import describe_content
from ..common.errors import AnswerError, list_names, suggest_near_or_all
from ..common.files import parse_json
from ..common.sanitize import dump_exact_json, escape_invisible
from ..common.validation import first_fault
from ..conversation.questions import DECISION_WORDS, ApprovalQuestion, Asking, MessageQuestion
from ..ends.end import count_of
from ..log.messages import newest_calls
from ..log.viewpoint import describe_news
from ..speakers.call_settings import (
    DECISIONS,
    Action,
    ActionRequest,
    Approval,
    Decisions,
    Edit,
    InterruptOn,
    ReviewConfig,
)
from ..speakers.speaker import Speaker
from .position import Phase
from .turns import Dialogue


def needing_approval(speaker: Speaker, calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls that a person must decide on."""
    if speaker.tool_choice == "none":
        return []
    return [call for call in calls if speaker.interrupt_on.get(call["name"], False) is not False]


def build_approval(
    speaker: Speaker, calls: Sequence[ToolCall], parameters_of: Callable[[str], dict[str, Any]]
) -> Approval | None:
    """Return the question to a person before calls run, or None if no call needs approval."""
    asked = needing_approval(speaker, calls)
    if not asked:
        return None
    who = escape_invisible(speaker.name)
    requests: list[ActionRequest] = []
    reviews: list[ReviewConfig] = []
    for call in asked:
        name, given = call["name"], speaker.interrupt_on[call["name"]]
        rule = given if isinstance(given, InterruptOn) else InterruptOn()
        text = rule.description or f"{who} wants to call {call_shown(name, call['args'])}."
        requests.append(ActionRequest(name=name, args=call["args"], description=text))
        allowed = rule.allowed_decisions
        schema = (parameters_of(name) or None) if "edit" in allowed else None
        reviews.append(
            ReviewConfig(action_name=name, allowed_decisions=allowed, args_schema=schema)
        )
    return Approval(action_requests=tuple(requests), review_configs=tuple(reviews))


def call_shown(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as people approve it: the tool's name, and its arguments as exact JSON."""
    return f"{escape_invisible(name)} with {dump_exact_json(arguments)}"


def read_answer(given: object) -> object:
    """Return an answer in the form of decisions, if it is a word, JSON as text or one decision."""
    if isinstance(given, str):
        word = DECISION_WORDS.get(given.strip().casefold())
        try:
            given = {"type": word} if word else parse_json(given)
        except ValueError:
            return given
    if isinstance(given, list):
        return {"decisions": given}
    return {"decisions": [given]} if isinstance(given, Mapping) and "type" in given else given


def find_misfit(request: Approval, answer: Decisions, tools: Sequence[str]) -> str | None:
    """Return why an answer does not fit its question, in one sentence; None if it fits."""
    wanted, given = len(request.action_requests), len(answer.decisions)
    if wanted != given:
        decisions, calls = count_of(given, "decision"), count_of(wanted, "waiting call")
        return (
            f"decisions: {decisions} for {calls}; return one decision for each call, "
            "in the order of action_requests"
        )
    for place, (review, decision) in enumerate(
        zip(request.review_configs, answer.decisions, strict=True)
    ):
        if decision.type not in review.allowed_decisions:
            return (
                f"decisions.{place}.type: {decision.type!r} is not allowed for "
                f"{review.action_name!r}; allowed are {list_names(review.allowed_decisions)}"
            )
        if isinstance(decision, Edit) and decision.edited_action.name not in tools:
            name = decision.edited_action.name
            return (
                f"decisions.{place}.edited_action.name: {name!r} is not one of the speaker's "
                f"tools{suggest_near_or_all(name, tools)}"
            )
    return None


def check_decisions(question: ApprovalQuestion, answer: object) -> None:
    """Check that an answer fits the question of a user's own agent.

    Raises:
        AnswerError: The answer does not fit.
    """
    calls = [{"description": "", **one} for one in question.action_requests]
    reviews = [
        {"action_name": one.get("name"), "allowed_decisions": question.allowed(one)}
        for one in calls
    ]
    try:
        request = Approval.model_validate({"action_requests": calls, "review_configs": reviews})
    except ValidationError:
        # The request only looks like an approval, so any answer is accepted.
        return
    try:
        found = Decisions.model_validate(answer)
    except ValidationError as error:
        fault: str | None = find_misshapen(error)
    else:
        # The agent's tools are not known here, so every edited tool name is accepted.
        edits = [one for one in found.decisions if isinstance(one, Edit)]
        fault = find_misfit(request, found, [one.edited_action.name for one in edits])
    if fault is not None:
        raise AnswerError(f"the answer does not fit, and the question stays open: {fault}")


def find_misshapen(error: ValidationError) -> str:
    """Return why an answer can't be read as `Decisions`, in one sentence."""
    first = first_fault(error)
    # Pydantic inserts the kind of the decision into the path. The answer has no such field.
    path = [part for place, part in enumerate(first["loc"]) if place != _KIND_AT]
    field = ".".join(map(str, path))
    match first["type"]:
        case "missing":
            return f"{field}: is missing"
        case "extra_forbidden":
            return f"{field}: there is no such field; write {_SAMPLE}"
        case "union_tag_not_found":
            return f"{field}.type: is missing; choose one of {list_names(DECISIONS)}"
        case "union_tag_invalid":
            tag = (first.get("ctx") or {}).get("tag")
            return f"{field}.type: {tag!r} is not a decision; choose one of {list_names(DECISIONS)}"
        case _ if not field:
            return f"it must be {_SAMPLE}, with a decision for each call; or yes or no for one call"
        case _:
            if first["type"] == "model_attributes_type":
                return f'{field}: must be a dict such as {{"type": "approve"}}'
            text = first["msg"]
            return f"{field}: {text[:1].lower()}{text[1:].replace('valid tuple', 'list')}"


_SAMPLE = '{"decisions": [{"type": "approve"}]}'

_KIND_AT = 2
"""The index at which pydantic inserts the kind of a decision into a path: after ``decisions`` and
the decision's index."""


def question_payload(dialogue: Dialogue, task: str | None, asked: Asking) -> dict[str, Any]:
    """Return the payload of the interrupt that asks a person for a message."""
    conversation, log = dialogue.conversation, dialogue.log
    heard = describe_content(describe_news(conversation, log, asked.speaker))
    calls = newest_calls(log).tool_calls if dialogue.position.phase is Phase.CALLED else ()
    own = conversation.speaker(asked.speaker).task
    question = MessageQuestion(
        id="",
        speaker=asked.speaker,
        because=asked.because,
        task="\n\n".join(filter(None, [task, own])),
        heard=heard,
        calls=tuple(Action(name=call["name"], args=call["args"]) for call in calls),
        empty=asked.empty,
        prompt=asked.prompt,
    )
    return question.model_dump(mode="json", exclude={"id", "response_schema", "problem"})
