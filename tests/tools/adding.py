"""Two tools, and calls of tools as models write them. No tests here."""

from typing import Any

from langchain_core.tools import tool

from duologue.nodes.testing import Reply, ScriptedToolCall


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def fail(reason: str) -> str:
    """Always fails."""
    raise OSError(reason)


def call(name: str, args: dict[str, Any] | str, call_id: str = "c1") -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=call_id)


def calls(*made: ScriptedToolCall, text: str = "") -> Reply:
    return Reply(text=text, tool_calls=made)
