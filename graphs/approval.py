"""Approval before tools run: what a person is asked of calls, and what may be answered. Pure.

The payload and the answer have the shape of ``HumanInTheLoopMiddleware`` of langchain 1.x in its
default mode, one interrupt for all calls of a message (``HITLRequest`` and ``HITLResponse`` with
``name``, ``args`` and ``description``; the 1.0 alphas had ``arguments``), so that user interfaces
made for it show ours. The `langchain` package itself is not needed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool
from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError

from duologue.graphs.data import Data, Text, all_different, listing
from duologue.graphs.validation import first_fault, near_or_all
from duologue.tools.arguments import parameters_of

if TYPE_CHECKING:
    from duologue.graphs.speaker import Speaker

DecisionType: TypeAlias = Literal["approve", "edit", "reject", "respond"]
"""What a person may decide of a call: let it run, change it, refuse it, answer in its place."""

DECISIONS: tuple[DecisionType, ...] = get_args(DecisionType)
"""All that there are."""


class InterruptOn(Data):
    """What is asked before a tool runs (LangChain's ``InterruptOnConfig``).

    Raises:
        pydantic.ValidationError: There is no decision, one twice, or one that is unknown.
    """

    allowed_decisions: Annotated[
        tuple[DecisionType, ...], Field(min_length=1), AfterValidator(all_different)
    ] = DECISIONS
    """What a person may decide: ``approve``, ``edit``, ``reject``, ``respond``; at least one."""
    description: Text | None = None
    """What the person is told. None: who wants to call what, and with which arguments."""


def _read_rule(given: Any) -> Any:  # noqa: ANN401
    """Read one of two kinds, so that an error names its field and not all that it might be."""
    if isinstance(given, bool | InterruptOn):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("must be true, false, or a table with allowed_decisions")
    return InterruptOn.model_validate(given)


Rule: TypeAlias = Annotated[bool | InterruptOn, BeforeValidator(_read_rule)]
"""Whether a person is asked before a tool runs, or what may be decided then."""


class Action(Data):
    """A tool and its arguments."""

    name: str
    """The tool's registered name."""
    args: dict[str, Any]
    """Its arguments."""


class ActionRequest(Action):
    """A call that waits for a decision."""

    description: str
    """What the person is told."""


class ReviewConfig(Data):
    """What may be decided of the call at the same place."""

    action_name: str
    """The tool's registered name."""
    allowed_decisions: tuple[DecisionType, ...]
    """What may be decided."""
    args_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the tool's arguments, where they may be edited."""


class Approval(Data):
    """What a person is asked: the calls of one message that need a decision, in their order."""

    action_requests: tuple[ActionRequest, ...]
    """The calls."""
    review_configs: tuple[ReviewConfig, ...]
    """For each call what may be decided."""

    def payload(self) -> dict[str, Any]:
        """Give it as plain values, which an interrupt carries."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Approve(Data):
    """The call runs as it was made."""

    type: Literal["approve"]


class Edit(Data):
    """Another call runs in its place."""

    type: Literal["edit"]
    edited_action: Action
    """What runs: the same tool, or another one of the speaker's."""


class Reject(Data):
    """The call does not run, and the speaker is told so."""

    type: Literal["reject"]
    message: str | None = None
    """Why."""


class Respond(Data):
    """The call does not run; what the person says is its result."""

    type: Literal["respond"]
    message: str
    """The result."""


AnyDecision: TypeAlias = Annotated[Approve | Edit | Reject | Respond, Field(discriminator="type")]
"""What was decided of one call."""


class Decisions(Data):
    """The answer: a decision for each call, in the order of the calls."""

    decisions: tuple[AnyDecision, ...]
    """The decisions."""


def needing_approval(speaker: "Speaker", calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Give the calls of a message that a person has to decide on.

    Args:
        speaker: Who made them.
        calls: The calls of the message.

    Returns:
        Those of tools in the speaker's ``interrupt_on``. None where it may call no tool at all:
        then nothing would run.
    """
    if speaker.tool_choice == "none":
        return []
    return [call for call in calls if speaker.interrupt_on.get(call["name"], False) is not False]


def approval(
    speaker: "Speaker", calls: Sequence[ToolCall], tools: Mapping[str, BaseTool]
) -> Approval | None:
    """Say what a person is asked before the calls of a message run.

    Args:
        speaker: Who made them.
        calls: The calls of the message.
        tools: The speaker's tools by their registered names.

    Returns:
        The question; None where nobody is asked.
    """
    asked = [
        (call, _rule(speaker.interrupt_on[call["name"]]))
        for call in needing_approval(speaker, calls)
    ]
    if not asked:
        return None
    return Approval(
        action_requests=tuple(
            ActionRequest(
                name=call["name"],
                args=call["args"],
                description=rule.description or _described(speaker.name, call),
            )
            for call, rule in asked
        ),
        review_configs=tuple(
            ReviewConfig(
                action_name=call["name"],
                allowed_decisions=rule.allowed_decisions,
                args_schema=_schema(tools.get(call["name"]))
                if "edit" in rule.allowed_decisions
                else None,
            )
            for call, rule in asked
        ),
    )


def _rule(given: Rule) -> InterruptOn:
    return given if isinstance(given, InterruptOn) else InterruptOn()


def _described(name: str, call: ToolCall) -> str:
    return f"{name} wants to call {call_shown(call['name'], call['args'])}."


def call_shown(name: str, arguments: Mapping[str, Any]) -> str:
    """Show a call to people and models: the tool's name, and its arguments as JSON."""
    return f"{name} with {json.dumps(arguments, ensure_ascii=False)}"


def _schema(tool: BaseTool | None) -> dict[str, Any] | None:
    """The schema of what a model may give it, which is what a person may change."""
    return (parameters_of(tool) if tool is not None else None) or None


def misfit(request: Approval, answer: Decisions, tools: Sequence[str]) -> str | None:
    """Say what is wrong with an answer to a question.

    Args:
        request: The question.
        answer: The answer, of the right shape.
        tools: The names of the speaker's tools, which an edited call may name.

    Returns:
        What is wrong with it, in one sentence; None where it fits.
    """
    wanted, given = len(request.action_requests), len(answer.decisions)
    if wanted != given:
        calls = "call waits" if wanted == 1 else "calls wait"
        decisions = "decision" if given == 1 else "decisions"
        return (
            f"decisions: {wanted} {calls} for one and {given} {decisions} came: give one for each, "
            "in the order of action_requests"
        )
    for place, (review, decision) in enumerate(
        zip(request.review_configs, answer.decisions, strict=True)
    ):
        if decision.type not in review.allowed_decisions:
            return (
                f"decisions.{place}.type: {decision.type!r} is not allowed for "
                f"{review.action_name!r}; allowed are {listing(review.allowed_decisions)}"
            )
        if isinstance(decision, Edit) and decision.edited_action.name not in tools:
            name = decision.edited_action.name
            return (
                f"decisions.{place}.edited_action.name: {name!r} is none of the speaker's "
                f"tools{near_or_all(name, tools)}"
            )
    return None


def misshapen(error: ValidationError) -> str:
    """Say in one sentence why an answer has not the shape of `Decisions`.

    Args:
        error: What pydantic found.
    """
    first = first_fault(error)
    # Behind the place pydantic puts the kind of decision, which no answer has there.
    path = [part for place, part in enumerate(first["loc"]) if place != _KIND_AT]
    field = ".".join(map(str, path))
    match first["type"]:
        case "missing":
            return f"{field}: is missing"
        case "extra_forbidden":
            return f"{field}: there is no such field"
        case "union_tag_not_found":
            return f"{field}.type: is missing; there are {listing(DECISIONS)}"
        case "union_tag_invalid":
            tag = (first.get("ctx") or {}).get("tag")
            return f"{field}.type: {tag!r} is no decision; there are {listing(DECISIONS)}"
        case _ if not field:
            return 'it must be {"decisions": [...]}, with a decision for each call'
        case _:
            text = first["msg"]
            return f"{field}: {text[:1].lower()}{text[1:].replace('valid tuple', 'list')}"


_KIND_AT = 2
"""Where pydantic puts the kind of a decision into a path: behind ``decisions`` and its place."""
