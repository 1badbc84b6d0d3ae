"""Calls of a speaker's hooks. Each hook receives a copy of the previous hook's result."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from pydantic import JsonValue

from ...graphs.common.content import Content, replace_text, text_of
from ...graphs.common.errors import SpecError
from ...graphs.log.messages import storable
from ...graphs.log.metadata import Source
from ...graphs.log.viewpoint import copy_view, describe_news, drop_thoughts
from ...tools.registry.functions import call
from ...tools.registry.hooks import Hook, Turn
from ..models.answers import why_unstorable
from ..models.tool_binding import HandedOver
from .node_context import NodeContext, session_id
from .prompt import view_of

Hooks = Sequence[tuple[str, Hook]]
"""The hooks with their names, in order."""


def has_reply_hooks(hooks: Hooks) -> bool:
    """Return whether a hook sees replies before the others hear them."""
    return any(hook.after_speaker for _, hook in hooks)


async def run_before_speaker(hooks: Hooks, turn: Turn) -> tuple[Turn, str | None]:
    """Run the hooks before a speaker's turn. Return the turn, and a reply if a hook returns one."""
    for name, hook in hooks:
        given = await _call_hook(name, hook, "before_speaker", turn, may=(HumanMessage, AIMessage))
        if isinstance(given, AIMessage):
            if given.tool_calls or given.invalid_tool_calls:
                raise _make_error(
                    name, "before_speaker", "it returned tool calls; return text only"
                )
            return turn, storable(given.text)
        if given is not None:
            turn = _replace_heard(turn, storable(given.text))
    return turn, None


def _replace_heard(turn: Turn, text: str) -> Turn:
    kept: tuple[BaseMessage, ...] = turn.messages
    content: Content = text
    if kept and isinstance(kept[-1], HumanMessage):
        # Earlier context, such as a summary, may precede the heard text in the message.
        before = kept[-1].text.removesuffix(turn.heard)
        content = replace_text(kept[-1].content, before + text)
        kept = kept[:-1]
    return replace(turn, messages=(*kept, HumanMessage(content)), heard=text)


async def run_after_speaker(hooks: Hooks, turn: Turn, reply: AIMessage) -> str:
    """Run the hooks after a speaker's reply, and return its text."""
    for name, hook in hooks:
        given = await _call_hook(name, hook, "after_speaker", turn, reply, may=(AIMessage,))
        if given is not None:
            reply = reply.model_copy(update={"content": storable(given.text)})
    return reply.text


async def run_before_tool(
    hooks: Hooks, turn: Turn, called: ToolCall
) -> tuple[ToolCall, ToolMessage | None]:
    """Run the hooks before a tool call. Return the call, and a result if a hook returns one."""
    for name, hook in hooks:
        given = await _call_hook(name, hook, "before_tool", turn, called, may=(dict, ToolMessage))
        if isinstance(given, ToolMessage):
            return called, given
        if given is not None:
            called = _replace_arguments(name, called, given)
    return called, None


def _replace_arguments(name: str, called: ToolCall, given: dict[str, Any]) -> ToolCall:
    arguments = given.get("args")
    if not isinstance(arguments, dict):
        raise _make_error(
            name, "before_tool", "it returned a call without args; keep the call's other keys"
        )
    if given.get("name", called["name"]) != called["name"]:
        what = f"it returned a call to another tool, {given['name']!r}; keep the tool's name"
        raise _make_error(name, "before_tool", what)
    # Checked before the tool runs, because the log stores the arguments.
    fault = why_unstorable(arguments)
    if fault is not None:
        raise _make_error(name, "before_tool", f"it returned args that cannot be stored: {fault}")
    return ToolCall(name=called["name"], args=arguments, id=called["id"])


async def run_after_tool(
    hooks: Hooks, turn: Turn, called: ToolCall, result: ToolMessage
) -> ToolMessage:
    """Run the hooks after a tool call, and return its result."""
    for name, hook in hooks:
        given = await _call_hook(name, hook, "after_tool", turn, called, result, may=(ToolMessage,))
        if given is not None:
            result = given
    return result


async def _call_hook(name: str, hook: Hook, point: str, *shown: Any, may: tuple[type, ...]) -> Any:  # noqa: ANN401
    """Call a hook with copies of the arguments, and return its result. None if it has none."""
    function = getattr(hook, point)
    if function is None:
        return None
    copies = [deepcopy(one) for one in shown]
    given = await call("hook", name, function, *copies, at=point)
    if given is None or isinstance(given, may):
        return given
    kinds = " or ".join(kind.__name__ for kind in may)
    raise _make_error(name, point, f"it must return {kinds} or None, not {type(given).__name__}")


def _make_error(name: str, point: str, how: str) -> SpecError:
    return SpecError(f"the hook {name!r} failed in {point}: {how}")


class DraftReply(NamedTuple):
    """A reply before it is checked."""

    message: AIMessage
    """The reply: text, or tool calls."""
    source: Source
    """The source of the reply."""
    parsed: JsonValue = None
    """The reply as plain values. None if its source does not provide them."""
    handed: HandedOver = HandedOver()
    """The reply's calls of ``hand_off``."""


def copy_turn_view(context: NodeContext) -> list[BaseMessage]:
    """Return the speaker's view of the log for functions, hooks and agents, which may change it."""
    return copy_view(drop_thoughts(view_of(context)))


def turn_of(context: NodeContext) -> Turn:
    """Return the turn as functions and hooks see it."""
    name = context.turn.speaker
    news = text_of(describe_news(context.conversation, context.heard_lines(), name))
    return Turn(session_id(), name, tuple(copy_turn_view(context)), news)
