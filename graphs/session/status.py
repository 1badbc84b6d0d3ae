"""One-line descriptions of a running conversation and its events."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.content import describe_content, make_content
from ..common.sanitize import escape_invisible
from ..ends.end_chat import EndChat
from ..events import (
    CodeStarted,
    ConversationReopened,
    HistoryShortened,
    SpeakerChosen,
    ToolCallFinished,
    ToolCallRequested,
    ToolRoundLimitReached,
    VerdictGiven,
)
from ..rules.message_words import describe_choice, describe_reopening, describe_verdict

_LEAST = 0.000001


def remark(
    event: ToolCallRequested
    | CodeStarted
    | ToolCallFinished
    | ToolRoundLimitReached
    | VerdictGiven
    | SpeakerChosen
    | HistoryShortened
    | ConversationReopened,
) -> str:
    """Describe an event in one line. The text is empty if there is nothing to describe."""
    match event:
        case CodeStarted():
            count = len(event.blocks)
            return f"{event.speaker} runs {'the code' if count == 1 else f'{count} blocks of code'}"
        case ToolCallRequested():
            arguments = ", ".join(f"{key}={value!r}" for key, value in event.arguments.items())
            return f"{event.speaker} calls {escape_invisible(f'{event.name}({arguments})')}"
        case ToolCallFinished():
            return _result(event)
        case ToolRoundLimitReached():
            rounds = f"{event.rounds} rounds of tool calls"
            return f"{event.speaker} has used {rounds} and answers without tools"
        case VerdictGiven():
            return describe_verdict(event.verdict, separate=event.by is None)
        case SpeakerChosen():
            return describe_choice(event.speaker, readable=event.problem is None)
        case ConversationReopened():
            return describe_reopening(event.outcome)
        case HistoryShortened():
            # A cut without a summary was already reported when it happened.
            return f"{event.speaker} summarized the history: {event.text}" if event.text else ""


def _result(event: ToolCallFinished) -> str:
    """Return the result of a call, or the decision of the person who answered instead."""
    if event.decision == "reject":
        return event.text
    if event.decision == "respond":
        return f"A person answers in its place: {event.text}"
    text = describe_content(make_content(event.text, event.files))
    return f"{'The call failed' if event.failed else 'It answers'}: {text}"


def money(cost: float) -> str:
    """Format an amount of money, in the currency of the price table."""
    if cost >= 1:
        return f"{cost:,.2f}"
    # A single call may cost a small fraction of a cent.
    return f"{cost:.6f}".rstrip("0") if cost >= _LEAST else f"less than {_LEAST:.6f}"


def status(state: Mapping[str, Any]) -> Sequence[str]:
    """Return the progress of a conversation: round, calls, tokens, cost, seconds, in this order.

    Args:
        state: The state of the conversation's graph, as plain values.
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
