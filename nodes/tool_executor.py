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
from ..graphs.rules.transitions import record_leaving, record_pause
from ..graphs.rules.turns import person_of
from ..graphs.speakers.call_settings import Action, AnyDecision, Approval, Decisions, Edit
from ..graphs.speakers.speaker import Speaker
from ..tools.registry.functions import check_arguments, parameters_of
from ..tools.registry.hooks import ArgumentsError
from .execute.call import describe_argument_errors, usage_with_calls
from .execute.calls import (
    CallsRun,
    Interpreter,
    interrupt_calls,
    result_lines,
    return_results,
    return_turn,
    run_result_hooks,
)
from .models.tool_calls import read_call
from .turn.interrupt import ask, ask_about_calls
from .turn.node_context import NodeContext, Resources


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message, or the hooks after them."""
    context = await NodeContext.read(state, resources)
    if (repaired := await context.repair_position()) is not None:
        return repaired
    speaker = context.conversation.speaker(context.turn.speaker)
    hooks = resources.registry.hooks_of(speaker)
    message = newest_calls(context.log)
    if context.position.phase is Phase.RAN:
        answers = await run_result_hooks(context, speaker, hooks, message)
        return await return_results(context, speaker, message, answers)
    if (stopped := await _stop_calls(context, state, speaker, message)) is not None:
        return stopped
    decisions = read_decisions(state, message)
    request = build_question(context, speaker, message) if decisions is None else None
    if request is not None:
        # In a separate step: the decision must be stored before anything runs.
        decided_now = ask_for_approval(context, request, speaker, message)
        if decided_now is None:
            leaving = Leaving(by=person_of(context.conversation, speaker.name), reason="quit")
            return await context.step(record_leaving(context.position, context.turn, leaving), [])
        return {"decisions": decided_now}
    before = state.get("interpreter") or {}
    interpreter = Interpreter(context.conversation.sandbox, before)
    answers = await CallsRun(context, speaker, hooks, interpreter).run_all(message, decisions or {})
    if any(hook.after_tool for _, hook in hooks):
        ran = record_pause(context.position, context.turn, Phase.RAN)
        lines = result_lines(context, speaker, answers, final=False)
        update = await context.step(ran, lines, usage_with_calls(context.usage, answers.values()))
    else:
        update = await return_results(context, speaker, message, answers)
    kept = interpreter.dump()
    update |= {"interpreter": kept} if kept not in ({}, before) else {}
    return update | ({"decisions": {}} if state.get("decisions") else {})


async def _stop_calls(
    context: NodeContext, state: State, speaker: Speaker, message: AIMessage
) -> dict[str, Any] | None:
    """Return the update of a step in which no call runs, or None if the calls may run now.

    A guard may stop the calls. The person who sees the calls may stop them, or let them run in the
    next step.
    """
    if stops_calls(context):
        return await return_turn(context, speaker, message)
    person = None if is_seen(state, message) else await ask_about_calls(context)
    if isinstance(person, Leaving):
        return await context.step(record_leaving(context.position, context.turn, person), [])
    if person is not None and person.content:
        return await interrupt_calls(context, speaker, message, person)
    return None if person is None else record_seen(message)


def build_question(context: NodeContext, speaker: Speaker, message: AIMessage) -> Approval | None:
    """Return the question to a person about the calls of a message, or None if there is none."""
    if isinstance(metadata(message), CodeCalls):
        return None
    tools = _find_tools(context, speaker)
    return build_approval(speaker, message.tool_calls, lambda name: parameters_of(tools[name]))


def _find_tools(context: NodeContext, speaker: Speaker) -> dict[str, BaseTool]:
    """Return the speaker's tools, by their registered names."""
    return dict(zip(speaker.tools, context.resources.registry.tools_of(speaker), strict=True))


def ask_for_approval(
    context: NodeContext, request: Approval, speaker: Speaker, message: AIMessage
) -> dict[str, Any] | None:
    """Ask a person about the calls of a message. None of them may have run before.

    Returns the decisions to store, or None if the person leaves the conversation.
    """
    fitting = _make_answer_type(request, _find_tools(context, speaker))
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
