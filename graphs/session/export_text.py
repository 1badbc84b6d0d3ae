"""A session as a Markdown page for readers, or as JSON Lines for programs. All functions are pure.

The text of a message comes from a model or a user. The Markdown page puts it into a quotation from
which its own Markdown cannot escape. HTML is shown as source, because a reader would not see it
otherwise. Control characters are escaped.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from markdown_it import MarkdownIt

from ..common.sanitize import clean_page, escape_json, escape_markdown
from ..log.memory import memory
from ..log.messages import metadata, place_of, thought_text
from ..rules.outcome import Outcome
from ..show.page import read_lines
from ..show.page_data import Line
from .dumped_message import dumped
from .later_verdicts import describe_later
from .session_row import title_of
from .stored_session import StoredSession


def as_json_lines(result: StoredSession, speaker: str | None = None) -> str:
    """Return a session, or one speaker's memory, as JSON Lines, one object for each message."""
    told = speaker is not None
    objects = (
        json.dumps(_object(one, told=told), ensure_ascii=False) for one in _log(result, speaker)
    )
    return "".join(escape_json(one) + "\n" for one in objects)


def _object(message: BaseMessage, *, told: bool) -> dict[str, Any]:
    says = dumped(message).model_dump(mode="json", exclude={"metadata", "message_id"})
    about = metadata(message).model_dump(mode="json", exclude={"since", "refusal", "thought"})
    if (thought := thought_text(metadata(message))) and not told:
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
        parts += ["**Task:**", _quoted(result.specified_task)]
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
        yield from (_fenced(fold.text) for fold in line.folds if fold.kind == "inner")
        return
    if line.kind != "result":
        yield f"## {escape_markdown(line.name)} ({escape_markdown(place_of(message))})"
    thoughts = [fold for fold in line.folds if fold.kind == "thought"]
    for fold in thoughts:
        yield f"*{fold.title}:*"
        yield _quoted(fold.text)
    yield from (f"*{escape_markdown(remark)}*" for remark in line.remarks)
    if line.text or line.kind not in ("calls", "result"):
        yield _quoted(message.text)
    yield from (f"*[{escape_markdown(one.description)}]*" for one in line.files)
    for fold in line.folds:
        if fold.kind in ("call", "result"):
            yield f"*{escape_markdown(fold.title)}:*"
        # The text of a result already contains its parsed values.
        if fold.kind != "thought" and not (fold.kind == "parsed" and line.kind == "result"):
            yield _fenced(fold.text, "json" if fold.is_json else "text")


def _quoted(text: str) -> str:
    """Return text as a quotation whose Markdown cannot leave it."""
    text = text.strip("\r\n")
    if not text.strip():
        return "> *(empty message)*"
    return _behind_marks(text if _is_self_contained(text) else _fenced(text))


def _behind_marks(text: str) -> str:
    return "\n".join(f"> {part}".rstrip(" ") for part in _lines(text))


def _is_self_contained(text: str) -> bool:
    """Return whether a text, as Markdown, shows all its content and defines no link references."""
    found: dict[str, Any] = {}
    blocks = _MARKDOWN.parse(_behind_marks(text), found)
    inside = [token for block in blocks for token in (block, *(block.children or ()))]
    return not found.get("references") and not any(
        token.type in ("html_block", "html_inline") for token in inside
    )


_MARKDOWN = MarkdownIt("commonmark")


def _fenced(text: str, kind: str = "text") -> str:
    """Return text as a code block, with fences longer than any in the text."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{kind}", *_lines(text), fence])


def _lines(text: str) -> list[str]:
    """Split text at Markdown's line ends."""
    return re.split(r"\r\n|\r|\n", text)
