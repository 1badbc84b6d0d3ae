"""A session as a Markdown page, as JSON Lines, or as training examples. All functions are pure.

A training example is one speaker's view, in one of two formats that trainers read: OpenAI's, and
ShareGPT's as LLaMA-Factory and Axolotl read it. An example begins with a message that the speaker
heard, and ends with a message of the speaker.

The text of a message comes from a model or a user. The Markdown page puts it into a quotation from
which its own Markdown cannot escape. HTML is shown as source, because a reader would not see it
otherwise. Control characters are escaped.
"""

import json
import re
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
from markdown_it import MarkdownIt

from ...nodes.models.tool_binding import define_tools
from ...tools.registry.registry import Registry
from ..common.content import arrange_blocks, describe_content, standard_block
from ..common.sanitize import clean_page, escape_json, escape_markdown
from ..conversation.judges import HAND_OFF
from ..log.memory import memory
from ..log.messages import metadata, place_of, thought_text
from ..log.metadata import MessageMetadata, Reflection, Source, SpeakerReply, Speech, ToolCalls
from ..log.viewpoint import SILENCE, viewpoint
from ..prompts.prompts import BEGIN
from ..rules.outcome import Outcome
from ..show.page import read_lines
from ..show.page_data import Line
from ..speakers.formats import SchemaFormat
from .dumped_message import dump_message
from .session_row import title_of
from .stored_session import StoredSession, describe_later

JsonLine: TypeAlias = dict[str, Any]
"""One line of a JSON Lines file, or one message in it."""


@dataclass(frozen=True)
class Example:
    """The messages that one speaker saw and said."""

    speaker: str
    """The speaker's name."""
    messages: Sequence[JsonLine]
    """Messages in OpenAI's format, the system prompt first. A message of the speaker that must not
    be learned has the weight 0.
    """
    tools: Sequence[JsonLine] = ()
    """The definitions of the tools that the speaker's model may call, in OpenAI's format."""


def examples(
    result: StoredSession, speaker: str | None = None, registry: Registry | None = None
) -> list[Example]:
    """Return the training examples in a session.

    Args:
        result: The session.
        speaker: The speaker whose view is exported. If None, all speakers for whom a model has
            spoken.
        registry: The registered objects of the run. Tools that are not in it are not described.

    Returns:
        One example for each speaker with at least one message that can be learned: a reply of a
        model, an agent or a person. Fixed texts, replies of code, example messages of the prompt
        and memories of other sessions do not count.
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
    schema = None if named is None else known.find_object("schemas", named)
    system = conversation.system_prompt(who, result.specified_task, schema)
    view = [*viewpoint(conversation, result.messages, name, system=system)]
    # Messages after the speaker's last message have no answer to learn.
    while view and not isinstance(view[-1], AIMessage):
        view.pop()
    front = sum(isinstance(message, SystemMessage) for message in view[:1])
    if view and isinstance(view[front], AIMessage):
        # Trainers expect an example to begin with a message that the speaker heard. The model also
        # received this message.
        view.insert(front, HumanMessage(conversation.render_prompt(BEGIN)))
    # As in the prompts, a blank message is between two replies.
    for place in range(len(view) - 1, 0, -1):
        if isinstance(view[place], AIMessage) and isinstance(view[place - 1], AIMessage):
            view.insert(place, HumanMessage(SILENCE))
    learned = [_is_learned(message, lines) for message in view]
    if not any(learned):
        return None
    written: list[JsonLine] = convert_to_openai_messages(view)
    for message, one, is_learned in zip(view, written, learned, strict=True):
        if isinstance(message, AIMessage) and not is_learned:
            one["weight"] = 0
    has_all = all(known.find_object("tools", tool) for tool in who.tools)
    return Example(name, written, define_tools(conversation, known, who) if has_all else ())


def _is_learned(message: BaseMessage, lines: Mapping[str | None, MessageMetadata]) -> bool:
    about = lines.get(message.id) if isinstance(message, AIMessage) else None
    is_reply = isinstance(about, SpeakerReply) and about.source in _LEARNED
    return is_reply or isinstance(about, Reflection)


_LEARNED: Final = (Source.MODEL, Source.AGENT, Source.CONVERSATION, Source.HUMAN)


def _openai(example: Example) -> JsonLine:
    return {"messages": example.messages, **({"tools": example.tools} if example.tools else {})}


def _sharegpt(example: Example) -> JsonLine:
    turns: list[dict[str, str]] = []
    for role, text in _turns(example.messages):
        before = turns[-1] if turns else {"from": "", "value": ""}
        if (before["from"] in _HEARD) != (role in _HEARD) or before["from"] in ("", "system"):
            turns.append({"from": role, "value": text})
        elif "function_call" in (role, before["from"]):
            # A function call is JSON, which leaves no room for text.
            turns[-1] = {"from": role, "value": text} if role == "function_call" else before
        else:
            # A tool's result keeps its role, even if other messages are appended to it.
            from_ = before["from"] if role == "human" else role
            turns[-1] = {"from": from_, "value": f"{before['value']}\n\n{text}"}
    functions = [one["function"] for one in example.tools]
    # The definitions are written as a string, because each tool's arguments have another schema.
    tools = [one for one in functions if one["name"] != HAND_OFF]
    told = {"tools": json.dumps(tools, ensure_ascii=False)} if tools else {}
    return {"conversations": turns, **told}


_HEARD: Final = ("human", "observation")


def _turns(messages: Sequence[JsonLine]) -> Iterator[tuple[str, str]]:
    handed: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in handed:
                yield "observation", message["content"]
            continue
        made = message.get("tool_calls", ())
        handed |= {call["id"] for call in made if call["function"]["name"] == HAND_OFF}
        # The format has no place for text next to calls: keep the text of a hand-off, drop it for
        # other calls.
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
            yield _ROLES[message["role"]], _text(message["content"]) or SILENCE


def _text(content: str | Sequence[JsonLine]) -> str:
    """Return the text of content. The format has no place for files, which are described."""
    if isinstance(content, str):
        return content
    return describe_content(arrange_blocks([standard_block(one) for one in content]))


_ROLES: Final = {"system": "system", "user": "human", "assistant": "gpt"}

TRAINING: Final[Mapping[str, Callable[[Example], JsonLine]]] = {
    "openai": _openai,
    "sharegpt": _sharegpt,
}
"""The functions that format an example, by the name of the format."""


def models_of(result: StoredSession) -> list[str]:
    """Return the names of the models that were called in a session. Empty if it has not ended."""
    return [] if result.outcome is None else sorted(result.outcome.usage)


def as_examples(
    result: StoredSession, form: str, speaker: str | None, registry: Registry, *, metadata: bool
) -> str:
    """Return a session's examples as JSON Lines, one object for each example."""
    ended = result.outcome
    told = {
        "session": result.session_id,
        "reason": None if ended is None else ended.reason.value,
        "complete": None if ended is None else ended.complete,
        "models": models_of(result),
    }
    found = examples(result, speaker, registry)
    return "".join(
        json_line(format_example(one, form, told if metadata else None)) for one in found
    )


def format_example(example: Example, form: str, told: JsonLine | None) -> JsonLine:
    """Return an example in one of the formats, with the session's metadata if given."""
    beside = {} if told is None else {"metadata": {**told, "speaker": example.speaker}}
    return TRAINING[form](example) | beside


def json_line(found: JsonLine) -> str:
    """Return an object as one line of JSON, without characters at which programs split lines."""
    text = json.dumps(found, ensure_ascii=False)
    # A lone surrogate has no encoding; it stays JSON's escape.
    return escape_json(text.encode(errors="backslashreplace").decode()) + "\n"


def as_json_lines(result: StoredSession, speaker: str | None = None) -> str:
    """Return a session, or one speaker's memory, as JSON Lines, one object for each message."""
    in_memory = speaker is not None
    objects = (_make_object(one, in_memory=in_memory) for one in _log(result, speaker))
    return "".join(map(json_line, objects))


def _make_object(message: BaseMessage, *, in_memory: bool) -> JsonLine:
    says = dump_message(message).model_dump(mode="json", exclude={"metadata", "message_id"})
    about = metadata(message).model_dump(mode="json", exclude={"since", "refusal", "thought"})
    if (thought := thought_text(metadata(message))) and not in_memory:
        # No speaker remembers thoughts.
        about["thought"] = thought
    first = {"id": says.pop("id"), "kind": about.pop("kind"), "speaker": about.pop("speaker")}
    return first | {"text": says.pop("text")} | about | says


def as_markdown(result: StoredSession, speaker: str | None = None) -> str:
    """Return a session, or one speaker's memory, as a Markdown page."""
    parts = [f"# {escape_markdown(title_of(result.conversation))}"]
    if speaker is not None:
        parts.append(f"The memory of {escape_markdown(speaker)}.")
    if result.specified_task:
        parts += ["**Task:**", _quote(result.specified_task)]
    is_memory = speaker is not None
    for message, line in read_lines(
        _log(result, speaker), result.conversation.names, in_memory=is_memory
    ):
        # The previous message shows the code already.
        if line.kind != "code" and (is_memory or line.kind != "told"):
            parts += _paragraphs(message, line)
    parts += ["---", *_end(result.outcome)]
    if not is_memory:
        later = describe_later(result.messages, result.later_verdicts)
        parts += map(escape_markdown, later)
    return clean_page("\n\n".join(parts)) + "\n"


def _log(result: StoredSession, speaker: str | None) -> Sequence[BaseMessage]:
    return result.messages if speaker is None else memory(result.messages, speaker)


def _end(outcome: Outcome | None) -> Iterator[str]:
    if outcome is None:
        yield "Not finished."
        return
    yield f"**{escape_markdown(str(outcome))}**"
    if outcome.explanations[1:]:
        yield f"Also: {escape_markdown('; '.join(outcome.explanations[1:]))}."
    yield from map(escape_markdown, outcome.warnings)


def _paragraphs(message: BaseMessage, line: Line) -> Iterator[str]:
    """Yield the paragraphs of one message."""
    if line.kind == "note":
        yield f"*{escape_markdown(line.text)}*"
        yield from (_fence(fold.text) for fold in line.folds if fold.kind == "inner")
        return
    if line.kind != "result":
        yield f"## {escape_markdown(line.name)} ({escape_markdown(place_of(message))})"
    thoughts = [fold for fold in line.folds if fold.kind == "thought"]
    for fold in thoughts:
        yield f"*{fold.title}:*"
        yield _quote(fold.text)
    yield from (f"*{escape_markdown(remark)}*" for remark in line.remarks)
    if line.text or line.kind not in ("calls", "result"):
        yield _quote(message.text)
    yield from (f"*[{escape_markdown(one.description)}]*" for one in line.files)
    for fold in line.folds:
        if fold.kind in ("call", "result"):
            yield f"*{escape_markdown(fold.title)}:*"
        # The text of a result already contains its parsed values.
        if fold.kind != "thought" and not (fold.kind == "parsed" and line.kind == "result"):
            yield _fence(fold.text, "json" if fold.is_json else "text")


def _quote(text: str) -> str:
    """Return text as a quotation whose Markdown cannot leave it."""
    text = text.strip("\r\n")
    if not text.strip():
        return "> *(empty message)*"
    return _mark_lines(text if _is_self_contained(text) else _fence(text))


def _mark_lines(text: str) -> str:
    return "\n".join(f"> {part}".rstrip(" ") for part in _lines(text))


def _is_self_contained(text: str) -> bool:
    """Return whether a text, as Markdown, shows all its content and defines no link references."""
    found: dict[str, Any] = {}
    blocks = _MARKDOWN.parse(_mark_lines(text), found)
    inside = [token for block in blocks for token in (block, *(block.children or ()))]
    return not found.get("references") and not any(
        token.type in ("html_block", "html_inline") for token in inside
    )


_MARKDOWN = MarkdownIt("commonmark")


def _fence(text: str, kind: str = "text") -> str:
    """Return text as a code block, with fences longer than any in the text."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{kind}", *_lines(text), fence])


def _lines(text: str) -> list[str]:
    """Split text at Markdown's line ends."""
    return re.split(r"\r\n|\r|\n", text)
