"""A session as examples to train models on: what a speaker saw, and what it said. Pure functions.

An example is one speaker's view, in the two forms that trainers read: OpenAI's, and ShareGPT's as
LLaMA-Factory and Axolotl take it. Both begin with what was heard and end with a line of the
speaker's own.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    convert_to_openai_messages,
)

from ...nodes.models.tool_binding import define_tools
from ...tools.registry.registry import Registry
from ..common.sanitize import escape_json
from ..conversation.judges import HAND_OFF
from ..log.messages import metadata
from ..log.metadata import MessageMetadata, Reflection, Source, SpeakerReply, Speech, ToolCalls
from ..log.viewpoint import SILENCE, viewpoint
from ..prompts.speaking import BEGIN
from ..speakers.formats import SchemaFormat
from .stored_session import StoredSession

Line: TypeAlias = dict[str, Any]
"""One line of a JSON Lines file, or one message in it."""


@dataclass(frozen=True)
class Example:
    """What one speaker saw and said."""

    speaker: str
    """Its name."""
    messages: Sequence[Line]
    """Messages in OpenAI's form, the system prompt first. A line of its own that is not to be
    learned has the weight 0."""
    tools: Sequence[Line] = ()
    """What its model was told of the tools that it may call, in OpenAI's form."""


def examples(
    result: StoredSession, speaker: str | None = None, registry: Registry | None = None
) -> list[Example]:
    """Return the examples that a session holds.

    Args:
        result: The session.
        speaker: Whose view it is. None: those of all speakers for whom a model has spoken.
        registry: What was registered for the run. Of tools that are not in it nothing is told.

    Returns:
        One example for each speaker who has said something that can be learned: what a model, an
        agent or a person gave. Texts that are always the same, what code gave, examples in the
        prompt and memories that were brought along are none.
    """
    lines = {message.id: metadata(message) for message in result.messages}
    by_model = {
        about.speaker
        for message in result.messages
        if isinstance(message, AIMessage)
        and isinstance(about := metadata(message), Speech | ToolCalls)
        and about.source is Source.MODEL
    }
    known = registry or Registry()
    names = [name for name in result.conversation.names if name in by_model]
    found = (_example(result, name, lines, known) for name in ([speaker] if speaker else names))
    return [one for one in found if one is not None]


def _example(
    result: StoredSession, name: str, lines: Mapping[str | None, MessageMetadata], known: Registry
) -> Example | None:
    conversation = result.conversation
    who = conversation.speaker(name)
    named = who.format.name if isinstance(who.format, SchemaFormat) else None
    schema = None if named is None else known.at_hand("schemas", named)
    system = conversation.system_prompt(who, result.specified_task, schema)
    view = [*viewpoint(conversation, result.messages, name, system=system)]
    # What is heard after a speaker's last line is answered by nothing.
    while view and not isinstance(view[-1], AIMessage):
        view.pop()
    front = sum(isinstance(message, SystemMessage) for message in view[:1])
    if view and isinstance(view[front], AIMessage):
        # As its model was asked; trainers want that somebody else begins.
        view.insert(front, HumanMessage(conversation.render_prompt(BEGIN)))
    learned = [_is_learned(message, lines) for message in view]
    if not any(learned):
        return None
    written: list[Line] = convert_to_openai_messages(view)
    for message, one, is_learned in zip(view, written, learned, strict=True):
        if isinstance(message, AIMessage) and not is_learned:
            one["weight"] = 0
    has_all = all(known.at_hand("tools", tool) for tool in who.tools)
    return Example(name, written, define_tools(conversation, known, who) if has_all else ())


def _is_learned(message: BaseMessage, lines: Mapping[str | None, MessageMetadata]) -> bool:
    about = lines.get(message.id) if isinstance(message, AIMessage) else None
    is_reply = isinstance(about, SpeakerReply) and about.source in _LEARNED
    return is_reply or isinstance(about, Reflection)


_LEARNED: Final = (Source.MODEL, Source.AGENT, Source.HUMAN)


def _openai(example: Example) -> Line:
    return {"messages": example.messages, **({"tools": example.tools} if example.tools else {})}


def _sharegpt(example: Example) -> Line:
    turns: list[dict[str, str]] = []
    for role, text in _turns(example.messages):
        before = turns[-1] if turns else {"from": "", "value": ""}
        if (before["from"] in _HEARD) != (role in _HEARD) or before["from"] in ("", "system"):
            turns.append({"from": role, "value": text})
        elif "function_call" in (role, before["from"]):
            # A call is JSON, beside which nothing can be said.
            turns[-1] = {"from": role, "value": text} if role == "function_call" else before
        else:
            # What a tool gave stays that, whatever else was heard then.
            from_ = before["from"] if role == "human" else role
            turns[-1] = {"from": from_, "value": f"{before['value']}\n\n{text}"}
    functions = [one["function"] for one in example.tools]
    # As text, since the arguments of each tool have another shape.
    tools = [one for one in functions if one["name"] != HAND_OFF]
    told = {"tools": json.dumps(tools, ensure_ascii=False)} if tools else {}
    return {"conversations": turns, **told}


_HEARD: Final = ("human", "observation")


def _turns(messages: Sequence[Line]) -> Iterator[tuple[str, str]]:
    handed: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in handed:
                yield "observation", message["content"]
            continue
        made = message.get("tool_calls", ())
        handed |= {call["id"] for call in made if call["function"]["name"] == HAND_OFF}
        # It has no place for text beside calls: who hands over is heard, who works is not.
        calls = [call["function"] for call in made if call["id"] not in handed]
        if calls:
            told = [
                {"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls
            ]
            yield (
                "function_call",
                json.dumps(told if told[1:] else told[0], ensure_ascii=False),
            )
        else:
            yield _ROLES[message["role"]], message["content"] or SILENCE


_ROLES: Final = {"system": "system", "user": "human", "assistant": "gpt"}

TRAINING: Final[Mapping[str, Callable[[Example], Line]]] = {
    "openai": _openai,
    "sharegpt": _sharegpt,
}
"""The forms in which an example is written."""


def models_of(result: StoredSession) -> list[str]:
    """Name the models that were called in a session that has ended."""
    return [] if result.outcome is None else sorted(result.outcome.usage)


def as_examples(
    result: StoredSession, form: str, speaker: str | None, registry: Registry, *, metadata: bool
) -> str:
    """Write a session's examples as JSON Lines, one object for each."""
    ended = result.outcome
    told = {
        "session": result.session_id,
        "reason": None if ended is None else ended.reason.value,
        "complete": None if ended is None else ended.complete,
        "models": models_of(result),
    }
    found = examples(result, speaker, registry)
    return "".join(json_line(written(one, form, told if metadata else None)) for one in found)


def written(example: Example, form: str, told: Line | None) -> Line:
    """Write an example in one of the forms, with what is known of its session beside it."""
    beside = {} if told is None else {"metadata": {**told, "speaker": example.speaker}}
    return TRAINING[form](example) | beside


def json_line(found: Line) -> str:
    """Write an object as one line that no program splits."""
    text = json.dumps(found, ensure_ascii=False)
    # Half a character, which no encoding has, stands there as JSON's escape.
    return escape_json(text.encode(errors="backslashreplace").decode()) + "\n"
