"""Reading a reply by its speaker's format: text in, plain values or a reason out.

Pure functions. Where marks stand is in `graphs.log.formats.marks`, fenced code in
`graphs.text.fences`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import BaseModel, JsonValue, ValidationError

from ...common.data import Data
from ...common.validation import explained
from ...speakers.format_requests import (
    describe_format,
    describe_repeated_marks,
    describe_schema_error,
    describe_unclosed_block,
)
from ...speakers.formats import (
    BlockFormat,
    CodeFormat,
    Format,
    LabelledFormat,
    ParsedBlock,
    ParseStatus,
    SchemaFormat,
)
from ...speakers.schemas import written_json
from ...speakers.structured_answers import read_structured
from ...text.fences import fences
from ...text.json_objects import UnreadableJsonError
from ..messages import storable
from .marks import read_marks
from .mending import begins_anew, mended

_BREAK: Final = r"\r?\n"

_INTEGERS: Final = range(-(2**63), 2**64)
"""The whole numbers that a session can store."""


class Parsed(Data):
    """What a reply says by its speaker's format."""

    value: JsonValue = None
    """It as plain values. None: it could not be read. Beside a problem only blocks are given, each
    with its status."""
    problem: str | None = None
    """What is wrong with it, in a sentence for the speaker. None: nothing."""
    text: str | None = None
    """It with the marks that were missing; where its first one was, that is a problem, too. None:
    none were, or it can't be told where they belong."""


def parse(
    format: Format,  # noqa: A002
    text: str,
    *,
    stop: Sequence[str] = (),
    schema: type[BaseModel] | None = None,
    name: str = "",
) -> Parsed:
    """Read a reply by a format; its speaker's own name may stand in front of its marks."""
    text = storable(text)
    match format:
        case LabelledFormat():
            return _marked(format, text, stop, name)
        case BlockFormat():
            return _listed(format, list(_blocks(format, text, stop)))
        case CodeFormat():
            return _listed(format, list(_code(format, text, stop)))
        case SchemaFormat():
            if schema is None:
                raise ValueError(f"schema: give the pydantic model that {format.name!r} stands for")
            return _fields(schema, text)


def _marked(format: LabelledFormat, text: str, stop: Sequence[str], name: str) -> Parsed:  # noqa: A002
    if begins_anew(format, text):
        return Parsed(problem=describe_repeated_marks(format))
    for whole in (text, *_ended(text, format.end, stop)):
        found = read_marks(format.lines, format.end, whole)
        if found is not None:
            return Parsed(value=dict(zip(format.lines, found, strict=True)))
    made = mended(format, text, name)
    if made is None or made.is_opened:
        return Parsed(problem=describe_format(format), text=made and made.text)
    return _marked(format, made.text, (), name).model_copy(update={"text": made.text})


def _ended(text: str, end: str | None, stop: Sequence[str]) -> Iterator[str]:
    """The reply with the end mark at which the model may have stopped."""
    for one in filter(str.strip, stop):
        if end is not None and end in one:
            yield text + one
        elif end is not None and one in end:
            yield text + end[end.index(one) :]


def _listed(format: BlockFormat | CodeFormat, blocks: list[ParsedBlock]) -> Parsed:  # noqa: A002
    problem = None
    if any(block.status is ParseStatus.BROKEN for block in blocks):
        problem = describe_unclosed_block(format)
    elif format.required and not any(block.status is ParseStatus.VALID for block in blocks):
        problem = describe_format(format)
    return Parsed(value=[block.model_dump(mode="json") for block in blocks], problem=problem)


def _blocks(format: BlockFormat, text: str, stop: Sequence[str]) -> Iterator[ParsedBlock]:  # noqa: A002
    begin, end = (mark.replace("\r\n", "\n") for mark in (format.begin, format.end))
    opens, closes = re.compile(_pattern(begin)), re.compile(_pattern(end, at_end=True))
    # In an empty block the line break after the begin is the one before the end, too.
    shared = begin.endswith("\n") and end.startswith("\n")
    closes_at_once = re.compile(_pattern(end[1:], at_end=True)) if shared else closes
    start = 0
    while opened := opens.search(text, start):
        at = opened.end()
        closed = closes_at_once.match(text, at) or closes.search(text, at)
        action = text[at : closed.start()] if closed else _stopped(text[at:], end, stop)
        yield ParsedBlock(
            thought=text[start : opened.start()],
            action=text[at:] if action is None else action,
            tool_type=format.tool_type,
            status=ParseStatus.BROKEN if action is None else ParseStatus.VALID,
        )
        start = closed.end() if closed else len(text)
    yield from _prose(text[start:])


def _pattern(mark: str, *, at_end: bool = False) -> str:
    """A pattern for a mark, whose line breaks may be those of any system.

    Where it may stand at the end of a text, that counts as its last line break.
    """
    parts = [re.escape(part) for part in mark.split("\n")]
    if at_end and parts[-1] == "":
        return _BREAK.join(parts[:-1]) + rf"(?:{_BREAK}|\Z)"
    return _BREAK.join(parts)


def _stopped(rest: str, end: str, stop: Sequence[str]) -> str | None:
    """What stands in the last block where the model stopped at its end. None: it did not."""
    for text in stop:
        if text.startswith(end):
            return rest
        before, found, _ = end.partition(text) if text.strip() else ("", "", "")
        if found and rest.endswith(before):
            return rest.removesuffix(before)
    return None


def _code(format: CodeFormat, text: str, stop: Sequence[str]) -> Iterator[ParsedBlock]:  # noqa: A002
    wanted = {language.casefold() for language in format.languages}
    lines, found = fences(text)
    start = 0
    for fence in found:
        if wanted and fence.language not in wanted:
            continue
        is_stopped = fence.behind == len(lines) and fence.is_closed_by(stop)
        yield ParsedBlock(
            thought="".join(lines[start : fence.first]),
            action=fence.content,
            tool_type=fence.language,
            status=ParseStatus.VALID if fence.is_closed or is_stopped else ParseStatus.BROKEN,
        )
        start = fence.behind
    yield from _prose("".join(lines[start:]))


def _prose(text: str) -> Iterator[ParsedBlock]:
    if text.strip():
        yield ParsedBlock(thought=text)


def _fields(schema: type[BaseModel], text: str) -> Parsed:
    try:
        found = read_structured(schema, text)
    except ValidationError as error:
        return Parsed(problem=describe_schema_error(explained(error, schema)))
    except UnreadableJsonError as error:
        return Parsed(problem=describe_schema_error(str(error)))
    written = written_json(found)
    try:
        # What JSON does not have, such as infinity, is none.
        return Parsed(value=json.loads(written, parse_int=_storable, parse_constant=_no_number))
    except ValueError as error:
        return Parsed(problem=describe_schema_error(str(error)))


def _no_number(name: str) -> None:
    """What stands for a number that JSON does not have."""


def _storable(digits: str) -> int:
    number = int(digits)
    if number not in _INTEGERS:
        raise ValueError(f"{digits[:20]}… is too large a number: write it as text")
    return number
