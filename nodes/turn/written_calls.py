"""Calls of a speaker's tools that its model has written into the text of a reply."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ...graphs.conversation.conversation import Conversation, hand_off_targets
from ...graphs.conversation.judges import HAND_OFF
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import Speech
from ...graphs.speakers.formats import SchemaFormat
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.structures import MARKS
from ...graphs.text.written_calls import WrittenCall, ends_with_call, read_written_calls
from ..models.tool_binding import read_transfers
from ..models.tool_calls import find_registered, read_call, split_calls


def take_written_calls(
    conversation: Conversation,
    speaker: Speaker,
    log: Sequence[BaseMessage],
    tools: Sequence[BaseTool],
    answer: AIMessage,
) -> AIMessage:
    """Return an answer in which a text that is nothing but calls of offered tools is these calls.

    Calls as plain JSON count only if the speaker is not to show JSON.
    """
    has_calls = answer.tool_calls or answer.invalid_tool_calls
    found = None if has_calls else read_written_calls(answer.text)
    if found is None or not (found.is_marked or not _shows_json(conversation, speaker, log)):
        return answer
    offered = {tool.name: tool for tool in tools}
    names = {name: name for name in offered}
    calls = []
    for written in found.calls:
        name = find_registered(written.name, names)
        calls.append(read_call(name, _convert_arguments(written, offered.get(name)), None))
    good, broken = split_calls(calls)
    made = answer.model_copy(
        update={"content": "", "tool_calls": good, "invalid_tool_calls": broken}
    )
    made = read_transfers(conversation, speaker, made)
    called = {str(call["name"]) for call in (*made.tool_calls, *made.invalid_tool_calls)}
    return made if called <= {*offered, *_hand_off_of(conversation, speaker)} else answer


def writes_call(
    conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage], text: str
) -> bool:
    """Return whether a reply contains a call as text, at its end, that is no part of the message.

    The reply of a speaker with a JSON format contains none.
    """
    tools = (*speaker.tools, *_hand_off_of(conversation, speaker))
    if isinstance(speaker.format, SchemaFormat):
        return False
    names = {name: name for name in tools}
    found = read_written_calls(text)
    if found is not None and found.is_marked and not text.lstrip().startswith(MARKS):
        return True
    plain = not _shows_json(conversation, speaker, log)
    return ends_with_call(text, lambda name: find_registered(name, names) in names, plain=plain)


def _hand_off_of(conversation: Conversation, speaker: Speaker) -> tuple[str, ...]:
    return (HAND_OFF,) if hand_off_targets(conversation, speaker.name) else ()


def _shows_json(conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage]) -> bool:
    """Return whether a speaker is to show JSON, by its format, task or newest message."""
    if isinstance(speaker.format, SchemaFormat):
        return True
    newest = next((one.text for one in reversed(log) if isinstance(metadata(one), Speech)), "")
    texts = filter(None, (conversation.task, speaker.task, speaker.system_prompt, newest))
    return any(_JSON.search(text) for text in texts)


_JSON: Final = re.compile(r"\bjson\b", re.IGNORECASE)


def _convert_arguments(call: WrittenCall, tool: BaseTool | None) -> object:
    """Return the arguments of a call. Values from tags get the types that the tool declares."""
    if not call.is_text or tool is None or not isinstance(call.arguments, dict):
        return call.arguments
    parameters = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    properties = parameters.get("properties") or {}
    return {
        key: _convert_value(text, properties.get(key) or {}) for key, text in call.arguments.items()
    }


def _convert_value(text: str, schema: Mapping[str, Any]) -> object:
    kinds = [schema.get("type"), *(one.get("type") for one in schema.get("anyOf") or ())]
    if "string" in kinds:
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text
