"""Whose part a message speaks. Pure functions."""

from collections.abc import Sequence

from ...speakers.formats import Marks, plain
from ...speakers.speaker import Speaker
from ...spec.conversation import Conversation
from ...text.fences import prose_places
from .marks import begins


def plays(conversation: Conversation, speaker: Speaker, text: str) -> str | None:
    """Find the other speaker whose part a message plays."""
    own = speaker.format.lines if isinstance(speaker.format, Marks) else ()
    shown = [one for _, one in prose_places(text.strip())]
    for other in conversation.speakers:
        mark = other.format.lines[0] if isinstance(other.format, Marks) else None
        if mark is None or mark in own or other.name == speaker.name:
            continue
        found = [place for place, one in enumerate(shown) if begins(one, mark)]
        if found and found[-1] >= _length_of_form(speaker, shown):
            return other.name
    # Further down a name and a colon may well stand in a list, a note or a quoted line.
    first = _labels(conversation, shown[:1])
    if conversation.is_pair or not first:
        return first[0] if first and first[0] != speaker.name else None
    labels = _labels(conversation, shown)
    others = [name for name in labels if name != speaker.name]
    return others[0] if others and len(labels) > 1 else None


def _labels(conversation: Conversation, lines: Sequence[str]) -> list[str]:
    """The names of speakers, and a colon, with which lines begin."""
    names = [(name, f"{name}:") for name in conversation.names]
    return [name for one in lines for name, label in names if begins(one, label)]


def _length_of_form(speaker: Speaker, shown: Sequence[str]) -> int:
    """How many lines a message that has its form takes: within it may stand any text."""
    marks = speaker.marks
    if marks is None or marks.end is None:
        return 0
    opens = [place for place, one in enumerate(shown) if begins(one, marks.lines[0])]
    closes = (plain(one).rstrip().endswith(plain(marks.end)) for one in shown)
    return next((place for place, one in enumerate(closes, 1) if one and opens == [0]), 0)
