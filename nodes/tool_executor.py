"""The node that runs the tools a speaker has called.

All calls of one message run side by side; their results enter the log in the order of the calls.
Whatever goes wrong with a call is text for the model, never an exception. Only a hook that fails is
one: what the tools gave is kept, and resuming runs the hooks again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langgraph.errors import GraphBubbleUp
from pydantic import ValidationError

from duologue.graphs.end_chat import paused
from duologue.graphs.log import line, result
from duologue.graphs.position import Event
from duologue.graphs.speaker import Speaker
from duologue.graphs.state import State
from duologue.nodes.hooking import Hooks, after_tool, before_tool
from duologue.nodes.replying import turn_of
from duologue.nodes.resources import Moment, Resources
from duologue.tools.registry import Registry


class Answer(NamedTuple):
    """What came of one call."""

    text: str
    """What the speaker is told."""
    failed: bool
    """Whether the call failed."""
    arguments: dict[str, Any] | None = None
    """The arguments it was run with, where a hook has changed them."""


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message, or the hooks behind them.

    Args:
        state: The session's state.
        resources: Models and functions.

    Returns:
        The update of the state.

    Raises:
        SpecError: A hook failed.
    """
    moment = await Moment.of(state, resources)
    speaker = moment.conversation.speaker(moment.turn.speaker)
    hooks = resources.registry.hooks_of(speaker)
    message = _calling(moment)
    if moment.position.event is Event.RAN:
        answers = await _past_hooks(moment, speaker, hooks, message)
        return await _step(moment, speaker, Event.RETURNED, answers)
    answers = await _run_all(moment, speaker, hooks, message)
    waits = any(hook.after_tool for _, hook in hooks)
    return await _step(moment, speaker, Event.RAN if waits else Event.RETURNED, answers)


def _calling(moment: Moment) -> AIMessage:
    """The newest message that calls tools; what the tools gave may stand behind it."""
    found = next(message for message in reversed(moment.log) if isinstance(message, AIMessage))
    assert found.tool_calls or found.invalid_tool_calls  # noqa: S101  # the position says so
    return found


async def _run_all(
    moment: Moment, speaker: Speaker, hooks: Hooks, message: AIMessage
) -> dict[str, Answer]:
    """Run the calls, the hooks before them first; give what came of each, by its id."""
    turn = turn_of(moment, speaker, moment.log) if hooks else None
    calls, given = list(message.tool_calls), dict[str, ToolMessage]()
    if turn is not None:
        # All before any tool runs: one that fails must not cost what a tool has done.
        for place, call in enumerate(calls):
            calls[place], instead = await before_tool(hooks, turn, call)
            if instead is not None:
                given[str(call["id"])] = instead
    registry = moment.resources.registry
    ran = await asyncio.gather(
        *(_run(call, speaker.tools, registry) for call in calls if call["id"] not in given)
    )
    results = iter(ran)
    answers: dict[str, Answer] = {}
    for asked, call in zip(message.tool_calls, calls, strict=True):
        call_id = str(call["id"])
        answer = _given(given[call_id]) if call_id in given else next(results)
        changed = call["args"] if call["args"] != asked["args"] else None
        answers[call_id] = answer._replace(arguments=changed)
    for broken in message.invalid_tool_calls:
        text = f"The arguments of {broken['name']} are not valid JSON."
        answers[str(broken["id"])] = Answer(text, failed=True)
    return answers


async def _past_hooks(
    moment: Moment, speaker: Speaker, hooks: Hooks, message: AIMessage
) -> dict[str, Answer]:
    """Run the hooks behind the tools; give what they make of each result, by the call's id."""
    turn = turn_of(moment, speaker, moment.log)
    calls: Mapping[str | None, ToolCall] = {call["id"]: call for call in message.tool_calls}
    answers: dict[str, Answer] = {}
    for given in moment.log[moment.log.index(message) + 1 :]:
        assert isinstance(given, ToolMessage)  # noqa: S101  # the position says that tools ran
        call, arguments = calls.get(given.tool_call_id), line(given).arguments
        if call is None:
            # Its arguments could not be read, so no tool was called.
            answers[given.tool_call_id] = _given(given)
            continue
        run = call if arguments is None else ToolCall(**{**call, "args": arguments})
        seen = ToolMessage(
            given.text, tool_call_id=given.tool_call_id, name=call["name"], status=given.status
        )
        answer = _given(await after_tool(hooks, turn, run, seen))
        answers[given.tool_call_id] = answer._replace(arguments=arguments)
    return answers


def _given(message: ToolMessage) -> Answer:
    return Answer(message.text, message.status == "error")


async def _step(
    moment: Moment, speaker: Speaker, event: Event, answers: Mapping[str, Answer]
) -> dict[str, Any]:
    lines: list[AnyMessage] = [
        result(
            len(moment.log) + place,
            answer.text,
            speaker=speaker.name,
            call_id=call_id,
            failed=answer.failed,
            arguments=answer.arguments,
            final=event is Event.RETURNED,
        )
        for place, (call_id, answer) in enumerate(answers.items())
    ]
    return await moment.step(paused(moment.conversation, moment.position, event), lines)


async def _run(call: ToolCall, allowed: tuple[str, ...], tools: Registry) -> Answer:
    """Run one call."""
    tool = tools.tool(call["name"]) if call["name"] in allowed else None
    if tool is None:
        text = f"There is no tool {call['name']!r}; there are: {', '.join(allowed)}."
        return Answer(text, failed=True)
    try:
        answer = await tool.ainvoke({**call, "type": "tool_call"})
    except ValidationError as error:
        return Answer(f"The arguments of {call['name']} do not fit: {error}", failed=True)
    except GraphBubbleUp:
        raise
    except (Exception, SystemExit) as error:  # a tool may raise anything; the model is told
        return Answer(f"{call['name']} failed: {type(error).__name__}: {error}", failed=True)
    return Answer(str(getattr(answer, "text", answer)), failed=False)
