"""The node that runs a speaker's calls: tool calls, or the code in a message.

Each call is a separate LangGraph task. After a kill, finished calls do not run again, but a call in
flight does, under the same call id. Tool calls run concurrently, calls that run code one after
another. Results enter the log in the order of the calls. Only a failing hook stops the run with an
error. The tool results are kept then, and resuming runs the hooks again.

A person can be asked at three points: when a speaker with ``sees_calls`` sees the calls; for
approval (``interrupt_on``), in a separate step before any hook or tool; and by a tool that calls
``interrupt()``. Each answer to such a tool restarts it from its beginning, together with all other
tools that wait for an answer. Finished calls do not run again. Later calls that run code wait until
the tool is finished.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from pydantic import TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ..graphs.conversation.questions import is_exit
from ..graphs.log.messages import metadata, newest_calls, place_of
from ..graphs.log.metadata import CodeCalls
from ..graphs.log.state import State
from ..graphs.rules.met_ends import stops_calls
from ..graphs.rules.position import Leaving, Phase
from ..graphs.rules.questions import (
    build_approval,
    find_misfit,
    find_misshapen,
    needing_approval,
    read_answer,
)
from ..graphs.rules.turns import person_of
from ..graphs.speakers.call_settings import Action, AnyDecision, Approval, Decisions, Edit
from ..tools.registry.functions import check_arguments, parameters_of
from ..tools.registry.hooks import ArgumentsError
from .execute.call import describe_argument_errors
from .execute.calls import CallsRun, Interpreter
from .models.tool_calls import read_call
from .turn.interrupt import ask, ask_about_calls
from .turn.node_context import NodeContext, Resources


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message, or the hooks after them."""
    context = await NodeContext.read(state, resources)
    if (repaired := await context.repair_position()) is not None:
        return repaired
    message, before = newest_calls(context.log), state.get("interpreter") or {}
    interpreter = Interpreter(context.conversation.sandbox, before)
    calls = CallsRun(context, message, interpreter)
    if context.position.phase is Phase.RAN:
        return await calls.return_results(await calls.run_result_hooks())
    if (stopped := await _stop_calls(calls, state)) is not None:
        return stopped
    decisions = read_decisions(state, message)
    request = None
    if decisions is None and not isinstance(metadata(message), CodeCalls):
        tools = _find_tools(context)
        request = build_approval(
            context.speaker, message.tool_calls, lambda name: parameters_of(tools[name])
        )
    if request is not None:
        # In a separate step: the decision must be stored before anything runs.
        decided_now = _ask_for_approval(context, request, message)
        if decided_now is None:
            person = person_of(context.conversation, context.turn.speaker)
            return await context.leave(Leaving(by=person, reason="quit"))
        return {"decisions": decided_now}
    answers = await calls.run_all(decisions or {})
    if any(hook.after_tool for _, hook in context.hooks):
        calls.add_results(answers, final=False)
        update = await context.pause(Phase.RAN)
    else:
        update = await calls.return_results(answers)
    kept = interpreter.dump()
    update |= {"interpreter": kept} if kept not in ({}, before) else {}
    return update | ({"decisions": {}} if state.get("decisions") else {})


async def _stop_calls(calls: CallsRun, state: State) -> dict[str, Any] | None:
    """Return the update of a step in which no call runs, or None if the calls may run now.

    A guard may stop the calls. The person who sees the calls may stop them, or let them run in the
    next step.
    """
    context, place = calls.context, place_of(calls.message)
    if stops_calls(context):
        return await calls.return_turn()
    is_seen = (state.get("decisions") or {}).get("message") == place
    person = None if is_seen else await ask_about_calls(context)
    if isinstance(person, Leaving):
        return await context.leave(person)
    if person is not None and person.content:
        return await calls.interrupt(person)
    # In a separate step. Otherwise the step's next question would get the same answer.
    return None if person is None else {"decisions": {"message": place}}


def _find_tools(context: NodeContext) -> dict[str, BaseTool]:
    """Return the speaker's tools, by their registered names."""
    tools = context.resources.registry.tools_of(context.speaker)
    return dict(zip(context.speaker.tools, tools, strict=True))


def _ask_for_approval(
    context: NodeContext, request: Approval, message: AIMessage
) -> dict[str, Any] | None:
    """Ask a person about the calls of a message. None of them may have run before.

    Returns the decisions to store, or None if the person leaves the conversation.
    """
    fitting = _make_answer_type(request, _find_tools(context))
    again = context.resources.serves_clients
    answer: Decisions | None = ask(request.payload(), fitting, asks_again=again)
    if answer is None:
        return None
    calls = needing_approval(context.speaker, message.tool_calls)
    dumped = answer.model_dump(mode="json")["decisions"]
    ids = [str(call["id"]) for call in calls]
    return {"message": place_of(message), "decisions": dict(zip(ids, dumped, strict=True))}


def read_decisions(state: State, message: AIMessage) -> dict[str, AnyDecision] | None:
    """Return a person's decisions about the calls of a message by the calls' ids, or None."""
    kept = state.get("decisions") or {}
    if kept.get("message") != place_of(message) or "decisions" not in kept:
        return None
    return {key: _DECISION.validate_python(one) for key, one in kept["decisions"].items()}


_DECISION: TypeAdapter[AnyDecision] = TypeAdapter(AnyDecision)


def _make_answer_type(request: Approval, tools: Mapping[str, BaseTool]) -> Any:  # noqa: ANN401  # a type
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
        for find_fault in (_find_unstorable, _find_unfit):
            for place, decision in enumerate(answer.decisions):
                action = decision.edited_action if isinstance(decision, Edit) else None
                why = action and find_fault(action, tools[action.name])
                if why:
                    raise ValueError(f"decisions.{place}.edited_action.args: {why}")
        return answer

    return Annotated[Decisions, WrapValidator(check)]


def _find_unstorable(action: Action, _: BaseTool) -> str | None:
    """Return why the log can't store edited arguments, or None."""
    read = read_call(action.name, action.args, None)
    if read["type"] != "invalid_tool_call":
        return None
    why = str(read["error"]).removesuffix(".")
    return f"{why[:1].lower()}{why[1:]}"


def _find_unfit(action: Action, tool: BaseTool) -> str | None:
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
