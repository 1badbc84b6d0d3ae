"""What a message says in its speaker's own words. Pure functions."""

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from ...speakers.formats import SchemaFormat, plain
from ...speakers.speaker import Speaker
from ...text.borrowed import remark_places
from ...text.fences import prose_places
from .marks import begins, length_of, read_marks
from .mending import NONE


def own_words(speaker: Speaker, text: str, parsed: JsonValue) -> str:
    """Return what comes after the marks of a message, or is in the fields of JSON; else all of it.

    What an optional mark says if the speaker left it out is not the speaker's.
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
    values = values or [*_lines_without(marks.texts, text)]
    return "\n".join([one for one in values if not _is_none(one)])


def _lines_without(marks: Sequence[str], text: str) -> Iterator[str]:
    """Yield the lines of a message that can't be read by its marks, without those marks."""
    for line in text.splitlines():
        mark = next((mark for mark in marks if begins(line, mark)), None)
        yield line if mark is None else line[length_of(mark, line)[0] :].strip()


def _is_none(value: str) -> bool:
    """Return whether a value is what was added after a mark."""
    return begins(value, NONE) and plain(value) == plain(NONE)


def _values(found: JsonValue) -> Iterator[str]:
    if not isinstance(found, dict | list):
        yield str(found)
        return
    for one in found.values() if isinstance(found, dict) else found:
        yield from _values(one)


def without_remarks(speaker: Speaker, text: str, request: str, *, announced: bool) -> str:
    """Return a message without what repeats a request for it; its marks and its code stay.

    Args:
        speaker: Who says it.
        text: The message.
        request: How the speaker was asked for it once more.
        announced: Whether announcements such as "Here is my new message:" go too.
    """
    kept, at = list[str](), 0
    for start, end in _passages(text, speaker.marks.lines if speaker.marks else ()):
        for first, behind in remark_places(text[start:end], request, announced=announced):
            kept.append(text[at : start + first])
            at = start + behind
    return "".join([*kept, text[at:]]).strip() if kept else text


def _passages(text: str, marks: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where prose begins and ends: a passage ends before code and before each mark."""
    begun, end = 0, 0
    for start, line in prose_places(text):
        mark = next((mark for mark in marks if begins(line, mark)), None)
        if mark is not None or start != end:
            yield begun, end
            begun = start if mark is None else start + length_of(mark, line)[0]
        end = start + len(line)
    yield begun, end
