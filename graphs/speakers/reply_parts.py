"""Parts of a reply's metadata, such as its thought, and messages that only one speaker sees.

Private messages, a speaker's memory and sample answers, are LangChain messages. From the speaker's
point of view, an `AIMessage` is its own, a `ToolMessage` is the result of the speaker's call, and a
`HumanMessage` is a message it heard: from the speaker in `name`, or from the conversation itself if
`name` is None.
"""

from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
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
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from ..common.content import files_of, text_of
from ..common.content_input import read_content
from ..common.data import Data
from ..common.errors import SpecError, name_type
from ..common.sanitize import excerpt
from ..common.validation import DEEPEST, check_depth


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    PRIVATE = "private"
    """A speaker invents content that only it knows."""
    OPENING = "opening"
    """Every speaker answers its own task, without hearing the others."""
    ROUNDS = "rounds"
    """The speakers speak in turn."""
    LAST_WORDS = "last_words"
    """The messages that speakers are promised after a task is complete."""


ALOUD: Final = (Stage.ROUNDS, Stage.LAST_WORDS)
"""The parts in which all speakers hear the messages."""


STOP: Final = "duologue_stop"
"""Key of the `Stop` of a model's answer in its ``additional_kwargs``."""


class StopCause(StrEnum):
    """The cause for which a model's reply is not complete."""

    LENGTH = "length"
    """The reply reached the token limit."""
    THOUGHT = "thought"
    """The model's thought used up all tokens, so that the reply has no text."""
    FILTER = "content_filter"
    """A filter of the provider withheld the reply, or the rest of it."""
    PROMPT = "prompt"
    """The provider blocked the prompt."""
    REFUSAL = "refusal"
    """The model refused to answer."""
    CALL = "call"
    """The provider could not read, or did not allow, a tool call of the model."""
    PAUSE = "pause"
    """The provider paused the reply more often than it is continued."""
    FAILURE = "failure"
    """A temporary failure of the server stopped the reply, and its repetitions as well."""
    NO_END = "no_end"
    """The server sends no sign of the end, so the reply may be incomplete."""
    OTHER = "other"
    """The provider stopped the reply for another reason."""


_STOPS: Final = {
    StopCause.LENGTH: "Cut off at the token limit",
    StopCause.THOUGHT: "Its thought used up",
    StopCause.FILTER: "Stopped by a content filter",
    StopCause.PROMPT: "Not answered, because the provider blocked the prompt",
    StopCause.REFUSAL: "Refused by the model",
    StopCause.CALL: "Its tool call was not accepted by the provider",
    StopCause.PAUSE: "Paused by the provider",
    StopCause.FAILURE: "Stopped by a failure of the server",
    StopCause.NO_END: "Perhaps cut off, because the server sent no sign of the end",
    StopCause.OTHER: "Stopped by the provider",
}


class Stop(Data):
    """Why a model stopped before its reply was complete. Its text is one clause for people."""

    cause: StopCause
    """The cause."""
    word: str = ""
    """The provider's own word for the cause, such as ``SAFETY``. Empty if there is none."""
    refusal: str = ""
    """The words with which the model refused. Empty if there are none."""
    explanation: str = ""
    """The provider's explanation. Empty if there is none."""
    max_tokens: int | None = None
    """The token limit that a thought has used up. None if no thought has, or if it is not known."""

    @property
    def clause(self) -> str:
        """Return the stop's text for the middle of a sentence."""
        said = str(self)
        return f"{said[:1].lower()}{said[1:]}"

    @property
    def is_of_length(self) -> bool:
        """Return whether the token limit is the cause."""
        return self.cause in (StopCause.LENGTH, StopCause.THOUGHT)

    @property
    def is_cut_off(self) -> bool:
        """Return whether the rest of the reply is missing, or may be missing."""
        return self.is_of_length or self.cause is StopCause.NO_END

    @property
    def is_notable(self) -> bool:
        """Return whether an outcome mentions the stop: not if a text reached a limit or has no end.

        A notice of the session names the server that sends no sign of the end.
        """
        return self.cause not in (StopCause.LENGTH, StopCause.NO_END)

    @property
    def is_lasting(self) -> bool:
        """Return whether a blank reply to nearly the same prompt would stop in the same way."""
        return self.cause in (
            *(StopCause.THOUGHT, StopCause.PROMPT, StopCause.REFUSAL),
            *(StopCause.PAUSE, StopCause.FAILURE),
        )

    def __str__(self) -> str:
        said = _STOPS[self.cause]
        if self.cause is StopCause.THOUGHT:
            most = self.max_tokens
            said += f" the {most:,} tokens of max_tokens" if most else " all tokens"
        elif self.word and not self.is_cut_off:
            said += f" ({excerpt(self.word, _WORD)})"
        told = self.refusal or self.explanation
        return f"{said}: {excerpt(told)}" if told else said


_WORD: Final = 60
"""Maximum number of characters of a provider's word that people read."""


THOUGHT: Final = "duologue_thought"
"""Key of the thought in a message's ``additional_kwargs``: in answers, in prompts and in a memory.
"""


class Reasoning(Data):
    """A thought in its model's original form."""

    text: str | None = None
    """The whole text of the answer, if the thought was a part of that text."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The blocks of the answer's content that contain the thought."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """The fields outside the content that contain the thought, by name."""
    calls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """The further fields of each call that has some, such as a signature, by the call's id."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The metadata by which LangChain's client reads the blocks."""


class Thought(Data):
    """The thought of a model. Only people read it: no rule parses, counts or judges it."""

    text: str
    """The text of the thought."""
    is_unopened: bool = False
    """Whether the thought ended with a closing tag that had no opening tag."""
    given: Reasoning | None = None
    """The original form, which is sent back to the model. None if the message has no calls."""
    family: str | None = None
    """The family of the model, to which alone the original form is sent back. None if unknown."""

    def rename_calls(self, ids: Mapping[str, str]) -> "Thought":
        """Return the thought with new ids of calls. Ids that are not in the mapping stay."""
        if self.given is None or not self.given.calls:
            return self
        calls = {ids.get(old, old): fields for old, fields in self.given.calls.items()}
        given = self.given.model_copy(update={"calls": calls})
        return self.model_copy(update={"given": given})


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
            thought = message.additional_kwargs.get(THOUGHT)
            kept = {} if thought is None else {THOUGHT: Thought.model_validate(thought)}
            return AIMessage(text, tool_calls=calls, additional_kwargs=kept)
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
