"""Messages that only one speaker sees, as data: its memory, and sample answers.

They are LangChain messages. From the speaker's point of view, an `AIMessage` is its own, a
`ToolMessage` is the result of the speaker's call, and a `HumanMessage` is a message it heard: from
the speaker in `name`, or from the conversation itself if `name` is None.
"""

from copy import deepcopy
from typing import Annotated, Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.messages.tool import ToolCall
from pydantic import (
    AfterValidator,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from ..common.content import files_of, text_of
from ..common.content_input import read_content
from ..common.errors import SpecError
from ..common.validation import DEEPEST, check_depth, name_type
from .reply_parts import THOUGHT, Thought

_ARGUMENTS: Final = TypeAdapter(dict[str, JsonValue])
_DEEPEST_ARGUMENTS: Final = DEEPEST - 10
"""Maximum nesting depth of a call's arguments, which a spec contains some levels below its top."""


def _read_message(given: object) -> AnyMessage:
    """Return a copy of a message that contains only the stored parts."""
    try:
        (message,) = convert_to_messages([_with_files(given)])  # type: ignore[list-item]
    except SpecError:
        raise
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(
            "must be a LangChain message, a pair (role, text), a dict with role and content, or a "
            f"text, not {given!r:.200}"
        ) from error
    content = read_content(message.content, "content")
    if isinstance(message, AIMessage) and files_of(content):
        raise ValueError("a message of the assistant can't contain files; remove them")
    text = text_of(content)
    calls = (
        [_read_call(call) for call in calls_of(message)] if isinstance(message, AIMessage) else []
    )
    if not (text.strip() or calls or isinstance(message, ToolMessage)):
        raise ValueError("the content must not be empty")
    match message:
        case HumanMessage():
            return HumanMessage(content, name=message.name)
        case AIMessage():
            return AIMessage(text, tool_calls=calls, additional_kwargs=_read_thought(message))
        case ToolMessage():
            return ToolMessage(content, tool_call_id=message.tool_call_id, status=message.status)
    raise ValueError(
        f"must be a message of the user, the assistant or a tool, not of the {message.type}; "
        "put instructions into system_prompt"
    )


def _with_files(given: object) -> object:
    """Return a message in which a content block replaces each `Path` and all bytes.

    Only a caller in Python can pass these.
    """
    match given:
        case {"content": list() as content, **rest}:
            return {**rest, "content": read_content(content, "content")}
        case (role, list() as content) if isinstance(given, tuple):
            return role, read_content(content, "content")
    return given


def _read_call(call: ToolCall) -> ToolCall:
    try:
        args = _ARGUMENTS.validate_python(call["args"])
    except ValidationError as error:
        raise ValueError(f"the arguments of {call['name']!r} must be a JSON object") from error
    check_depth(args, f"the arguments of {call['name']!r}: ", _DEEPEST_ARGUMENTS)
    return ToolCall(name=call["name"], args=args, id=call.get("id"), type="tool_call")


def _read_thought(message: AIMessage) -> dict[str, Thought]:
    thought = message.additional_kwargs.get(THOUGHT)
    return {} if thought is None else {THOUGHT: Thought.model_validate(thought)}


def calls_of(message: AIMessage) -> list[ToolCall]:
    """Return copies of all calls of a message; calls with broken JSON have no arguments."""
    broken = (
        ToolCall(name=call["name"] or "unknown", args={}, id=call["id"])
        for call in message.invalid_tool_calls
    )
    # A hook may change the copies, even a list within the arguments.
    return [*deepcopy(message.tool_calls), *broken]


def write_message(message: AnyMessage) -> dict[str, Any]:
    """Return a message as JSON values, which `add_messages` and a speaker's fields accept."""
    content = message.content if files_of(message.content) else str(message.text)
    written: dict[str, Any] = {"role": _ROLES[message.type], "content": content}
    if isinstance(message, HumanMessage) and message.name is not None:
        written["name"] = message.name
    if isinstance(message, AIMessage) and message.tool_calls:
        written["tool_calls"] = [
            {"name": call["name"], "args": call["args"], "id": call["id"]}
            for call in message.tool_calls
        ]
    if (thought := message.additional_kwargs.get(THOUGHT)) is not None:
        written[THOUGHT] = thought.model_dump(mode="json", exclude_defaults=True)
    if isinstance(message, ToolMessage):
        written["tool_call_id"] = message.tool_call_id
        if message.status == "error":
            written["status"] = message.status
    return written


_ROLES: Final = {"human": "user", "ai": "assistant", "tool": "tool"}


def _property_schema(description: str, **schema: object) -> dict[str, Any]:
    return {"description": description, **schema}


PrivateMessage: TypeAlias = Annotated[
    AnyMessage,
    PlainValidator(_read_message),
    PlainSerializer(write_message),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "role": _property_schema("Whose message it is.", enum=[*_ROLES.values()]),
                "content": {
                    "description": "The text, or content blocks of text and files.",
                    "anyOf": [
                        {"type": "string"},
                        {"type": "array", "items": {"type": "object"}},
                    ],
                },
                "name": _property_schema("The speaker it was heard from.", type="string"),
                "tool_calls": _property_schema("The calls of tools.", type="array"),
                "tool_call_id": _property_schema(
                    "The call of which it is the result.", type="string"
                ),
                "status": _property_schema("Whether the call failed.", enum=["success", "error"]),
                THOUGHT: _property_schema("The model's thought before the message.", type="object"),
            },
            "required": ["role", "content"],
        }
    ),
]
"""A message that only one speaker sees, in any form that `add_messages` accepts."""

_MESSAGES: Final = TypeAdapter(tuple[PrivateMessage, ...])


def read_messages(given: object, field: str) -> tuple[AnyMessage, ...]:
    """Return a list of messages in the form that a session stores.

    Raises:
        SpecError: One of them is not valid; the message names the field and the position.
    """
    if not isinstance(given, list | tuple):
        raise SpecError(f"{field}: must be a list of messages, not {name_type(given)}")
    try:
        return _MESSAGES.validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, (field, *first["loc"])))
        raise SpecError(f"{path}: {first['msg'].removeprefix('Value error, ')}") from error


def _check_first_and_last(examples: tuple[AnyMessage, ...]) -> tuple[AnyMessage, ...]:
    if examples and not isinstance(examples[0], HumanMessage):
        raise ValueError(
            "the first message must be the user's; add the message that the speaker answers"
        )
    if examples and (not isinstance(examples[-1], AIMessage) or examples[-1].tool_calls):
        raise ValueError("the last message must be the assistant's; add the speaker's answer")
    return examples


Examples: TypeAlias = Annotated[tuple[PrivateMessage, ...], AfterValidator(_check_first_and_last)]
"""Messages of which the first is the user's and the last is the assistant's."""
