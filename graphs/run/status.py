"""How far a conversation is, for the line that is shown while something is waited for."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..ends.end_chat import EndChat
from .remarks import money


def status(state: Mapping[str, Any]) -> Sequence[str]:
    """Say how far a conversation is: round, calls, tokens, cost, seconds; the foremost first.

    Args:
        state: The state of its graph, as plain values.
    """
    spec, position = state.get("spec"), state.get("position")
    if not spec or position is None:
        return ()
    facts = position.get("facts", {})
    calls, tokens, cost = (facts.get(name, 0) for name in ("calls", "tokens", "cost"))
    parts = [
        _round(spec, position.get("turns", 0)),
        "1 call" if calls == 1 else f"{calls:,} calls",
        f"{tokens:,} tokens",
        *([f"{money(cost)} spent"] if cost else []),
        f"{facts.get('seconds', 0):.0f} s in all",
    ]
    return parts if calls else parts[:1]


def _round(spec: Mapping[str, Any], turns: int) -> str:
    complete = turns // len(spec["speakers"])
    left = EndChat.model_validate(spec.get("end_chat", {})).rounds_left(complete)
    if left is None:
        return f"round {complete + 1}"
    return f"round {complete + min(1, left)} of {complete + left}"
