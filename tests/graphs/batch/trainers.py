"""Rules of trainers for a row, from their documentation and source code. No tests here.

Each function returns the fault of a row, or None.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

_ROLES = ("system", "user", "assistant", "tool")
_KEYS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "weight"},
    "tool": {"role", "content", "tool_call_id"},
}


def openai_fault(row: Mapping[str, Any]) -> str | None:
    """Check a row for OpenAI's fine-tuning of chat models, also read by Together and Azure."""
    if not row.keys() <= {"messages", "tools"}:
        return "extra key"
    if any(_definition_fault(one.get("function", {})) for one in row.get("tools", ())):
        return "tools"
    messages: Sequence[Mapping[str, Any]] = row["messages"]
    roles = [message["role"] for message in messages]
    if not set(roles) <= {*_ROLES}:
        return "role"
    if "system" in roles[1:]:
        return "system message inside"
    if not roles or roles[-1] != "assistant":
        return "last message"
    if all(one.get("weight") == 0 for one in messages if one["role"] == "assistant"):
        return "nothing to learn"
    if next(role for role in roles if role != "system") != "user":
        return "first message"
    if any(before == after != "tool" for before, after in pairwise(roles)):
        return "two in a row"
    return _calls_fault(messages) or next(filter(None, map(_message_fault, messages)), None)


def _calls_fault(messages: Sequence[Mapping[str, Any]]) -> str | None:
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return "result without a call"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return "call without a result"
        open_calls |= {call["id"] for call in message.get("tool_calls", ())}
    return None


def _message_fault(message: Mapping[str, Any]) -> str | None:
    if not message.keys() <= _KEYS[message["role"]]:
        return "extra key"
    if not isinstance(message["content"], str):
        return "content"
    if not message["content"].strip() and not message.get("tool_calls"):
        return "blank"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", message.get("name", "any")):
        return "name"
    if message.get("weight", 1) not in (0, 1):
        return "weight"
    for call in message.get("tool_calls", ()):
        function = call["function"]
        if call["type"] != "function" or not isinstance(json.loads(function["arguments"]), dict):
            return "call"
    return None


def sharegpt_fault(row: Mapping[str, Any]) -> str | None:
    """Check a row for LLaMA-Factory's ShareGPT reader; Axolotl's requires less."""
    if any(map(_definition_fault, json.loads(row.get("tools", "[]")))):
        return "tools"
    turns = list(row["conversations"])
    if turns and turns[0]["from"] == "system":
        turns.pop(0)
    for place, turn in enumerate(turns):
        if turn.keys() != {"from", "value"} or not isinstance(turn["value"], str):
            return "keys"
        odd = ("human", "observation")
        even = ("gpt", "function_call")
        if turn["from"] not in (even if place % 2 else odd):
            return "turn"
        if not turn["value"].strip():
            return "blank"
        if turn["from"] == "function_call" and _call_fault(turn["value"]):
            return "call"
        if turn["from"] == "observation" and turns[place - 1]["from"] != "function_call":
            return "result without a call"
    return "count" if not turns or len(turns) % 2 else None


def _call_fault(text: str) -> bool:
    found = json.loads(text)
    return any(
        call.keys() != {"name", "arguments"} or not isinstance(call["arguments"], dict)
        for call in (found if isinstance(found, list) else [found])
    )


def _definition_fault(told: Mapping[str, Any]) -> bool:
    return not told.keys() >= {"name", "description", "parameters"}
