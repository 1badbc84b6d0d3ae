"""A session written down: as a Markdown page to read, as JSON Lines for programs. Pure functions.

What a message says is a model's or a user's text: in a page it stands in a quotation that it can't
leave, what is HTML in it, which a reader would not see, is shown as it is written, and control
characters are escaped.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from markdown_it import MarkdownIt

from ...common.sanitize import clean_page, dump_exact_json, escaped, in_markdown
from ...log.messages import metadata, place_of
from ...log.metadata import (
    CallOutcome,
    MessageMetadata,
    ToolResult,
    parsed_of,
    thought_text,
)
from ...log.remembered import memory
from ...page.notes import author, came, cut_off, note, reads, remark
from ...rules.outcome import Outcome
from ..dumps.lines import dumped
from ..session import title_of
from ..stored_session import StoredSession


def as_json_lines(result: StoredSession, speaker: str | None = None) -> str:
    """Write a session as JSON Lines, one object a message."""
    told = speaker is not None
    objects = (
        json.dumps(_object(one, told=told), ensure_ascii=False) for one in _log(result, speaker)
    )
    return "".join(escaped(one) + "\n" for one in objects)


def _object(message: BaseMessage, *, told: bool) -> dict[str, Any]:
    says = dumped(message).model_dump(mode="json", exclude={"line", "message_id"})
    about = metadata(message).model_dump(mode="json", exclude={"since", "refusal", "thought"})
    if (thought := thought_text(metadata(message))) and not told:
        # No speaker remembers what was thought.
        about["thought"] = thought
    first = {"id": says.pop("id"), "kind": about.pop("kind"), "speaker": about.pop("speaker")}
    return first | {"text": says.pop("text")} | about | says


def as_markdown(result: StoredSession, speaker: str | None = None) -> str:
    """Write a session as a Markdown page."""
    parts = [f"# {in_markdown(title_of(result.conversation))}"]
    if speaker is not None:
        parts.append(f"What {in_markdown(speaker)} remembers.")
    if result.specified_task:
        parts += ["**Task:**", _quoted(result.specified_task)]
    called: dict[str, str] = {}
    for message in _log(result, speaker):
        parts += _message(message, metadata(message), called, told=speaker is not None)
    parts += ["---", *_end(result.outcome)]
    return clean_page("\n\n".join(parts)) + "\n"


def _log(result: StoredSession, speaker: str | None) -> Sequence[BaseMessage]:
    return result.messages if speaker is None else memory(result.messages, speaker)


def _end(outcome: Outcome | None) -> Iterator[str]:
    if outcome is None:
        yield "Not finished."
        return
    yield f"**{in_markdown(str(outcome))}**"
    if outcome.explanations[1:]:
        yield f"Also: {in_markdown('; '.join(outcome.explanations[1:]))}."
    yield from map(in_markdown, outcome.warnings)


def _message(
    message: BaseMessage, about: MessageMetadata, called: dict[str, str], *, told: bool
) -> Iterator[str]:
    """Write one message down, in paragraphs; none where only its speaker's page shows it."""
    if (beside := note(about)) is not None:
        yield f"*{in_markdown(beside)}*"
    elif isinstance(about, CallOutcome):
        # What hooks have seen first stands there once more as what they made of it.
        yield from _result(message, about, called) if isinstance(about, ToolResult) else ()
    elif told or about.on_page:
        yield f"## {in_markdown(author(about))} ({in_markdown(place_of(message))})"
        if (thought := thought_text(about)) and not told:
            yield "*Thought, which no other speaker hears:*"
            yield _quoted(thought)
        yield from _speech(message, about)
        yield from _calls(message, called)


def _speech(message: BaseMessage, about: MessageMetadata) -> Iterator[str]:
    for remarked in (remark(about), cut_off(about)):
        if remarked is not None:
            yield f"*{in_markdown(remarked)}*"
    if message.text.strip() or not about.has_calls:
        yield _quoted(message.text)
    if reads(about):
        yield _fenced(json.dumps(parsed_of(about), ensure_ascii=False, indent=2), "json")


def _calls(message: BaseMessage, called: dict[str, str]) -> Iterator[str]:
    says = dumped(message)
    for call in says.tool_calls:
        called[str(call.id)] = call.name
        yield f"*Calls {in_markdown(call.name)}:*"
        yield _fenced(dump_exact_json(call.args, indent=2), "json")
    for broken in says.invalid_tool_calls:
        name = broken.name or "a tool"
        called[str(broken.id)] = name
        yield f"*Calls {in_markdown(name)} with what is not JSON:*"
        yield _fenced(broken.args or "")


def _result(message: BaseMessage, about: CallOutcome, called: Mapping[str, str]) -> Iterator[str]:
    says = dumped(message)
    name = called.get(str(says.call_id), "The tool")
    yield f"*{came(in_markdown(name), about, failed=says.failed)}:*"
    yield _fenced(says.text)


def _quoted(text: str) -> str:
    """Write text as a quotation, whose Markdown ends where it ends."""
    text = text.strip("\r\n")
    if not text.strip():
        return "> *(empty message)*"
    return _behind_marks(text if _is_self_contained(text) else _fenced(text))


def _behind_marks(text: str) -> str:
    return "\n".join(f"> {part}".rstrip(" ") for part in _lines(text))


def _is_self_contained(text: str) -> bool:
    """Whether a text, as Markdown, shows all that it says, and names nothing for other texts."""
    found: dict[str, Any] = {}
    blocks = _MARKDOWN.parse(_behind_marks(text), found)
    inside = [token for block in blocks for token in (block, *(block.children or ()))]
    return not found.get("references") and not any(
        token.type in ("html_block", "html_inline") for token in inside
    )


_MARKDOWN = MarkdownIt("commonmark")


def _fenced(text: str, kind: str = "text") -> str:
    """Write text as code, between fences that are longer than any in it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{kind}", *_lines(text), fence])


def _lines(text: str) -> list[str]:
    """Split text where Markdown does."""
    return re.split(r"\r\n|\r|\n", text)
