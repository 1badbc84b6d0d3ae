"""Decisions of a person about tool calls before they run, and the effects of the decisions."""

from collections.abc import Mapping
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool
from pydantic import TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ...graphs.conversation.questions import is_exit
from ...graphs.log.messages import metadata, place_of, storable
from ...graphs.log.metadata import CodeCalls, Failure
from ...graphs.log.state import State
from ...graphs.rules.questions import (
    build_approval,
    call_shown,
    find_misfit,
    find_misshapen,
    needing_approval,
    read_answer,
)
from ...graphs.speakers.call_settings import (
    Action,
    AnyDecision,
    Approval,
    Decisions,
    DecisionType,
    Edit,
    Reject,
    Respond,
)
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.functions import check_arguments, parameters_of
from ...tools.registry.hooks import ArgumentsError
from ..models.tool_calls import read_call
from ..turn.interrupt import ask
from ..turn.node_context import NodeContext
from .call import CallResult, describe_argument_errors


def approval_question(
    context: NodeContext, speaker: Speaker, message: AIMessage
) -> Approval | None:
    """Return the question to a person about the calls of a message, or None if there is none."""
    if isinstance(metadata(message), CodeCalls):
        return None
    tools = _tools_of(context, speaker)
    return build_approval(speaker, message.tool_calls, lambda name: parameters_of(tools[name]))


def _tools_of(context: NodeContext, speaker: Speaker) -> dict[str, BaseTool]:
    """Return the speaker's tools, by their registered names."""
    return dict(zip(speaker.tools, context.resources.registry.tools_of(speaker), strict=True))


def ask_about(
    context: NodeContext, request: Approval, speaker: Speaker, message: AIMessage
) -> dict[str, Any] | None:
    """Ask a person about the calls of a message. None of them may have run before.

    Returns the decisions to store, or None if the person leaves the conversation.
    """
    fitting = _fitting(request, _tools_of(context, speaker))
    again = context.resources.serves_clients
    answer: Decisions | None = ask(request.payload(), fitting, asks_again=again)
    if answer is None:
        return None
    calls = needing_approval(speaker, message.tool_calls)
    dumped = answer.model_dump(mode="json")["decisions"]
    ids = [str(call["id"]) for call in calls]
    return {"message": place_of(message), "decisions": dict(zip(ids, dumped, strict=True))}


def record_seen(message: AIMessage) -> dict[str, Any]:
    """Record that a person has seen the calls of a message and lets them run.

    This is a separate step. Otherwise the step's next question would get the same answer.
    """
    return {"decisions": {"message": place_of(message)}}


def is_seen(state: State, message: AIMessage) -> bool:
    """Return whether a person has seen the calls of a message."""
    return (state.get("decisions") or {}).get("message") == place_of(message)


def read_decisions(state: State, message: AIMessage) -> dict[str, AnyDecision] | None:
    """Return a person's decisions about the calls of a message by the calls' ids, or None."""
    kept = state.get("decisions") or {}
    if kept.get("message") != place_of(message) or "decisions" not in kept:
        return None
    return {key: _DECISION.validate_python(one) for key, one in kept["decisions"].items()}


_DECISION: TypeAdapter[AnyDecision] = TypeAdapter(AnyDecision)


def _fitting(request: Approval, tools: Mapping[str, BaseTool]) -> Any:  # noqa: ANN401  # a type
    """Return the type of a valid answer to a question. An invalid answer is refused, not stored."""

    def check(given: object, read: ValidatorFunctionWrapHandler) -> Decisions | None:
        if is_exit(given):
            return None
        try:
            answer: Decisions = read(read_answer(given))
        except ValidationError as error:
            raise ValueError(find_misshapen(error)) from error
        fault = find_misfit(request, answer, list(tools))
        if fault is not None:
            raise ValueError(fault)
        for find_fault in (_unstorable, _unfit):
            for place, decision in enumerate(answer.decisions):
                action = decision.edited_action if isinstance(decision, Edit) else None
                why = action and find_fault(action, tools[action.name])
                if why:
                    raise ValueError(f"decisions.{place}.edited_action.args: {why}")
        return answer

    return Annotated[Decisions, WrapValidator(check)]


def _unstorable(action: Action, _: BaseTool) -> str | None:
    """Return why the log can't store edited arguments, or None."""
    read = read_call(action.name, action.args, None)
    if read["type"] != "invalid_tool_call":
        return None
    why = str(read["error"]).removesuffix(".")
    return f"{why[:1].lower()}{why[1:]}"


def _unfit(action: Action, tool: BaseTool) -> str | None:
    """Return why a tool does not accept arguments that a person edited, or None."""
    schema = tool.tool_call_schema
    try:
        if isinstance(schema, dict):
            check_arguments(schema, action.args)
        else:
            TypeAdapter(schema).validate_python(action.args)
    except ArgumentsError as error:
        return str(error)
    except ValidationError as error:
        return describe_argument_errors(error)
    return None


def instead_of_tool(call: ToolCall, decision: AnyDecision | None) -> CallResult | None:
    """Return the result of a call that a person rejected or answered, or None if it runs."""
    match decision:
        case Reject():
            why = storable((decision.message or "").strip())
            told = (
                f"A person rejected the call of {call['name']}, so it did not run. "
                f"{f'Reason: {why}' if why else 'No reason was given.'}"
            )
            return CallResult(told, Failure.PERSON, decision="reject", refusal=why or None)
        case Respond():
            return CallResult(decision.message, decision="respond")
        case _:
            return None


def apply_decision(call: ToolCall, decision: AnyDecision | None) -> ToolCall:
    """Return the call to run: as edited by a person, or as it was made."""
    if not isinstance(decision, Edit):
        return call
    action = decision.edited_action
    return ToolCall(name=action.name, args=action.args, id=call["id"], type="tool_call")


def kind_of(call: ToolCall, decision: AnyDecision | None) -> DecisionType | None:
    """Return the kind of a decision. An edit that changes nothing counts as an approval."""
    if decision is None:
        return None
    ran = apply_decision(call, decision)
    is_same = (ran["name"], ran["args"]) == (call["name"], call["args"])
    return "approve" if is_same and decision.type == "edit" else decision.type


def edit_told(call: ToolCall, answer: CallResult) -> str:
    """Return a result's text for the speaker, with a note if a person changed the call."""
    if answer.decision != "edit":
        return answer.text
    ran = call_shown(answer.tool or call["name"], answer.arguments or {})
    return f"A person changed this call to {ran} before it ran. Result:\n{answer.text}"
