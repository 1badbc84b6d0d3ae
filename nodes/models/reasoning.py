"""The thought in a model's answer, told from what it says. Pure functions.

Models give it within the text, in parts of the content, or in fields beside it.
"""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from langchain_core.messages import AIMessage

from ...graphs.log.messages import storable
from ...graphs.log.thoughts import Reasoning, Thought
from ...graphs.text.thoughts import split
from .storable_json import why_unstorable

_FIELD: Final = re.compile(r"reasoning|thinking|thought")
_BLOCKS: Final = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_TEXTS: Final = ("thinking", "reasoning", "reasoning_content", "text", "summary", "content")
_DEEPEST: Final = 6
_PIECES: Final = ("text", "summary", "data", "thinking")
_METADATA: Final = ("model_provider", "output_version")


def apart(answer: AIMessage, text: str) -> tuple[str, Thought | None]:
    """Separate what a model says from what it thinks.

    Control tokens at the end are neither.
    """
    read, blocks, fields = split(text), _blocks(answer), _fields(answer)
    if read.speech == read.text and not blocks and not fields:
        return read.text, None
    about = answer.response_metadata if blocks else {}
    given = {
        "text": read.text if read.speech != read.text else None,
        "blocks": blocks,
        "fields": fields,
        "metadata": {name: about[name] for name in _METADATA if name in about},
    }
    thought = Thought(
        text="\n\n".join(filter(None, (beside(answer).strip(), read.thought))),
        is_unopened=read.is_unopened,
        given=None if why_unstorable(given) else Reasoning.model_validate(given),
    )
    return read.speech, thought


def beside(answer: AIMessage) -> str:
    """Give what stands beside the text of an answer, or of a piece of it, as a thought."""
    found = _text(_blocks(answer)) or next(filter(None, map(_text, _fields(answer).values())), "")
    return storable(found)


def with_thought(message: AIMessage, thought: Thought) -> AIMessage:
    """Show a message to the model that wrote it, with its thought as it was given."""
    given = thought.given
    if given is None:
        return message
    text: str = message.text
    if given.text is not None:
        said = split(given.text).speech.strip()
        is_whole = bool(said) and text.endswith(said)
        front = given.text if is_whole or not said else f"<think>\n{thought.text}\n</think>\n\n"
        text = f"{text.removesuffix(said)}{front}" if is_whole else f"{front}{text}"
    spoken = [{"type": "text", "text": text}] if text else []
    return message.model_copy(
        update={
            "content": [*given.blocks, *spoken] if given.blocks else text,
            "additional_kwargs": {**given.fields},
            "response_metadata": {**given.metadata},
        }
    )


def _blocks(answer: AIMessage) -> list[dict[str, Any]]:
    parts = answer.content if isinstance(answer.content, list) else []
    return [one for one in parts if isinstance(one, dict) and one.get("type") in _BLOCKS]


def _fields(answer: AIMessage) -> dict[str, Any]:
    fields = answer.additional_kwargs
    found = {name: fields[name] for name in fields if _FIELD.search(name) and fields[name]}
    return {name: _joined(given) for name, given in found.items()}


def _joined(found: object) -> object:
    """A field as it was sent; of a list that came in pieces, what belongs together is joined."""
    if not isinstance(found, list) or not all(isinstance(piece, list) for piece in found):
        return found
    whole: list[Any] = []
    for part in chain.from_iterable(found):
        last = whole[-1] if whole else None
        if not isinstance(part, Mapping) or not isinstance(last, dict) or not _go_on(last, part):
            whole.append(dict(part) if isinstance(part, Mapping) else part)
            continue
        for name, value in part.items():
            before = last.get(name)
            is_piece = name in _PIECES and isinstance(before, str) and isinstance(value, str)
            if value is not None:
                last[name] = f"{before}{value}" if is_piece else value
    return whole


def _go_on(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return all(last.get(name) == part.get(name) for name in ("type", "index"))


def _text(found: object, depth: int = 0) -> str:
    """The text in a part of an answer, whose form differs from provider to provider."""
    if isinstance(found, str):
        return found
    if depth == _DEEPEST:
        return ""
    if isinstance(found, list):
        parts = [_text(one, depth + 1) for one in found]
        return ("\n\n" if any(map(_is_paragraph, found)) else "").join(filter(None, parts))
    if isinstance(found, Mapping):
        texts = (_text(found[name], depth + 1) for name in _TEXTS if name in found)
        return next(filter(None, texts), "")
    return ""


def _is_paragraph(part: object) -> bool:
    """Whether it is a part of its own, and no piece of one."""
    return isinstance(part, Mapping) and part.get("type") == "summary_text"
