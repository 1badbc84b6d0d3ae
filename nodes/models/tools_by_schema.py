"""Tools for endpoints without tool calls.

The prompt describes the tools, a JSON schema constrains the answer, and this module reads the
answer as tool calls. The endpoint sees calls and results only as ordinary text in the prompt.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import cleandoc
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json import parse_partial_json

from ...graphs.log.viewpoint import SILENCE
from ...graphs.text.structures import without_fences
from .tool_calls import CUT_OFF, find_registered, make_invalid_call, read_call, split_calls

_KEPT = frozenset(
    {"enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
"""Keywords of a schema that are sent unchanged. Servers turn the schema into a grammar, and some
refuse keywords that they do not support. The tool checks the other keywords when it runs.
"""

_LONGEST = 100
"""Largest ``minItems`` or ``maxItems`` that is sent. A server's grammar grows with this number."""

_ANYTHING = ["string", "number", "boolean", "object", "array", "null"]
_KNOWN = frozenset({*_ANYTHING, "integer"})


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def slim_arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the schema of a tool's arguments to the keywords that are sent."""
    slim = _slim(dict(parameters))
    if "properties" not in slim and not slim.get("additionalProperties"):
        return closed_object({})
    return {**slim, "type": "object"}


def _slim(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {"type": _ANYTHING}
    slim = {key: value for key, value in schema.items() if key in _KEPT}
    slim |= {
        key: kept for key, value in schema.items() if (kept := _slim_value(key, value)) is not None
    }
    if "properties" in slim:
        slim.setdefault("additionalProperties", False)
    return slim or {"type": _ANYTHING}


def _slim_value(key: str, value: Any) -> object:  # noqa: ANN401
    """Return the value to send for a keyword that is not sent unchanged. None to leave it out."""
    match key:
        case "anyOf" | "oneOf" | "allOf" | "prefixItems" if isinstance(value, list):
            return [*map(_slim, value)]
        case "items" | "additionalProperties" if isinstance(value, dict):
            return _slim(value)
        case "properties" if isinstance(value, dict):
            return {name: _slim(each) for name, each in value.items()}
        case "additionalProperties":
            return bool(value)
        case "minItems" | "maxItems" if isinstance(value, int) and value <= _LONGEST:
            return value
        case "type" if value and _KNOWN.issuperset([value] if isinstance(value, str) else value):
            return value
    return None


TOOL, ARGUMENTS, REPLY = "tool", "arguments", "reply"
"""Names of the fields in an answer."""

TOLD = """Tools:
{tools}
To call a tool, write {{"tool": its name, "arguments": {{…}}}}. You get its result next. To speak, \
write {{"reply": your words}}."""
"""Template for the list of a model's tools. The list never changes, so a prompt cache can keep it.
"""

NO_CALL = "Answer in plain words now. You cannot call a tool."
RESULT = "Result of {name}: {text}"

_TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false"}
_DEEPEST = 3


def answer_schema(tools: Sequence[BaseTool], choice: str) -> dict[str, Any]:
    """Return the JSON schema of an answer that calls one of the tools, or replies.

    Args:
        tools: The tools.
        choice: ``auto``, ``required`` or the name of a tool.
    """
    offered = [tool for tool in tools if choice in ("auto", "required", tool.name)]
    options = [
        closed_object(
            {
                TOOL: {"const": tool.name},
                ARGUMENTS: slim_arguments(_function(tool).get("parameters") or {}),
            }
        )
        for tool in offered
    ]
    if choice == "auto":
        options.append(closed_object({REPLY: {"type": "string"}}))
    # OpenAI requires an object at the root.
    return options[0] if len(options) == 1 else {"type": "object", "anyOf": options}


def read_answer(answer: AIMessage, tools: Iterable[BaseTool]) -> AIMessage:
    """Return an answer in schema-constrained JSON as a message with text or tool calls."""
    text = without_fences(str(answer.text))
    found, whole = None, True
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        whole = False
        # The last field of a truncated answer may be incomplete.
        with suppress(ValueError, RecursionError):
            found = parse_partial_json(text) if text.startswith("{") else None
    if not isinstance(found, dict):
        return answer.model_copy(update={"content": text})
    if not isinstance(found.get(TOOL), str):
        # If no field is complete, the answer is empty.
        said = found.get(REPLY, text if found else "")
        return answer.model_copy(update={"content": said if isinstance(said, str) else text})
    if whole:
        name = find_registered(found[TOOL], {tool.name: tool.name for tool in tools})
        good, broken = split_calls([read_call(name, found.get(ARGUMENTS), None)])
    else:
        # The name itself may be truncated.
        name = next((one.name for one in tools if one.name.startswith(found[TOOL])), found[TOOL])
        good, broken = [], [make_invalid_call(name, text, None, CUT_OFF.format(name=name))]
    return answer.model_copy(
        update={"content": "", "tool_calls": good, "invalid_tool_calls": broken}
    )


def prompt_with_tools(
    messages: Iterable[BaseMessage],
    tools: Sequence[BaseTool],
    choice: str,
    describe: Callable[[BaseTool], str],
) -> list[BaseMessage]:
    """Return a prompt for an endpoint without tool calls.

    Args:
        messages: The messages, with tool calls and results.
        tools: The tools that the model may call.
        choice: ``auto``, ``required``, ``none`` or the name of a tool.
        describe: Returns the text that describes a tool.
    """
    flat = _flatten(messages)
    if not tools:
        return flat
    listed = "\n".join(map(describe, tools))
    flat = add_instruction(flat, TOLD.format(tools=listed))
    if choice == "none":
        # At the end, so that the prompt before it is the same with any choice.
        flat = _merge([*flat, HumanMessage(NO_CALL)])
    return flat


def add_instruction(messages: Sequence[BaseMessage], text: str) -> list[BaseMessage]:
    """Return a prompt with a text at the end of its system prompt."""
    if messages and isinstance(messages[0], SystemMessage):
        return [SystemMessage(f"{messages[0].text}\n\n{text}"), *messages[1:]]
    return [SystemMessage(text), *messages]


def describe_tool(tool: BaseTool, *, briefly: bool = False) -> str:
    """Describe a tool in a few words: its name, arguments and purpose."""
    function = _function(tool)
    parameters = function.get("parameters") or {}
    needed = parameters.get("required") or ()
    arguments = ", ".join(
        f"{name}{'' if name in needed else '?'}: {_type(each, briefly=briefly)}"
        for name, each in (parameters.get("properties") or {}).items()
    )
    text = cleandoc(str(function.get("description") or ""))
    return f"- {tool.name}({arguments}): {text.partition(chr(10))[0] if briefly else text}"


def _function(tool: BaseTool) -> dict[str, Any]:
    function: dict[str, Any] = convert_to_openai_tool(tool)["function"]
    return function


def _flatten(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a prompt with its tool calls and results as ordinary text."""
    flat: list[BaseMessage] = []
    names: dict[str | None, str] = {}
    before: BaseMessage | None = None
    for message in messages:
        if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
            calls = (*message.tool_calls, *message.invalid_tool_calls)
            names |= {call["id"]: call["name"] or "?" for call in calls}
            written = [
                json.dumps({TOOL: call["name"], ARGUMENTS: call["args"]}, ensure_ascii=False)
                for call in message.tool_calls
            ]
            broken = [call["args"] or "" for call in message.invalid_tool_calls]
            text = "\n".join(filter(None, [message.text, *written, *broken]))
            flat.append(AIMessage(text or "?", name=message.name))
        elif isinstance(message, ToolMessage):
            name = names.get(message.tool_call_id, message.name or "?")
            flat.append(HumanMessage(RESULT.format(name=name, text=message.text)))
        elif not (message.text == SILENCE and isinstance(before, ToolMessage)):
            # Results are texts of the user here, so no blank message has to follow them.
            flat.append(message)
        before = message
    return _merge(flat)


def _merge(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Join adjacent messages of one role, since servers refuse two in a row."""
    merged: list[BaseMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is None or last.type != message.type:
            merged.append(message)
            continue
        kind = AIMessage if isinstance(message, AIMessage) else HumanMessage
        name = message.name if last.name == message.name else None
        merged[-1] = kind(f"{last.text}\n\n{message.text}", name=name)
    return merged


def _type(schema: Mapping[str, Any], depth: int = 0, *, briefly: bool) -> str:
    """Return a short description of an argument's type."""
    words = _type_words(schema, depth, briefly=briefly)
    about = str(schema.get("description") or "").strip()
    return words if briefly or not about else f"{words} ({' '.join(about.split())})"


def _type_words(schema: Mapping[str, Any], depth: int, *, briefly: bool) -> str:
    def inner(part: object) -> str:
        if not isinstance(part, dict):
            return "anything"
        return _type(part, depth + 1, briefly=briefly)

    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(inner, schema[key])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_TYPES.get(each, str(each)) for each in kind)
    if kind == "array" and depth < _DEEPEST:
        return f"list of {inner(schema['items'])}" if schema.get("items") else "list"
    if kind == "object" and schema.get("properties") and depth < _DEEPEST:
        parts = (f"{name}: {inner(each)}" for name, each in schema["properties"].items())
        return f"{{{', '.join(parts)}}}"
    return _TYPES.get(str(kind), str(kind)) if kind else "anything"
