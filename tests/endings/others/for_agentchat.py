"""AutoGen agentchat's termination conditions.

`alone` is `TextMentionTermination(word)` for each word of the dialogue. `composed` also names the
speaker that may say it, the tools that end the dialogue, and a cap.
"""

import asyncio
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

from autogen_agentchat.conditions import (
    FunctionCallTermination,
    MaxMessageTermination,
    TextMentionTermination,
)
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

Rule = Callable[[dict[str, Any]], str | None]

MANY = 10_000
"""A cap that no record reaches."""

_LOOP = asyncio.new_event_loop()


def begin(variant: str, header: dict[str, Any]) -> Rule:
    """Return the rule for a dialogue."""
    composed = variant == "composed"
    conditions: list[Any] = [
        TextMentionTermination(
            word["token"], sources=[word["by"]] if composed and word["by"] else None
        )
        for word in header["words"]
    ]
    if composed:
        conditions += [FunctionCallTermination(tool["name"]) for tool in header["tools"]]
        conditions.append(MaxMessageTermination(MANY))
    condition = reduce(or_, conditions) if conditions else None

    def stops(turn: dict[str, Any]) -> str | None:
        stop = condition and _LOOP.run_until_complete(condition(_messages(turn)))
        return stop.content if stop else None

    return stops


def _messages(turn: dict[str, Any]) -> list[Any]:
    speaker = turn["speaker"]
    messages: list[Any] = []
    if turn["text"] or not turn["calls"]:
        messages.append(TextMessage(content=turn["text"], source=speaker))
    if turn["calls"]:
        calls = [
            FunctionCall(id=str(place), name=call["name"], arguments=call["arguments"])
            for place, call in enumerate(turn["calls"])
        ]
        results = [
            FunctionExecutionResult(
                content=call["result"],
                name=call["name"],
                call_id=str(place),
                is_error=call["failed"],
            )
            for place, call in enumerate(turn["calls"])
        ]
        messages.append(ToolCallRequestEvent(content=calls, source=speaker))
        messages.append(ToolCallExecutionEvent(content=results, source=speaker))
    return messages
