"""Conversations with hooks, and hooks in every form. No tests here."""

import asyncio
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from duologue.graphs import Conversation, Result
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook
from support.prompts import PROMPTS
from support.shape_help import play as played, talk

BEGIN = PROMPTS["begin"]
POINTS = ("before_speaker", "after_speaker", "before_tool", "after_tool")


def hooked(*hooks: str, rounds: int = 1, ann: dict[str, Any] | None = None, **fields: Any) -> Any:  # noqa: ANN401
    """Return a conversation of Ann, who has these hooks and a tool, and Bob."""
    given = {"name": "Ann", "hooks": hooks, "tools": ["add"]} | (ann or {})
    return talk(given, "Bob", rounds=rounds, **fields)


def adding(ran: list[tuple[int, int]] | None = None) -> BaseTool:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        if ran is not None:
            ran.append((a, b))
        return a + b

    return add


def calling(a: Any, b: Any, call_id: str = "c1", text: str = "") -> Reply:  # noqa: ANN401
    return Reply(text=text, tool_calls=[called(a, b, call_id)])


def called(a: Any, b: Any, call_id: str = "c1") -> ScriptedToolCall:  # noqa: ANN401
    return ScriptedToolCall(name="add", args={"a": a, "b": b}, id=call_id)


def later(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the same function as a coroutine."""
    if function is None:
        return None

    async def slowly(*given: Any) -> Any:  # noqa: ANN401
        await asyncio.sleep(0)
        found = function(*given)
        return await found if isawaitable(found) else found

    return slowly


def play(
    spec: Conversation,
    script: Sequence[Said],
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run the conversation with the tool."""
    return played(spec, script, **{"tools": [adding()]} | options)


def in_form(hook: Hook, form: str) -> Hook:
    if form == "sync":
        return hook
    return Hook(**{point: later(getattr(hook, point)) for point in POINTS})


def raising(words: str) -> Callable[..., Any]:
    def fails(*given: object) -> None:
        raise OSError(words)

    return fails


either = pytest.mark.parametrize("form", ["sync", "async"])
