"""Parsing of a reply by its speaker's format: a text in, plain values or a problem out.

Pure functions. Faults that need no model are repaired first, such as a label before the first mark.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from pydantic import BaseModel, JsonValue, ValidationError

from ..common.data import Data
from ..common.validation import explain_error
from ..conversation.conversation import Conversation
from ..conversation.sandbox import Language
from ..speakers.formats import (
    EMPHASIS,
    BlockFormat,
    CodeFormat,
    Format,
    LabelledFormat,
    ParsedBlock,
    ParseStatus,
    SchemaFormat,
    describe_format,
    describe_repeated_marks,
    describe_schema_error,
    describe_unclosed_block,
    normalize_mark,
    write_schema_json,
)
from ..speakers.speaker import Speaker
from ..speakers.structured_answers import read_structured
from ..text.similarity import remark_places
from ..text.structures import Fence, UnreadableJsonError, fences, prose_places
from .marks import begins, end_of, length_of, read_marks
from .messages import storable

NONE: Final = "None"
"""The text that is added after an optional mark if the speaker left out this mark."""

_POINTS = ".!?。！？"  # noqa: RUF001
_COLON = r"[^\S\r\n]*[:：]"  # noqa: RUF001
_LINE_BREAK = "\n"
_ITEM = re.compile(r"[ \t]*(?:[-+•–]|\d{1,2}[.)])[ \t]+")  # noqa: RUF001
"""The beginning of a list item."""


class Mended(NamedTuple):
    """A message that was repaired to fit its speaker's format."""

    text: str
    """The text, with the missing marks added."""
    is_opened: bool
    """Whether the first mark was missing, too, or was not at the beginning."""


def mend(marks: LabelledFormat, text: str, name: str = "") -> Mended | None:
    """Return a speaker's message with its missing marks added, or None if it can't be repaired."""
    bare, label = text.lstrip(), f"{name}:"
    first = bare.partition("\n")[0]
    if name and begins(first, label):
        bare = bare[length_of(label, first)[0] :].lstrip()
    for given in dict.fromkeys((text, bare)):
        whole = _whole(marks, given)
        if whole is not None:
            return Mended(whole, is_opened=False)
    opened = _move_first_mark(marks, bare)
    whole = None if opened is None else _whole(marks, opened)
    return None if whole is None else Mended(whole, is_opened=True)


def _lines_of(mark: str, text: str) -> list[tuple[int, str]]:
    """Return the lines that begin with a mark, each with its index. Code contains none."""
    return [one for one in prose_places(text) if begins(one[1], mark)]


def _whole(marks: LabelledFormat, text: str) -> str | None:
    """Add the missing parts of a message, except its first mark. None if this is impossible."""
    if read_marks(marks.lines, marks.end, text) is None:
        text = _split_at_marks(marks, _drop_list_markers(marks, text))
        text = text if marks.end is None else _with_end_mark(marks.end, text)
        text = _with_optional(marks, text)
    return text if read_marks(marks.lines, marks.end, text) is not None else None


def _drop_list_markers(marks: LabelledFormat, text: str) -> str:
    """Remove the list marker before a mark, as in "1. Input:", if no line begins with the mark."""
    missing = [mark for mark in marks.texts if not _lines_of(mark, text)]
    for start, one in reversed(prose_places(text)):
        item = _ITEM.match(one)
        if item is not None and any(begins(one[item.end() :], mark) for mark in missing):
            text = f"{text[:start]}{text[start + item.end() :]}"
    return text


def _split_at_marks(marks: LabelledFormat, text: str) -> str:
    """Return a message in which each mark begins a line."""
    if all(_lines_of(mark, text) for mark in marks.lines[1:]):
        return text
    # Within a line, a mark must be written exactly. Otherwise it is a word like any other.
    written = "|".join(re.escape(mark).replace(":", _COLON) for mark in marks.lines)
    gap = re.compile(rf"(?<=\S)[ \t]+(?=[{re.escape(EMPHASIS)}]*(?:{written}))")
    for start, one in reversed(prose_places(text)):
        text = f"{text[:start]}{gap.sub(_LINE_BREAK, one)}{text[start + len(one) :]}"
    return text


def _with_optional(marks: LabelledFormat, text: str) -> str:
    """Return a message with the optional lines that were missing."""
    behind: str | None = None
    for mark in reversed(marks.lines):
        if mark in marks.optional and not _lines_of(mark, text):
            end = None if marks.end is None else end_of(marks.end, text)
            places = [place for place, _ in _lines_of(behind, text)] if behind else []
            place = places[0] if places else len(text) if end is None else end[0]
            line = f"{text[:place].rstrip()}\n{mark} {NONE}"
            text = f"{line}\n{text[place:].lstrip()}".rstrip()
        behind = mark
    return text


def _move_first_mark(marks: LabelledFormat, text: str) -> str | None:
    """Return a message with its first mark at the beginning, moved there if it is further down."""
    first, text = marks.lines[0], text.strip()
    found = _lines_of(first, text)
    if not text or len(found) > 1 or any(begins(text, mark) for mark in marks.lines[1:]):
        return None
    for start, one in found:
        text = f"{text[:start]}{text[start + length_of(first, one)[0] :].lstrip()}"
    # A fence must begin on a new line.
    between = "\n" if text.startswith(("```", "~~~")) else " "
    return f"{first}{between}{text}"


def _with_end_mark(end: str, text: str) -> str:
    """Return a message with its end mark."""
    if end_of(end, text) is not None:
        return text
    bare = end.rstrip(_POINTS)
    place = end_of(bare, text.rstrip(f"{EMPHASIS}{_POINTS} \t\r\n")) if bare else None
    before = "" if place is None else text[: place[0]].rstrip(" \t")
    # In "I wait for the next request" the words are not a mark.
    if place is not None and (not before or before[-1] in f"\n{_POINTS}"):
        return f"{text[: place[0]]}{end}"
    return f"{text.rstrip()}\n{end}"


def own_words(speaker: Speaker, text: str, parsed: JsonValue) -> str:
    """Return a speaker's own words in a message: the text without marks, or the JSON values.

    The text after an optional mark that the speaker left out does not count.
    """
    if isinstance(speaker.format, SchemaFormat):
        return text if parsed is None else "\n".join(_values(parsed))
    marks = speaker.marks
    if marks is None:
        return text
    values = (
        [*map(str, parsed.values())]
        if isinstance(parsed, dict)
        else read_marks(marks.lines, marks.end, text)
    )
    if not values:
        # The marks can't be parsed, so the lines are read without them.
        values = []
        for line in text.splitlines():
            mark = next((mark for mark in marks.texts if begins(line, mark)), None)
            values.append(line if mark is None else line[length_of(mark, line)[0] :].strip())
    added = normalize_mark(NONE)
    return "\n".join(
        [one for one in values if not (begins(one, NONE) and normalize_mark(one) == added)]
    )


def _values(found: JsonValue) -> Iterator[str]:
    if not isinstance(found, dict | list):
        yield str(found)
        return
    for one in found.values() if isinstance(found, dict) else found:
        yield from _values(one)


def drop_remarks(speaker: Speaker, text: str, request: str, *, announced: bool) -> str:
    """Return a message without the sentences that repeat the request to rewrite the message.

    Marks and code are kept.

    Args:
        speaker: The message's speaker.
        text: The text of the message.
        request: The text that requested the message again.
        announced: Whether announcements such as "Here is my new message:" are removed, too.
    """
    kept, at = list[str](), 0
    for start, end in _passages(text, speaker.marks.lines if speaker.marks else ()):
        for first, behind in remark_places(text[start:end], request, announced=announced):
            kept.append(text[at : start + first])
            at = start + behind
    return "".join([*kept, text[at:]]).strip() if kept else text


def _passages(text: str, marks: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each passage of prose.

    A passage ends before code and before a mark.
    """
    begun, end = 0, 0
    for start, line in prose_places(text):
        mark = next((mark for mark in marks if begins(line, mark)), None)
        if mark is not None or start != end:
            yield begun, end
            begun = start if mark is None else start + length_of(mark, line)[0]
        end = start + len(line)
    yield begun, end


_BREAK: Final = r"\r?\n"

_INTEGERS: Final = range(-(2**63), 2**64)
"""The integers that a session can store."""


class Parsed(Data):
    """The content of a reply, parsed by its speaker's format."""

    value: JsonValue = None
    """The content as plain values. None if it could not be parsed. A format of blocks returns its
    blocks even if there is a problem, each with its status.
    """
    problem: str | None = None
    """The problem, as a sentence for the speaker. None if there is none."""
    text: str | None = None
    """The repaired text: with the missing marks added, or without the prose around its JSON. None
    if no repair was needed, or if the text can't be repaired. If the first mark was missing,
    `problem` is set, too.
    """


def parse(
    format: Format,  # noqa: A002
    text: str,
    *,
    stop: Sequence[str] = (),
    schema: type[BaseModel] | None = None,
    name: str = "",
) -> Parsed:
    """Parse a reply according to its speaker's format.

    The speaker's name may come before the marks, as a label.
    """
    text = storable(text)
    match format:
        case LabelledFormat():
            return _parse_marks(format, text, stop, name)
        case BlockFormat():
            return _check_blocks(format, list(_blocks(format, text, stop)))
        case CodeFormat():
            return _check_blocks(format, list(_code(format, text, stop)))
        case SchemaFormat():
            if schema is None:
                raise ValueError(f"schema: is missing; pass the model named {format.name!r}")
            return _fields(schema, text)


def _parse_marks(format: LabelledFormat, text: str, stop: Sequence[str], name: str) -> Parsed:  # noqa: A002
    # A message with two instructions contains its first mark twice.
    if len(format.lines) > 1 and len(_lines_of(format.lines[0], text)) > 1:
        return Parsed(problem=describe_repeated_marks(format))
    for whole in (text, *_complete(text, format.end, stop)):
        found = read_marks(format.lines, format.end, whole)
        if found is not None:
            return Parsed(value=dict(zip(format.lines, found, strict=True)))
    made = mend(format, text, name)
    if made is None or made.is_opened:
        return Parsed(problem=describe_format(format), text=made and made.text)
    return _parse_marks(format, made.text, (), name).model_copy(update={"text": made.text})


def _complete(text: str, end: str | None, stop: Sequence[str]) -> Iterator[str]:
    """Yield the reply with its end mark added, for each stop text that may have cut it off."""
    for one in filter(str.strip, stop):
        if end is not None and end in one:
            yield text + one
        elif end is not None and one in end:
            yield text + end[end.index(one) :]


def _check_blocks(format: BlockFormat | CodeFormat, blocks: list[ParsedBlock]) -> Parsed:  # noqa: A002
    problem = None
    if any(block.status is ParseStatus.BROKEN for block in blocks):
        problem = describe_unclosed_block(format)
    elif format.required and not any(block.status is ParseStatus.VALID for block in blocks):
        problem = describe_format(format)
    return Parsed(value=[block.model_dump(mode="json") for block in blocks], problem=problem)


def _blocks(format: BlockFormat, text: str, stop: Sequence[str]) -> Iterator[ParsedBlock]:  # noqa: A002
    begin, end = (mark.replace("\r\n", "\n") for mark in (format.begin, format.end))
    opens, closes = re.compile(_pattern(begin)), re.compile(_pattern(end, at_end=True))
    # In an empty block, the line break after the begin mark is also the one before the end mark.
    shared = begin.endswith("\n") and end.startswith("\n")
    closes_at_once = re.compile(_pattern(end[1:], at_end=True)) if shared else closes
    start = 0
    while opened := opens.search(text, start):
        at = opened.end()
        closed = closes_at_once.match(text, at) or closes.search(text, at)
        action = text[at : closed.start()] if closed else _find_stopped(text[at:], end, stop)
        yield ParsedBlock(
            thought=text[start : opened.start()],
            action=text[at:] if action is None else action,
            tool_type=format.tool_type,
            status=ParseStatus.BROKEN if action is None else ParseStatus.VALID,
        )
        start = closed.end() if closed else len(text)
    yield from _prose(text[start:])


def _pattern(mark: str, *, at_end: bool = False) -> str:
    """Return a pattern for a mark with the line breaks of any system.

    If `at_end` is True, the end of the text counts as the mark's last line break.
    """
    parts = [re.escape(part) for part in mark.split("\n")]
    if at_end and parts[-1] == "":
        return _BREAK.join(parts[:-1]) + rf"(?:{_BREAK}|\Z)"
    return _BREAK.join(parts)


def _find_stopped(rest: str, end: str, stop: Sequence[str]) -> str | None:
    """Return the content of the last block if the model stopped at its end mark; otherwise None."""
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
        return Parsed(problem=describe_schema_error(explain_error(error, schema)))
    except UnreadableJsonError as error:
        return Parsed(problem=describe_schema_error(str(error)))
    written = write_schema_json(found)
    try:
        # Numbers that JSON does not have, such as infinity, become None.
        value = json.loads(written, parse_int=_storable, parse_constant=lambda _: None)
    except ValueError as error:
        return Parsed(problem=describe_schema_error(str(error)))
    # Prose or a fence around the object is removed, since clients read the message as JSON.
    return Parsed(value=value, text=None if _is_json(text) else json.dumps(value))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _storable(digits: str) -> int:
    number = int(digits)
    if number not in _INTEGERS:
        raise ValueError(f"{digits[:20]}… is too large for a number; write it as text")
    return number


_LABELS: Final[dict[str, Language]] = {
    **dict.fromkeys(("python", "py", "python3", "py3", "ipython", "pycon"), "python"),
    **dict.fromkeys(("shell", "sh", "bash", "zsh", "console"), "shell"),
}

_COMMAND = re.compile(
    r"(?:\$ )?(?:apt|apt-get|awk|bash|cat|cd|chmod|cp|curl|cut|date|df|du|echo|env|export|find|git|"
    r"grep|head|kill|ls|make|mkdir|mv|node|npm|pip3?|printf|ps|pwd|python3?|rm|rmdir|sed|seq|sh|sleep|"
    r"sort|tail|tar|tee|test|touch|tr|uname|uniq|uv|wc|wget|which|xargs)"
    # The rest of the line must not be a Python expression: a sum, a comparison, an assignment.
    r"(?:\s+(?![=+*/%&|^<>]|-\s|in\b|is\b|if\b|and\b|or\b)|$)"
)
"""The beginning of a shell command that could be parsed as Python, too."""


class RunnableBlock(NamedTuple):
    """A block of fenced code in a message."""

    language: str
    """A `Language`, or the label of a language that can't be run. Empty if the language is unknown.
    """
    code: str
    """The code."""


Languages: TypeAlias = Collection[Language] | None
"""The languages of the fenced blocks that contain code. If None, any fenced block does."""


def languages_run(conversation: Conversation, speaker: Speaker) -> Languages:
    """Return the languages whose fences a speaker runs."""
    is_marked = speaker.code is not None and speaker.code.fences == "marked"
    return conversation.sandbox.languages if is_marked else None


def code_blocks(text: str, languages: Languages = None) -> list[RunnableBlock]:
    """Return the blocks of fenced code in a message that are run (AutoGen)."""
    return [_block(fence) for fence in _with_code(text, languages) if fence.is_closed]


def open_blocks(text: str, languages: Languages = None) -> list[RunnableBlock]:
    """Return the blocks of code in a message whose fences are not closed.

    The code may be incomplete, so it is not run.
    """
    return [_block(fence) for fence in _with_code(text, languages) if not fence.is_closed]


def holds_code(text: str, languages: Languages = None) -> bool:
    """Return whether a message contains fenced code, complete or not."""
    return any(True for _ in _with_code(text, languages))


def _with_code(text: str, languages: Languages) -> Iterator[Fence]:
    for fence in fences(text)[1]:
        is_begun = fence.language is not None and not fence.is_closed
        label = _LABELS.get(fence.language or "")
        is_code = languages is None or label in languages
        if is_code and (fence.content.strip() or is_begun):
            yield fence


def _block(fence: Fence) -> RunnableBlock:
    label, code = fence.language, fence.content
    return RunnableBlock(infer_language(code) if label is None else _LABELS.get(label, label), code)


def infer_language(code: str) -> str:
    """Return the language of code without a label, or an empty text if it is unknown."""
    first = code.lstrip().splitlines()[0]
    if first.startswith("#!"):
        return "python" if "python" in first else "shell"
    if _COMMAND.match(first):
        return "shell"
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return "python"
