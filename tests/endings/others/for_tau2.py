"""tau2's `UserSimulator.is_stop` and the agent's `is_stop`, which know only tau2's own words.

They apply to dialogues whose words are all among these.
"""

from collections.abc import Callable
from typing import Any

from tau2.agent.llm_agent import LLMAgent
from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage
from tau2.user.user_simulator import OUT_OF_SCOPE, STOP, TRANSFER, UserSimulator

Rule = Callable[[dict[str, Any]], str | None]

USER = "User"


def begin(variant: str, header: dict[str, Any]) -> Rule | None:
    """Return the rule for a dialogue, or None if it has other words."""
    assert variant == "user"
    words = {word["token"] for word in header["words"]}
    return _stops if words and words <= {STOP, TRANSFER, OUT_OF_SCOPE} else None


def _stops(turn: dict[str, Any]) -> str | None:
    calls = [
        ToolCall(id=str(place), name=call["name"], arguments={})
        for place, call in enumerate(turn["calls"])
    ]
    if turn["speaker"] == USER:
        message = UserMessage(role="user", content=turn["text"], tool_calls=calls or None)
        return "user_stop" if UserSimulator.is_stop(message) else None
    said = AssistantMessage(role="assistant", content=turn["text"], tool_calls=calls or None)
    return "agent_stop" if LLMAgent.is_stop(said) else None
