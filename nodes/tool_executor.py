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

from typing import Any

from langchain_core.messages import AIMessage

from ..graphs.log.messages import newest_calls
from ..graphs.log.state import State
from ..graphs.rules.met_ends import stops_calls
from ..graphs.rules.position import Leaving, Phase
from ..graphs.rules.transitions import after_leaving, after_pause
from ..graphs.rules.turns import person_of
from ..graphs.speakers.speaker import Speaker
from .execute.approval import approval_question, ask_about, is_seen, read_decisions, record_seen
from .execute.call import usage_with_calls
from .execute.calls import CallsRun, Interpreter
from .execute.results import (
    interrupt_calls,
    result_lines,
    return_results,
    return_turn,
    run_result_hooks,
)
from .turn.interrupt import ask_about_calls
from .turn.node_context import NodeContext, Resources


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message, or the hooks after them."""
    context = await NodeContext.of(state, resources)
    if (anew := await context.anew()) is not None:
        return anew
    speaker = context.conversation.speaker(context.turn.speaker)
    hooks = resources.registry.hooks_of(speaker)
    message = newest_calls(context.log)
    if context.position.phase is Phase.RAN:
        answers = await run_result_hooks(context, speaker, hooks, message)
        return await return_results(context, speaker, message, answers)
    if (stopped := await _stopped(context, state, speaker, message)) is not None:
        return stopped
    decisions = read_decisions(state, message)
    request = approval_question(context, speaker, message) if decisions is None else None
    if request is not None:
        # In a separate step: the decision must be stored before anything runs.
        decided_now = ask_about(context, request, speaker, message)
        if decided_now is None:
            leaving = Leaving(by=person_of(context.conversation, speaker.name), reason="quit")
            return await context.step(after_leaving(context.position, context.turn, leaving), [])
        return {"decisions": decided_now}
    before = state.get("interpreter") or {}
    interpreter = Interpreter(context.conversation.sandbox, before)
    answers = await CallsRun(context, speaker, hooks, interpreter).all_of(message, decisions or {})
    if any(hook.after_tool for _, hook in hooks):
        ran = after_pause(context.position, context.turn, Phase.RAN)
        lines = result_lines(context, speaker, answers, final=False)
        update = await context.step(ran, lines, usage_with_calls(context.usage, answers.values()))
    else:
        update = await return_results(context, speaker, message, answers)
    kept = interpreter.dumped()
    update |= {"interpreter": kept} if kept not in ({}, before) else {}
    return update | ({"decisions": {}} if state.get("decisions") else {})


async def _stopped(
    context: NodeContext, state: State, speaker: Speaker, message: AIMessage
) -> dict[str, Any] | None:
    """Return the update of a step in which no call runs, or None if the calls may run now.

    A guard may stop the calls. The person who sees the calls may stop them, or let them run in the
    next step.
    """
    if stops_calls(context.conversation, context.position):
        return await return_turn(context, speaker, message)
    person = None if is_seen(state, message) else await ask_about_calls(context)
    if isinstance(person, Leaving):
        return await context.step(after_leaving(context.position, context.turn, person), [])
    if person is not None and person.content:
        return await interrupt_calls(context, speaker, message, person)
    return None if person is None else record_seen(message)
