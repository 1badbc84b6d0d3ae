"""What a speaker says beside a call of tools: one text out of several, and the way back. Pure.

Agere's ``to_user``: an argument of each call that is spoken and does not reach the tool. How it is
taken out of the calls while they arrive is in `nodes.models.to_user`. Calls that name
who speaks next are read in `nodes.models.offered_tools`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ...nodes.prompts import handoffs as prompts
from ..spec.conversation import Conversation
from ..spec.handoffs import first_of, read_name, targets
from ..spec.judges import HAND_OFF
from .messages import place_of
from .metadata import SpeakerReply

GAP = "\n\n"
"""What stands between the parts of a message."""


def together(content: str, texts: Iterable[str], late: str = "") -> str:
    """Put together what is said beside calls."""
    spoken = [*texts]
    if not spoken:
        return content + late
    # Space at the end is not known to be the end while a message arrives.
    parts = [content.rstrip(), *spoken, late.strip()]
    return GAP.join(part for part in parts if part.strip())


def apart(text: str, texts: Iterable[str]) -> str | None:
    """Give the content without what is said by the calls' argument."""
    spoken = GAP.join(texts)
    if text == spoken:
        return ""
    if text.endswith(f"{GAP}{spoken}"):
        return text.removesuffix(f"{GAP}{spoken}")
    if text.startswith(f"{spoken}{GAP}"):
        return text.removeprefix(f"{spoken}{GAP}")
    before, between, after = text.partition(f"{GAP}{spoken}{GAP}")
    return f"{before}{GAP}{after}" if between else None


def put_back(
    text: str, calls: list[ToolCall], texts: Mapping[str, str]
) -> tuple[str, list[ToolCall]]:
    """Show a message to the speaker who wrote it as its model wrote it."""
    content = apart(text, texts.values()) if texts else None
    if content is None or not texts.keys() <= {call["id"] for call in calls}:
        return text, calls
    return content, [_with(call, texts) for call in calls]


def _with(call: ToolCall, texts: Mapping[str, str]) -> ToolCall:
    said = texts.get(str(call["id"]))
    args: dict[str, Any] = call["args"] if said is None else {TO_USER: said, **call["args"]}
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")


def handing_over(
    conversation: Conversation, about: SpeakerReply, message: BaseMessage
) -> list[tuple[ToolCall, ToolMessage]]:
    """Give the calls by which a line names who speaks next, and what came of them.

    The speaker is shown them as other calls: models do as they see that they did.
    """
    render_prompt, may = conversation.render_prompt, targets(conversation, about.speaker or "")
    chosen = first_of(conversation, about.speaker or "", about.handed_to)
    made = []
    for number, given in enumerate(about.handed_to if may else ()):
        name = read_name(given, may)
        if name is None:
            result = render_prompt(prompts.HAND_OFF_REFUSED, other=given, names=", ".join(may))
        elif name == chosen:
            result, chosen = render_prompt(prompts.HAND_OFF_ACCEPTED, name=name), None
        else:
            result = render_prompt(prompts.HAND_OFF_IGNORED)
        args = {"to": name or given} | ({"private": True} if about.private else {})
        call_id = f"{place_of(message)}-to-{number}"
        call = ToolCall(name=HAND_OFF, args=args, id=call_id, type="tool_call")
        made.append((call, ToolMessage(result, tool_call_id=call_id, id=call_id)))
    return made
