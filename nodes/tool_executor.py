"""The node that runs the tools a speaker has called.

All calls of one message run side by side; their results enter the log in the order of the calls.
Whatever goes wrong with a call is text for the model, never an exception.
"""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolCall
from langgraph.errors import GraphBubbleUp
from pydantic import ValidationError

from duologue.graphs.end_chat import paused
from duologue.graphs.log import result
from duologue.graphs.position import Event
from duologue.graphs.state import State
from duologue.nodes.resources import Moment, Resources
from duologue.tools.registry import Registry


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message.

    Args:
        state: The session's state.
        resources: Models and functions.

    Returns:
        The update of the state.
    """
    moment = Moment.of(state, resources)
    speaker = moment.conversation.speaker(moment.turn.speaker)
    message = moment.log[-1]
    assert isinstance(message, AIMessage)  # noqa: S101  # the position says that it calls tools
    answers = await asyncio.gather(
        *(_run(call, speaker.tools, resources.registry) for call in message.tool_calls)
    )
    texts = [
        *zip((call["id"] for call in message.tool_calls), answers, strict=True),
        *(
            (call["id"], (f"The arguments of {call['name']} are not valid JSON.", True))
            for call in message.invalid_tool_calls
        ),
    ]
    results = [
        result(
            len(moment.log) + place,
            text,
            speaker=speaker.name,
            call_id=str(call_id),
            failed=failed,
        )
        for place, (call_id, (text, failed)) in enumerate(texts)
    ]
    return await moment.step(paused(moment.conversation, moment.position, Event.RETURNED), results)


async def _run(call: ToolCall, allowed: tuple[str, ...], tools: Registry) -> tuple[str, bool]:
    """Run one call; give its text and whether it failed."""
    tool = tools.get(call["name"]) if call["name"] in allowed else None
    if tool is None:
        return f"There is no tool {call['name']!r}; there are: {', '.join(allowed)}.", True
    try:
        answer = await tool.ainvoke({**call, "type": "tool_call"})
    except ValidationError as error:
        return f"The arguments of {call['name']} do not fit: {error}", True
    except GraphBubbleUp:
        raise
    except Exception as error:  # a tool may raise anything; the model is told
        return f"{call['name']} failed: {type(error).__name__}: {error}", True
    return str(getattr(answer, "text", answer)), False
