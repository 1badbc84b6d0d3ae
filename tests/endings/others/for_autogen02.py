"""AutoGen 0.2's `is_termination_msg`, checked by the agent that receives a message.

`default` is the rule of an agent without one of its own, which knows only the word TERMINATE. It
applies to dialogues with this word. `lambda` is the documented one, with the dialogue's word.
"""

from collections.abc import Callable
from typing import Any

from autogen import ConversableAgent

Check = Callable[[dict[str, Any]], Any]
Rule = Callable[[dict[str, Any]], str | None]

DEFAULT = "TERMINATE"
MANY = 10_000
"""A cap that no record reaches."""


def begin(variant: str, header: dict[str, Any]) -> Rule | None:
    """Return the rule for a dialogue, or None if the default rule does not know its word."""
    words = [(word["token"], word["by"]) for word in header["words"]]
    if variant == "default" and DEFAULT not in {token for token, _ in words}:
        return None

    def stops(turn: dict[str, Any]) -> str | None:
        by = turn["speaker"]
        tokens = [token for token, speaker in words if speaker in (None, by)]
        checks = [None] if variant == "default" else [_ends_with(token) for token in tokens]
        return "is_termination_msg" if any(_ends(check, turn) for check in checks) else None

    return stops


def _ends_with(token: str) -> Check:
    return lambda x: x.get("content", "") and x.get("content", "").rstrip().endswith(token)


def _ends(check: Check | None, turn: dict[str, Any]) -> bool:
    receiver, sender = _agent("receiver", check), _agent("sender", None)
    message: dict[str, Any] = {"role": "user", "name": "sender", "content": turn["text"]}
    if turn["calls"]:
        message["tool_calls"] = [
            {
                "id": str(place),
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for place, call in enumerate(turn["calls"])
        ]
    final, reply = receiver.check_termination_and_human_reply([message], sender)
    return bool(final and reply is None)


_AGENTS: dict[str, ConversableAgent] = {}


def _agent(name: str, check: Check | None) -> ConversableAgent:
    """Return an agent, made once, with this check in place of the last one."""
    key = f"{name} default" if check is None else name
    if key not in _AGENTS:
        _AGENTS[key] = ConversableAgent(
            name,
            is_termination_msg=check,
            llm_config=False,
            human_input_mode="NEVER",
            max_consecutive_auto_reply=MANY,
            code_execution_config=False,
        )
    agent = _AGENTS[key]
    if check is not None:
        agent._is_termination_msg = check
    agent.reset()
    return agent
