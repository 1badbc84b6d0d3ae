"""Repairing a reply without a model, and the words in it that are the speaker's own. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pydantic import JsonValue

from ..speakers.formats import EMPHASIS, LabelledFormat, SchemaFormat, normalize_mark
from ..speakers.speaker import Speaker
from ..text.borrowed import remark_places
from ..text.fences import prose_places
from .marks import begins, end_of, length_of, read_marks

NONE: Final = "None"
"""What stands behind a mark that may be missing."""

_POINTS = ".!?。！？"  # noqa: RUF001
_COLON = r"[^\S\r\n]*[:：]"  # noqa: RUF001
_LINE_BREAK = "\n"
_ITEM = re.compile(r"[ \t]*(?:[-+•–]|\d{1,2}[.)])[ \t]+")  # noqa: RUF001
"""How an item of a list begins."""


class Mended(NamedTuple):
    """A message in its form."""

    text: str
    """It, with what was missing."""
    is_opened: bool
    """Whether its first mark was missing, too, or did not begin it."""


def mended(marks: LabelledFormat, text: str, name: str = "") -> Mended | None:
    """Give the message of a speaker of this name in its form.

    None: there is no telling what belongs where.
    """
    bare = _without_label(name, text)
    for given in dict.fromkeys((text, bare)):
        whole = _whole(marks, given)
        if whole is not None:
            return Mended(whole, is_opened=False)
    opened = _opened(marks, bare)
    whole = None if opened is None else _whole(marks, opened)
    return None if whole is None else Mended(whole, is_opened=True)


def begins_anew(marks: LabelledFormat, text: str) -> bool:
    """Whether the marks of a message begin anew, as where it holds two instructions."""
    return len(marks.lines) > 1 and len(_lines_of(marks.lines[0], text)) > 1


def _lines_of(mark: str, text: str) -> list[tuple[int, str]]:
    """The lines that begin with a mark, each with its place; in code there are none."""
    return [one for one in prose_places(text) if begins(one[1], mark)]


def _without_label(name: str, text: str) -> str:
    """A message without its speaker's own name in front."""
    text = text.lstrip()
    first, label = text.partition("\n")[0], f"{name}:"
    is_labelled = bool(name) and begins(first, label)
    return text[length_of(label, first)[0] :].lstrip() if is_labelled else text


def _whole(marks: LabelledFormat, text: str) -> str | None:
    """A message that begins with its first mark, with what else was missing."""
    if read_marks(marks.lines, marks.end, text) is None:
        text = _in_lines(marks, _unlisted(marks, text))
        text = text if marks.end is None else _with_end_mark(marks.end, text)
        text = _with_optional(marks, text)
    return text if read_marks(marks.lines, marks.end, text) is not None else None


def _unlisted(marks: LabelledFormat, text: str) -> str:
    """A message whose marks are no items of a list."""
    missing = [mark for mark in marks.texts if not _lines_of(mark, text)]
    for start, one in reversed(prose_places(text)):
        item = _ITEM.match(one)
        if item is not None and any(begins(one[item.end() :], mark) for mark in missing):
            text = f"{text[:start]}{text[start + item.end() :]}"
    return text


def _in_lines(marks: LabelledFormat, text: str) -> str:
    """A message whose marks begin a line each."""
    if all(_lines_of(mark, text) for mark in marks.lines[1:]):
        return text
    # Within a line a mark is written as it should be, or else it is a word like others.
    written = "|".join(re.escape(mark).replace(":", _COLON) for mark in marks.lines)
    gap = re.compile(rf"(?<=\S)[ \t]+(?=[{re.escape(EMPHASIS)}]*(?:{written}))")
    for start, one in reversed(prose_places(text)):
        text = f"{text[:start]}{gap.sub(_LINE_BREAK, one)}{text[start + len(one) :]}"
    return text


def _with_optional(marks: LabelledFormat, text: str) -> str:
    """A message with the lines that were missing and may be."""
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


def _opened(marks: LabelledFormat, text: str) -> str | None:
    """A message with its first mark in front, taken from where it stands further down."""
    first, text = marks.lines[0], text.strip()
    found = _lines_of(first, text)
    if not text or len(found) > 1 or any(begins(text, mark) for mark in marks.lines[1:]):
        return None
    for start, one in found:
        text = f"{text[:start]}{text[start + length_of(first, one)[0] :].lstrip()}"
    # A fence needs a line of its own.
    between = "\n" if text.startswith(("```", "~~~")) else " "
    return f"{first}{between}{text}"


def _with_end_mark(end: str, text: str) -> str:
    """A message with its end mark."""
    if end_of(end, text) is not None:
        return text
    bare = end.rstrip(_POINTS)
    place = end_of(bare, text.rstrip(f"{EMPHASIS}{_POINTS} \t\r\n")) if bare else None
    before = "" if place is None else text[: place[0]].rstrip(" \t")
    # In "I wait for the next request" it is no mark.
    if place is not None and (not before or before[-1] in f"\n{_POINTS}"):
        return f"{text[: place[0]]}{end}"
    return f"{text.rstrip()}\n{end}"


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
    return begins(value, NONE) and normalize_mark(value) == normalize_mark(NONE)


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
